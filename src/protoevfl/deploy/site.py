"""What NVFlare runs for a job: `Hub` at the hub (it only says "begin"), `Site` at every party.

A job names these two classes and the specification, nothing else. The site finds its data, its policy and its
memory of earlier attempts in its own kit.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from protoevfl.deploy import durable, policy
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.host import PartyHost, public, refusal
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.lead import Lead, LostError
from protoevfl.deploy.run_lock import RunLock
from protoevfl.deploy.spec import JobSpec
from protoevfl.drive import PartyLostError
from protoevfl.engines import nvflare
from protoevfl.errors import UserError


class Hub:
    """The hub's part of a job: ask the active party to lead, wait."""

    def __init__(self, active: str) -> None:
        self.active = active

    @nvflare.main
    def main(self) -> str:
        die_with_parent()
        outcome = str(nvflare.calls("lead")[self.active](nvflare.LONGEST_S))
        if outcome != "done":
            raise RuntimeError(f"the run stopped: {outcome}")
        return outcome


class Site:
    """A party's part of a job."""

    def __init__(self, spec: str, absent: str = "") -> None:
        self.spec = JobSpec.from_dict(json.loads(spec))
        self.absent = frozenset(filter(None, absent.split(",")))
        self._host: PartyHost | None = None
        self._making = threading.Lock()

    @nvflare.publish
    def answer(self, frame: bytes) -> bytes:
        """Another site's frame, answered or refused."""
        caller = nvflare.caller()
        try:
            host = self.host()
        except Exception as error:  # no usable run folder, policy or log: say so without saying where
            return refusal(self.spec, nvflare.site_name(), caller, 0, public(error))
        return host.answer(frame, caller)

    @nvflare.publish
    def lead(self) -> str:
        """Run the whole job; only the hub may ask, and only the active party does it."""
        kit = open_kit(nvflare.kit_folder())
        if nvflare.caller() != nvflare.HUB or kit.name != self.spec.active:
            return "this site does not lead"
        host, asks = self.host(), nvflare.calls("answer")

        def send(party: str, frame: bytes, seconds: float) -> bytes:
            if party == kit.name:
                return host.answer(frame, kit.name)
            if party not in asks:
                raise LostError("not part of this attempt")
            try:
                return bytes(asks[party](seconds, frame))
            except nvflare.CallError as error:
                raise LostError(str(error)) from None

        return lead(kit, self.spec, self.absent, send, host.log)

    def host(self) -> PartyHost:
        """This site's border, made once."""
        with self._making:
            if self._host is None:
                kit = open_kit(nvflare.kit_folder())
                die_with_parent()
                folder = kit.run_folder(self.spec.run)
                RunLock(folder).take(nvflare.job_id())
                self._host = make_host(kit, self.spec)
            return self._host


def make_host(kit: Kit, spec: JobSpec) -> PartyHost:
    """A party's border, with its log, its rules and its memory of the run."""
    from protoevfl.deploy import local

    folder = kit.run_folder(spec.run)
    durable.write(folder / "spec.json", json.dumps(spec.to_dict(), indent=1).encode())
    return PartyHost(
        make=lambda: local.make_party(kit, spec),
        name=kit.name,
        spec=spec,
        policy=policy.Policy.read(kit.folder / "policy.toml"),
        store=CheckpointStore(folder / "checkpoints"),
        log=AuditLog(folder / "audit.jsonl"),
    )


def lead(kit: Kit, spec: JobSpec, absent: frozenset[str], send: Any, log: AuditLog) -> str:
    """The active party's main line: agree, train, predict, keep the result. Says how it ended in status.json too."""
    note = Status(kit, spec)
    journal = CheckpointStore(kit.run_folder(spec.run) / "journal", keep=None)
    engine = Lead(spec, send, journal, log, {"classes": spec.classes}, absent, note.round)
    try:
        note.write("running")
        engine.hello()
        facts = train(kit, spec, engine)
        log.add("finished", run=spec.run, round=engine.round, decision="done")
        note.write("done", **facts)
        return "done"
    except PartyLostError as error:
        note.write("lost", error=str(error))
    except (UserError, ValueError, KeyError, RuntimeError, OSError) as error:
        note.write("failed", error=str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
    finally:
        engine.close()
    return str(note.facts.get("error"))


def train(kit: Kit, spec: JobSpec, engine: Lead) -> dict[str, Any]:
    """Train and predict; the probabilities go to the run's folder."""
    from safetensors.torch import save

    from protoevfl.deploy import local
    from protoevfl.drive import drive

    method, owner, queries = local.make_owner(kit, spec)
    loss = "skip" if spec.on_party_loss == "skip" else "abort"  # the engine has done the waiting
    for _ in drive([method.train(owner)], engine, loss):
        pass
    if queries:
        asking = drive([method.predict(owner, owner.parties)], engine, loss)
        while True:
            try:
                next(asking)
            except StopIteration as stop:
                (probabilities,) = stop.value
                break
        path = kit.run_folder(spec.run) / "predictions.safetensors"
        durable.write(path, save({"probabilities": probabilities.detach().cpu().contiguous()}))
    return {"rounds": engine.round, "predicted": queries, "exchange_s": [round(s, 4) for s in engine.seconds]}


class Status:
    """status.json of a run at the active party: where it is, who is missing, how it ended."""

    def __init__(self, kit: Kit, spec: JobSpec) -> None:
        self.path = kit.run_folder(spec.run) / "status.json"
        self.facts: dict[str, Any] = {"run": spec.run, "job": nvflare.job_id(), "round": 0, "absent": {}}

    def write(self, state: str, **facts: Any) -> None:
        self.facts |= {"state": state, "time": time.time(), **facts}
        durable.write(self.path, json.dumps(self.facts, indent=1).encode())

    def round(self, number: int, absent: Mapping[str, str]) -> None:
        self.write("running", round=number, absent=dict(absent))


def die_with_parent(interval_s: float = 0.5) -> None:
    """A job process must not outlive the process that started it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval_s)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="die-with-parent").start()
