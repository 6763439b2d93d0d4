"""A hub whose operator has changed its software (threat D4): the hub's real processes run with
patched/sitecustomize.py. Each trial returns what was seen; an AssertionError says what went wrong."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.seal import MAGIC, Keys, seal
from tests.faults.cases import leftovers, quiet
from tests.faults.federation import Federation, same

PATCH = Path(__file__).parent / "patched"
CLEAR = (b'"dtype"', b'"shape"')  # in every message of a run that is not encrypted


@contextmanager
def changed_hub(federation: Federation, does: str) -> Iterator[Path]:
    """Everybody up, the hub with the patch: the file of its notes."""
    federation.down()
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="hub-") as folder:
        notes = Path(folder) / "notes"
        path = os.pathsep.join(filter(None, [os.fspath(PATCH), before.get("PYTHONPATH", "")]))
        try:
            os.environ.update(PYTHONPATH=path, HUB_DOES=does, HUB_NOTES=os.fspath(notes))
            federation.up("hub")
        finally:
            os.environ.clear()
            os.environ.update(before)
        federation.up()
        try:
            yield notes
        finally:
            federation.down()


def _seen(notes: Path, *words: str, sender: str = "") -> list[bytes]:
    """The pieces that the hub noted under one of the words, of all or of one sender."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    chosen = [x for x in lines if x[0] in words and sender in ("", x[1])]
    return [bytes.fromhex(piece) for _, _, piece in chosen]


def _readable(piece: bytes) -> bool:
    return any(word in piece for word in CLEAR)


def misbehaves(federation: Federation, does: str) -> str:
    """It drops, repeats, holds back or changes what it relays: the same result bit for bit, and
    nothing it relayed could be read."""
    with changed_hub(federation, does) as notes:
        spec = federation.spec(f"hub-{does}-{int(time.time())}", deadline_s=8.0, wait_s=240.0)
        federation.submit(spec, quiet).done(420)
        touched, relayed = _seen(notes, does), _seen(notes, "relay")
        readable = [piece for piece in touched + relayed if _readable(piece)]
        assert touched, "no piece was touched"
        assert not readable, f"{len(readable)} pieces can be read"
        assert same(federation, spec), "another result"
        assert not leftovers(federation), "a job process is left over"
    return f"same result; {len(touched)} of {len(touched + relayed)} pieces"


def forges(federation: Federation) -> str:
    """It calls a party itself, unencrypted and with the active party's name as origin: only refusals
    come back, the party's log names them, and the run is not disturbed."""
    with changed_hub(federation, "forge") as notes:
        spec = federation.spec(f"hub-forge-{int(time.time())}")
        for number, frame in enumerate(_forged(federation, spec.run, spec.digest())):
            (notes.parent / f"forged-{number}.frame").write_bytes(frame)
        federation.submit(spec, quiet).done(300)
        sent = _seen(notes, "relay", "forge", "answer", sender="shop")
        clear = [piece for piece in sent if MAGIC in piece]
        answered = [piece for piece in clear if b"refusal" not in piece or _readable(piece)]
        log = (federation.kit("shop").run_folder(spec.run) / "audit.jsonl").read_text()
        refused = log.count('"refused"')
        assert not answered, f"{len(answered)} forged calls were answered"
        assert refused >= 3, f"{refused} refusals in the party's log"
        assert same(federation, spec), "another result"
    return f"{refused} forged calls refused, {len(clear)} refusals in clear, same result"


def _forged(federation: Federation, run: str, digest: str) -> Iterator[bytes]:
    """Frames that a hub can make: of no form, in clear, and sealed with the certificate of its own."""
    hub, shop = federation.kit("hub"), federation.kit("shop")
    startup = hub.folder / "startup"
    keys = Keys(
        "bank",
        *(startup.joinpath(n).read_bytes() for n in ("server.key", "server.crt", "rootCA.pem")),
    )
    request = Envelope("request", run, digest, "bank", "shop", 1, "session", 1)
    certificate = (shop.folder / "startup" / "client.crt").read_bytes()
    yield b"PEV1" + bytes(100)
    yield seal(keys, Envelope("hello", run, digest, "bank", "shop", 0))
    yield seal(keys, request, b"body", certificate)


TRIALS: dict[str, Callable[[Federation], str]] = {
    "drops what it relays": partial(misbehaves, does="drop"),
    "relays twice": partial(misbehaves, does="repeat"),
    "relays in another order": partial(misbehaves, does="hold"),
    "changes what it relays": partial(misbehaves, does="change"),
    "calls a party in the active party's name": forges,
}
