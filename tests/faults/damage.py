"""Damaged and doubled things (threats D6 to D10): each trial returns what was said and done about it,
"" when the run did not end as it must."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from protoevfl.deploy import place, processes
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from tests.faults.cases import leftovers, quiet
from tests.faults.federation import Federation, Running, kill, same


def _running(federation: Federation, name: str, number: int) -> Running:
    """A run that has reached a round."""
    federation.up()
    spec = federation.spec(f"{name}-{int(time.time())}")
    running = federation.submit(spec, quiet)
    federation.wait_for_round(spec.run, number)
    return running


def _good(federation: Federation, spec: JobSpec) -> bool:
    return same(federation, spec) and not leftovers(federation)


def watched_twice(federation: Federation) -> str:
    """D6: the same job submitted twice, and resumed while it runs."""
    running = _running(federation, "twice", 2)
    said = []
    for again in (federation.submit, federation.resume):
        try:
            again(running.spec, quiet).done(60)
        except UserError as error:
            said.append(str(error))
    running.done()
    refused = all("is watched by process" in text for text in said) and len(said) == 2
    return said[0] if refused and _good(federation, running.spec) else ""


def flipped_byte(federation: Federation, victim: str = "shop") -> str:
    """D7: a byte of a party's newest checkpoint flips, its job process is killed."""
    running = _running(federation, "flip", 4)
    workers = federation.workers(victim)
    kill(*workers, how=signal.SIGSTOP)  # no newer checkpoint in between
    folder = federation.kit(victim).run_folder(running.spec.run)
    store = CheckpointStore(folder / "checkpoints")
    path = store.path(store.rounds()[-1])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    kill(*workers)
    running.done()
    log = (folder / "audit.jsonl").read_text()
    named = "is damaged; going on from round" in log
    return f"{path.name} named, same result" if named and _good(federation, running.spec) else ""


def lost_journal(federation: Federation) -> str:
    """D8: the active party's journal is gone, its job process is killed; the journal comes back."""
    running = _running(federation, "journal", 5)
    active = federation.parties[0]
    workers = federation.workers(active)
    kill(*workers, how=signal.SIGSTOP)
    journal = federation.kit(active).run_folder(running.spec.run) / "journal"
    copy = journal.with_name("copy")
    journal.rename(copy)
    kill(*workers)
    try:
        running.done()
        return ""
    except UserError as error:
        said = str(error)
    shutil.rmtree(journal, ignore_errors=True)
    copy.rename(journal)
    federation.resume(running.spec, quiet).done()
    return said if "journal from a copy" in said and _good(federation, running.spec) else ""


def _copy(federation: Federation, name: str, *left_out: str) -> Kit:
    folder = Path(tempfile.mkdtemp(dir=federation.folder)) / name
    unwanted = shutil.ignore_patterns("runs", "process.json", "log", *left_out)
    return open_kit(shutil.copytree(federation.folder / name, folder, ignore=unwanted))


def _refusal(copy: Kit) -> str:
    """What a kit says that does not join, "" when it does."""
    try:
        processes.start(copy, wait_s=40)
    except UserError as error:
        return str(error)
    finally:
        processes.stop(copy, seconds=0.5)
    return ""


def _goes_on(federation: Federation, running: Running) -> bool:
    """The run ends as it must, and so does one after it."""
    running.done()
    after = federation.spec(f"after-copy-{int(time.time())}")
    federation.submit(after, quiet).done()
    return same(federation, running.spec) and _good(federation, after)


def second_copy(federation: Federation, name: str = "shop") -> str:
    """D10: a kit is copied and started twice; the first goes on."""
    running = _running(federation, "copy", 2)
    said = _refusal(_copy(federation, name))
    good = "second copy" in said and _goes_on(federation, running)
    return said.replace(str(federation.folder), "FOLDER") if good else ""


def silent_original(federation: Federation, name: str = "shop") -> str:
    """D10: a copy from before the first start, while the original hangs and the hub has heard
    nothing of it for 40 s, or was itself started anew; the first goes on."""
    running = _running(federation, "silent", 2)
    copy = _copy(federation, name, "place")
    original = (federation.main(name), *federation.workers(name))
    kill(*original, how=signal.SIGSTOP)
    try:
        time.sleep(40)
        said = [_refusal(copy)]
        processes.stop(federation.kit("hub"), seconds=0)
        federation.up("hub")
        said.append(_refusal(copy))
    finally:
        kill(*original, how=signal.SIGCONT)
    good = all("second copy" in text for text in said) and _goes_on(federation, running)
    return said[0].replace(str(federation.folder), "FOLDER") if good else ""


def moved(federation: Federation, name: str = "shop") -> str:
    """D10: a kit moves on purpose; then its old place is refused, and a run goes through."""
    federation.up()
    hub, old = federation.kit("hub"), federation.kit(name)
    processes.stop(old, seconds=0.5)
    new = _copy(federation, name)
    said = [_refusal(new)]
    place.move(new, None)
    said.append(_refusal(new))
    place.move(hub, name)
    processes.start(new, wait_s=90)
    said.append(_refusal(old))
    processes.stop(new, seconds=0.5)
    place.move(hub, name)
    federation.up(name)  # and back
    after = federation.spec(f"moved-{int(time.time())}")
    federation.submit(after, quiet).done()
    good = all("second copy" in text for text in said) and _good(federation, after)
    return "refused, moved, moved back" if good else ""


TRIALS: dict[str, Callable[[Federation], str]] = {
    "the same job submitted and resumed while it runs": watched_twice,
    "a flipped byte in a party's newest checkpoint": flipped_byte,
    "the active party's journal gone, then back": lost_journal,
    "a second copy of a kit": second_copy,
    "a second copy of a kit whose original hangs": silent_original,
    "a kit moved on purpose, and back": moved,
}
