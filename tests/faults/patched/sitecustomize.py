"""Python reads this before anything else in the processes of a hub whose operator has changed its
software (see hubs.py). `HUB_DOES` says what it does to the traffic between two parties' job
processes, `HUB_NOTES` is the file it writes down what it saw."""

import itertools
import os
import threading
from pathlib import Path
from typing import Any

DOES = os.environ.get("HUB_DOES", "")
NOTES = Path(os.environ.get("HUB_NOTES", os.devnull))
EVERY = 7  # each seventh piece is treated badly
_LOCK = threading.Lock()


def _note(line: str) -> None:
    with _LOCK, NOTES.open("a") as file:
        file.write(line + "\n")


def _relay_badly() -> None:
    """What passes from one party to another, in the hub's main process."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    relay = CoreCell._forward
    pieces = itertools.count(1)
    held: list[tuple[Any, ...]] = []

    def forward(self: Any, *piece: Any) -> None:
        _, origin, destination, _, message = piece
        between_parties = "." in origin and "." in destination
        if not between_parties or not message.payload:
            return relay(self, *piece)
        number = next(pieces)
        # a lost or changed piece costs a deadline each: only some of them
        chosen = number % EVERY == 0 and (DOES not in ("drop", "change") or number <= 4 * EVERY)
        who = origin.split(".")[0]
        _note(f"{DOES if chosen else 'relay'} {who} {bytes(message.payload).hex()}")
        if DOES == "drop" and chosen:
            return None
        if DOES == "change" and chosen:
            changed = bytearray(message.payload)
            changed[len(changed) // 2] ^= 1
            message.payload = bytes(changed)
        if DOES == "hold" and chosen:
            held.append(piece)
            threading.Timer(1.0, _let_go, (relay, self, held)).start()
            return None
        relay(self, *piece)
        if DOES == "repeat" and chosen:
            relay(self, *piece)
        _let_go(relay, self, held)  # one that was held back comes after a later one
        return None

    CoreCell._forward = forward


def _let_go(relay: Any, cell: Any, held: list[tuple[Any, ...]]) -> None:
    with _LOCK:
        pieces, held[:] = list(held), []
    for piece in pieces:
        relay(cell, *piece)


def _call_as_the_active_party() -> None:
    """The hub's job process asks a party itself, unencrypted, with the active party's name as origin;
    then the run goes on as always."""
    from nvflare.collab.runtime.cell_dispatcher import CellDispatcher
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    from protoevfl.federation.engines import nvflare

    honest_calls, honest_send = nvflare.calls, CoreCell._send_to_endpoint
    forging = threading.Event()

    def send(self: Any, to_endpoint: Any, message: Any) -> Any:
        if forging.is_set() and message.get_header(MessageHeaderKey.DESTINATION, "").startswith(
            "shop."
        ):
            job = self.my_info.fqcn.split(".", 1)[1]
            message.set_header(MessageHeaderKey.ORIGIN, f"bank.{job}")
        return honest_send(self, to_endpoint, message)

    call_target = CellDispatcher._call_target

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if forging.is_set():
            self.caller = "bank"
        try:
            return call_target(self, *arguments, **named)
        finally:
            self.caller = "server"

    def calls(method: str) -> Any:
        from nvflare.collab import collab

        (shop,) = [site for site in collab.clients if site.name == "shop"]
        forging.set()
        for path in sorted(NOTES.parent.glob("forged-*.frame")):
            try:
                answer = shop(timeout=3.0, secure=False).answer(path.read_bytes())
                _note(f"answer shop {bytes(answer).hex()}")
            except Exception as error:
                _note(f"silence shop {type(error).__name__}")
        forging.clear()
        return honest_calls(method)

    CoreCell._send_to_endpoint = send
    CellDispatcher._call_target = call
    nvflare.calls = calls


if DOES:
    _relay_badly()
if DOES == "forge":
    _call_as_the_active_party()
