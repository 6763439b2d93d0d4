"""What NVFlare runs for a job: `Hub` at the hub (it only says "begin"), `Site` at every party.

A job names these two classes and the specification, nothing else. The site finds its data, its policy and its
memory of earlier attempts in its own kit.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protoevfl.deploy import durable, kept_owner, policy
from protoevfl.deploy.aligning import QUERY, TRAIN, lead_alignment
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.host import PartyHost, public, refusal
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.lead import Lead, LostError
from protoevfl.deploy.run_lock import RunLock
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.border import owner_border
from protoevfl.federation.engines import nvflare
from protoevfl.federation.federation import Federation
from protoevfl.federation.lockstep import PartyLostError
from protoevfl.method import Report
from protoevfl.observer import Observer

if TYPE_CHECKING:
    from protoevfl.deploy.local import Local


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
    from protoevfl.deploy.local import Local

    folder, own = kit.run_folder(spec.run), Local(kit, spec)
    durable.write(folder / "spec.json", json.dumps(spec.to_dict(), indent=1).encode())
    return PartyHost(
        make=own.party,
        aligner=own.aligner(),
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
        facts = train(kit, spec, engine, note)
        log.add("finished", run=spec.run, round=engine.round, decision="done")
        note.write("done", **facts)
        return "done"
    except PartyLostError as error:
        note.write("lost", error=str(error))
    except Exception as error:  # whatever it was: status.json must not go on saying "running"
        if nvflare.aborted(error):  # but here it is right: nothing has failed, the supervisor makes the next attempt
            raise
        note.write("failed", error=str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
    finally:
        engine.close()
    return str(note.facts.get("error"))


def train(kit: Kit, spec: JobSpec, engine: Lead, observer: Observer) -> dict[str, Any]:
    """Align, train and predict; the probabilities go to the run's folder."""
    from protoevfl.deploy.local import Local

    own = Local(kit, spec)
    align(own, engine)
    method = own.method()
    owner = own.owner()
    loss = "skip" if spec.on_party_loss == "skip" else "abort"  # the engine has done the waiting
    federation = Federation([method], [owner], owner_border(engine, own.owner_guard(owner)), loss)
    if spec.task == "train":
        federation.train(observer)
        kept_owner.keep(own.folder, owner)
    elif not kept_owner.take_up(own.base_folder, owner):
        border = owner_border(_remembered(own, engine), own.owner_guard(owner))
        Federation([method], [owner], border, "skip").train(observer)
    queries = own.queries()
    if queries:
        observer.report(Report("prediction"))
        (probabilities,) = federation.predict(observer=observer)
        own.write_predictions(probabilities)
    seconds = [round(s, 4) for s in engine.seconds]
    return {"rounds": engine.round, "predicted": queries, "exchange_s": seconds}


def _remembered(own: "Local", engine: Lead) -> Lead:
    """The training run's exchanges as its journal has them: the model comes back without asking anyone."""
    from protoevfl.deploy.supervise import read_spec

    def nobody(party: str, frame: bytes, seconds: float) -> bytes:
        raise UserError(f"run {own.spec.base} was not finished; resume it before predicting with it")

    base = read_spec(own.kit, own.spec.base)
    journal = CheckpointStore(own.base_folder / "journal", keep=None)
    return Lead(base, nobody, journal, engine.log, engine.dims)


def align(own: "Local", engine: Lead) -> None:
    """Find the common rows, unless all parties already hold the same ones."""
    if not own.own_data or (len(set(engine.aligned.values())) == 1 and "" not in engine.aligned.values()):
        return
    file, result, others = own.file(), own.alignments()[1], list(own.spec.parties[1:])
    if own.spec.task == "train":
        ids = file.labelled_ids(True)
        result.save(TRAIN, lead_alignment(own.kit.name, others, TRAIN, ids, file.minimum, engine.align))
    asked = file.labelled_ids(False) if own.spec.task == "train" else file.ids(file.predict)
    if asked.values:
        result.save(QUERY, lead_alignment(own.kit.name, others, QUERY, asked, 1, engine.align))


class Status(Observer):
    """status.json of a run at the active party: where it is, who is missing, how it ended."""

    def __init__(self, kit: Kit, spec: JobSpec) -> None:
        self.path = kit.run_folder(spec.run) / "status.json"
        self.facts: dict[str, Any] = {"run": spec.run, "job": nvflare.job_id(), "round": 0, "absent": {}}

    def write(self, state: str, **facts: Any) -> None:
        self.facts |= {"state": state, "time": time.time(), **facts}
        durable.write(self.path, json.dumps(self.facts, indent=1).encode())

    def report(self, report: Report, run: int = 0) -> None:
        self.write("running", phase=report.phase, step=report.step, steps=report.steps)

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
