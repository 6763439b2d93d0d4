"""A kit works in one place: the hub holds each party to the machine and folder it first joined from.

No clock decides. Whether a party that is silent is gone or slow cannot be told from outside, so that
a hub that waits for silence lets a copy in beside a slow original. Here a party stays held to its
place, over restarts of the hub too, until the hub's operator lets it go (`release`). A restart comes
from the same place and is let in at once; a copy comes from another and never is.

A party signs where it is with its own key: nobody else can have it held to a wrong place. Who has
stolen a kit and changes the software can claim any place; against that helps the hub's list alone.
"""

import contextlib
import hashlib
import json
import os
import platform
import threading
import uuid
from pathlib import Path
from typing import Any

PLACE = "protoevfl_place"  # a party's signed statement, in what it tells the hub
PLACES = "places"  # folder of the hub's kit: one file per party that has joined
CARDS = Path("/sys/class/net")


class RefusedError(Exception):
    """This party may not join; the text goes to the hub's log."""


def place_of(kit: Path) -> str:
    """Where a kit lies, as a hash: the same after a restart, another for a copy."""
    kit = kit.resolve()
    machine = _network_card() or platform.node()  # a machine with a card may be given another name
    where = f"{machine} {kit} {kit.stat().st_ino}"
    return hashlib.sha256(where.encode()).hexdigest()[:16]


def _network_card() -> str:
    """This machine's network card, "" where there is none. Interfaces that come and go with
    containers and tunnels do not count."""
    if CARDS.is_dir():
        cards = [card for card in CARDS.iterdir() if (card / "device").exists()]
        return min(((card / "address").read_text().strip() for card in cards), default="")
    number = uuid.getnode()
    # where no card can be read Python makes a number up, in every process another, and marks it
    made_up = bool(number >> 40 & 1)
    return "" if made_up else str(number)


def statement(kit: Path) -> dict[str, Any]:
    """Where a party's kit lies, signed with the kit's key."""
    from nvflare.private.fed.utils.identity_utils import IdentityAsserter

    startup = kit / "startup"
    asserter = IdentityAsserter(str(startup / "client.key"), str(startup / "client.crt"))
    place = place_of(kit)
    signature = asserter.sign_common_name(f"{PLACE} {place}")
    return {"place": place, "certificate": asserter.cert_data, "signature": signature}


def stated(hub: Path, name: str, claim: Any) -> str:
    """The place in `statement`, if it is signed with a key that the authority made out to `name`."""
    from nvflare.private.fed.utils.identity_utils import IdentityVerifier, load_cert_bytes

    if not isinstance(claim, dict):
        raise RefusedError(f"{name} does not say where its kit lies; provision the kit again")
    place = str(claim.get("place"))
    verifier = IdentityVerifier(str(hub / "startup" / "rootCA.pem"))
    try:
        certificate = load_cert_bytes(claim["certificate"])
        verifier.verify_common_name(name, f"{PLACE} {place}", certificate, claim["signature"])
    except Exception:
        raise RefusedError(f"what {name} says of its place is not signed with its key") from None
    return place


def hold(hub: Path, name: str, place: str) -> str:
    """Where the party is held to from now on: `place`, unless it has joined from another before.

    For one caller at a time.
    """
    path = hub / PLACES / name
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_name(f".{name}.part")
    with part.open("w") as file:
        file.write(place)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return place


def release(hub: Path, name: str) -> bool:
    """Let the party join from wherever it comes next; False if it was held nowhere."""
    path = hub / PLACES / name
    held = path.exists()
    path.unlink(missing_ok=True)
    return held


def __getattr__(name: str) -> Any:
    """`PartyList` and `Place` are made on first use, because their base class is NVFlare's."""
    made = {"PartyList": _party_list, "Place": _place}
    if name in made:
        globals()[name] = made[name]()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _party_list() -> type:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_component import FLComponent
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.fl_exception import NotAuthenticated

    # the hub's own registration session
    from nvflare.private.defs import ClientType, InternalFLContextKey

    class PartyList(FLComponent):  # type: ignore[misc]
        """At the hub: only sites named in the kit's parties.json may join, whatever certificate
        they hold, and each from the place it first joined from."""

        def __init__(self) -> None:
            super().__init__()
            self.one_at_a_time = threading.Lock()

        def handle_event(self, event_type: str, fl_ctx: Any) -> None:
            if event_type != EventType.CLIENT_REGISTER_RECEIVED:
                return
            if fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) == ClientType.ADMIN:
                return  # takes no part in jobs; its certificate and role are checked at login
            try:
                self._admit(fl_ctx)
            except Exception as error:
                # any other exception NVFlare passes over, and lets the party in
                text = str(error) if isinstance(error, RefusedError) else repr(error)
                self.log_error(fl_ctx, f"{text}: refused")
                raise NotAuthenticated(text) from None

        def _admit(self, fl_ctx: Any) -> None:
            session = fl_ctx.get_prop(InternalFLContextKey.CLIENT_REG_SESSION)
            name = str(getattr(session, "client_name", ""))
            hub = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
            if name not in json.loads((hub / "parties.json").read_text()):
                raise RefusedError(f"party {name} is not on the list of this hub")
            peer = fl_ctx.get_peer_context()
            place = stated(hub, name, peer.get_prop(PLACE) if peer is not None else None)
            with self.one_at_a_time:
                held = hold(hub, name, place)
            if place != held:
                raise RefusedError(
                    f"a second copy of the kit of {name} (or it moved: `protoevfl deploy move`)"
                )

    return PartyList


def _place() -> type:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_component import FLComponent
    from nvflare.apis.fl_constant import FLContextKey

    class Place(FLComponent):  # type: ignore[misc]
        """At a party: tells the hub, as a hash, on which machine and in which folder its kit lies.
        Started again it comes from the same place; a copy does not."""

        def handle_event(self, event_type: str, fl_ctx: Any) -> None:
            if event_type != EventType.BEFORE_CLIENT_REGISTER:
                return
            root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
            fl_ctx.set_prop(PLACE, statement(root), private=False, sticky=False)

    return Place
