"""A party's standing process: holds the models that are served and opens the frames that its main
process hands over (relay.py). `python -m protoevfl.deploy.standing_worker KIT`."""

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protoevfl.deploy import durable, line
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.durable import DiskError
from protoevfl.deploy.envelope import MAX_BODY, Envelope
from protoevfl.deploy.host import LONGEST_REASON, RefusedError, public
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.os_process import share_heaps
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.relay import SERVING
from protoevfl.deploy.review import ledger_of
from protoevfl.deploy.seal import Keys, Opened, seal, unseal
from protoevfl.deploy.serving_log import ServingLog
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.standing import StandingParty
from protoevfl.errors import UserError

MINUTE_S = 60.0  # between two lines about answered requests in the audit log


@dataclass
class StandingParties:
    """Every run that this party serves."""

    kit: Kit

    def __post_init__(self) -> None:
        self.keys = Keys.of_kit(self.kit.folder, self.kit.name)
        self.log = ServingLog(ledger_of(self.kit.folder, self.policy))
        self._parties: dict[str, StandingParty] = {}
        self._diaries: dict[str, Diary] = {}
        self._making = threading.Lock()

    @property
    def policy(self) -> Policy:
        """The rules as they are now; the file is read anew when it changed."""
        path = self.kit.folder / "policy.toml"
        stamp = path.stat().st_mtime_ns
        if getattr(self, "_read", (0, None))[0] != stamp:
            self._read = (stamp, Policy.read(path))
        rules = self._read[1]
        if hasattr(self, "log"):
            self.log.ledger.limits = rules.limits
        return rules

    def answer(self, caller: str, frame: bytes) -> bytes:
        """The answer to a frame that the hub says is of `caller`, which is not believed without a
        signature."""
        opened = None
        try:
            opened = unseal(self.keys, frame, MAX_BODY)
            envelope = opened.envelope
            policy = self.policy
            if caller != policy.active or envelope.sender != caller:
                raise RefusedError(f"{caller} may not ask this party (as {envelope.sender})")
            party = self._party(envelope, opened.body, policy)
            kind, body = party.answer(envelope, opened.body, policy)
            self._diary(envelope.run).answered(caller, kind, len(body))
            return self._sealed(opened, kind, body)
        except Exception as error:
            return self._refused(opened, caller, public(error))

    def _party(self, envelope: Envelope, body: bytes, policy: Policy) -> StandingParty:
        party = self._parties.get(envelope.run)
        if envelope.kind == "hello":
            party = self._greeted(envelope, body)
        if party is None or party.spec.digest() != envelope.spec:
            raise RefusedError("a frame of another session: this run has not been opened here")
        if objections := policy.objections(party.spec):
            raise RefusedError("refused by policy: " + "; ".join(objections))
        return party

    def _greeted(self, envelope: Envelope, body: bytes) -> StandingParty:
        """The run that a greeting opens: its specification is in it, signed."""
        try:
            spec = JobSpec.from_dict(json.loads(body))
        except (ValueError, UserError, RecursionError):
            raise RefusedError("the greeting has no specification that can be used") from None
        agreed = (spec.run, spec.digest(), spec.task) == (envelope.run, envelope.spec, "serve")
        if not agreed or self.kit.name not in spec.parties:
            raise RefusedError("the job's specification differs between the two sides")
        with self._making:
            opened = self._parties.get(spec.run)
            if opened is not None and opened.spec == spec:
                return opened
            path = self.kit.run_folder(spec.run) / "spec.json"
            durable.write(path, json.dumps(spec.to_dict(), indent=1).encode())
            if objections := self.policy.objections(spec):
                raise RefusedError("refused by policy: " + "; ".join(objections))
            party = StandingParty(self.kit, spec, self.log)
            party.load()
            self._parties[spec.run] = party
            self._remember()
        return party

    def _remember(self) -> None:
        """Which runs to load at once when this process starts again."""
        durable.write(self.kit.folder / SERVING, json.dumps(sorted(self._parties)).encode())

    def reload(self) -> None:
        """Load what was served before this process was started."""
        with suppress(OSError, ValueError):
            for run in json.loads((self.kit.folder / SERVING).read_text()):
                with self._making, suppress(UserError, OSError, ValueError, RefusedError):
                    facts = json.loads((self.kit.run_folder(run) / "spec.json").read_text())
                    party = StandingParty(self.kit, JobSpec.from_dict(facts), self.log)
                    if not self.policy.objections(party.spec):
                        party.load()
                        self._parties.setdefault(run, party)

    def _sealed(self, opened: Opened, kind: str, body: bytes) -> bytes:
        asked = opened.envelope
        header = Envelope(
            kind,
            asked.run,
            asked.spec,
            self.kit.name,
            asked.sender,
            asked.round,
            answers=opened.digest,
        )
        return seal(self.keys, header, body, opened.certificate)

    def _refused(self, opened: Opened | None, caller: str, reason: str) -> bytes:
        text = reason[:LONGEST_REASON].encode()
        if opened is None:
            header = Envelope("refusal", "none", "", self.kit.name, caller or "none", 0)
            return seal(self.keys, header, text)
        with suppress(UserError):  # saying no needs no disk
            self._diary(opened.envelope.run).refused(caller, reason)
        return self._sealed(opened, "refusal", text)

    def _diary(self, run: str) -> "Diary":
        if run not in self._diaries:
            self._diaries[run] = Diary(AuditLog(self.kit.run_folder(run) / "audit.jsonl"), run)
        return self._diaries[run]


@dataclass
class Diary:
    """The audit log of a run: refusals, greetings and alignments one by one, answered requests by
    the minute (the ledger has every row)."""

    log: AuditLog
    run: str

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.since, self.count, self.bytes = time.monotonic(), 0, 0
        self._said = ("", 0.0)

    def answered(self, peer: str, kind: str, size: int) -> None:
        with self._lock, suppress(DiskError):
            if kind == "align":
                self.log.add("align", run=self.run, peer=peer, bytes=size, decision="sent")
            if kind != "reply":
                return
            self.count, self.bytes = self.count + 1, self.bytes + size
            if time.monotonic() - self.since > MINUTE_S:
                reason = f"{self.count} requests answered"
                self.log.add(
                    "served",
                    run=self.run,
                    peer=peer,
                    bytes=self.bytes,
                    decision="sent",
                    reason=reason,
                )
                self.since, self.count, self.bytes = time.monotonic(), 0, 0

    def refused(self, peer: str, reason: str) -> None:
        """The same reason again is written once a minute."""
        with self._lock, suppress(DiskError):
            now = time.monotonic()
            if self._said[0] == reason and now - self._said[1] < MINUTE_S:
                return
            self._said = (reason, now)
            self.log.add("refused", run=self.run, peer=peer, decision="refused", reason=reason)


def main(folder: str) -> None:
    """Answers on standard input and output until the main process ends."""
    share_heaps()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    outgoing = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)  # whatever prints must not stand between the frames
    import torch

    torch.set_num_threads(1)
    parties = StandingParties(open_kit(Path(folder)))
    threading.Thread(target=parties.reload, daemon=True, name="reload").start()

    def handle(head: dict[str, Any], frame: bytes) -> tuple[dict[str, Any], bytes]:
        return {}, parties.answer(str(head.get("caller")), frame)

    line.serve(sys.stdin.buffer, outgoing, handle)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
