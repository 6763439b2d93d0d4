"""A party's part of a job: `Site` finds its data, its policy and its memory of earlier attempts in its
own kit, answers the active party, and leads where it is the active party."""

import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protoevfl.deploy import durable, policy
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.host import PartyHost, public, refusal
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.lead import Lead, LostError
from protoevfl.deploy.run_lock import RunLock
from protoevfl.deploy.seal import Keys
from protoevfl.deploy.site import die_with_parent
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.supervise import read_spec
from protoevfl.errors import UserError
from protoevfl.federation.border import owner_border
from protoevfl.federation.engines import nvflare
from protoevfl.federation.federation import Federation
from protoevfl.federation.lockstep import PartyLostError
from protoevfl.messages import Embed, Message, values
from protoevfl.method import Report
from protoevfl.observer import Observer

if TYPE_CHECKING:
    from protoevfl.deploy.local import Local


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
        # no usable run folder, policy or log: say so without saying where
        except Exception as error:
            kit = open_kit(nvflare.kit_folder())
            return refusal(Keys.of_kit(kit.folder, kit.name), self.spec, caller, public(error))
        return host.answer(frame, caller)

    @nvflare.publish
    def lead(self) -> str:
        """Run the whole job; only the hub may ask, and only the active party does it."""
        kit = open_kit(nvflare.kit_folder())
        if nvflare.caller() != nvflare.HUB or kit.name != self.spec.active:
            return "this site does not lead"
        # the hub hands out jobs: one that was not submitted from this kit is the hub's own
        if read_spec(kit, self.spec.run).digest() != self.spec.digest():
            return f"run {self.spec.run} was submitted with another specification: not led"
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
        keep=own.keep_party,
        files=own.sources,
        aligner=own.aligner(),
        keys=Keys.of_kit(kit.folder, kit.name),
        spec=spec,
        policy=policy.Policy.read(kit.folder / "policy.toml"),
        store=CheckpointStore(folder / "checkpoints"),
        log=AuditLog(folder / "audit.jsonl"),
    )


def lead(kit: Kit, spec: JobSpec, absent: frozenset[str], send: Any, log: AuditLog) -> str:
    """The active party's main line: agree, train, predict, keep the result. Says how it ended in
    status.json too."""
    note = Status(kit, spec)
    journal = CheckpointStore(kit.run_folder(spec.run) / "journal", keep=None)
    keys = Keys.of_kit(kit.folder, kit.name)
    engine = Lead(spec, keys, send, journal, log, {"classes": spec.classes}, absent, note.round)
    try:
        note.write("running")
        engine.hello()
        facts = work(kit, spec, engine, note)
        log.add("finished", run=spec.run, round=engine.round, decision="done")
        note.write("done", **facts)
        return "done"
    except PartyLostError as error:
        note.write("lost", error=str(error))
    except Exception as error:  # whatever it was: status.json must not go on saying "running"
        # but here it is right: nothing has failed, the supervisor makes the next attempt
        if nvflare.aborted(error):
            raise
        note.write(
            "failed",
            error=str(error)
            if isinstance(error, UserError)
            else f"{type(error).__name__}: {error}",
        )
    finally:
        engine.close()
    return str(note.facts.get("error"))


def work(kit: Kit, spec: JobSpec, engine: Lead, observer: Observer) -> dict[str, Any]:
    """Align, train, predict and keep the run, or predict with one that was kept."""
    from protoevfl.deploy.local import Local

    own = Local(kit, spec)
    engine.sources, engine.rows = own.sources(), own.rows_asked
    engine.check_sources()
    if own.predicts and not own.own_data:
        raise UserError(
            "only a run on files can predict new rows; a demo or probe run has no file of them"
        )
    if not own.own_data:
        predicted = _try_out(own, engine, observer)
    else:
        _align(own, engine)
        predicted = (
            _predict(own, engine, observer) if own.predicts else _train(own, engine, observer)
        )
    seconds = [round(s, 4) for s in engine.seconds]
    return {"rounds": engine.round, "predicted": predicted, "exchange_s": seconds}


def _federation(own: "Local", engine: Lead) -> Federation:
    owner = own.owner()
    # the engine has done the waiting
    loss = "skip" if own.spec.on_party_loss == "skip" else "abort"
    return Federation(
        [own.method()],
        [owner],
        owner_border(engine, own.owner_guard(owner.labels, owner.further, owner.memory)),
        loss,
    )


def _try_out(own: "Local", engine: Lead, observer: Observer) -> int:
    """Made-up or demo rows: train, predict, keep no model. The number of rows predicted."""
    federation = _federation(own, engine)
    federation.train(observer)
    observer.report(Report("prediction"))
    (probabilities,) = federation.predict(observer=observer)
    own.write_probabilities(probabilities)
    return len(probabilities)


def _train(own: "Local", engine: Lead, observer: Observer) -> int:
    """On files: train, measure, predict the rows without a label, and let every party keep its part
    of the run."""
    from protoevfl.pipeline.simulate import class_rows
    from protoevfl.pipeline.train import train_federation

    side = own.active
    world = side.world
    trained = train_federation(_federation(own, engine), own.privacy, observer)
    facts = {"device": "cpu", "notes": world.notes, "class_rows": class_rows(world)}
    label = own.file.label
    query = world.parties[0].table.query
    owner = trained.stored_owner(
        own.spec.parties, world.classes, label, world.test_labels, facts, query
    )
    observer.report(Report("prediction"))
    if len(side.rows.asked):
        own.write_predictions(side.predictions(owner, trained.query, query))
    engine.finish()
    own.keep_owner(owner)
    return len(side.rows.asked)


def _predict(own: "Local", engine: Lead, observer: Observer) -> int:
    """New rows with a run that was kept; nobody needs the file it was trained on."""
    from protoevfl.deploy.own_file import NewRows

    side, owner = own.active, own.stored_owner()
    assert isinstance(side.source, NewRows)
    observer.report(Report("prediction"))
    border = owner_border(engine, own.owner_guard(owner.labels))
    asked = [m for m in range(len(own.spec.parties)) if side.asked_of(m)]
    replies = border.engine.exchange({(0, m): Embed("query") for m in asked})
    query = {m: values(reply) for (_, m), reply in replies.items() if isinstance(reply, Message)}
    own.write_predictions(side.predictions(owner, query, side.source.encoded(side.rows.asked)))
    return len(side.rows.asked)


def _align(own: "Local", engine: Lead) -> None:
    # a row is predicted from the parties that are there
    skips = own.predicts and own.spec.on_party_loss == "skip"
    own.active.align(engine.aligned, engine.align, engine.absent if skips else frozenset())


class Status(Observer):
    """status.json of a run at the active party: where it is, who is missing, how it ended."""

    def __init__(self, kit: Kit, spec: JobSpec) -> None:
        self.path = kit.run_folder(spec.run) / "status.json"
        self.facts: dict[str, Any] = {
            "run": spec.run,
            "job": nvflare.job_id(),
            "round": 0,
            "absent": {},
        }

    def write(self, state: str, **facts: Any) -> None:
        self.facts |= {"state": state, "time": time.time(), **facts}
        durable.write(self.path, json.dumps(self.facts, indent=1).encode())

    def report(self, report: Report, run: int = 0) -> None:
        self.write("running", phase=report.phase, step=report.step, steps=report.steps)

    def round(self, number: int, absent: Mapping[str, str]) -> None:
        self.write("running", round=number, absent=dict(absent))
