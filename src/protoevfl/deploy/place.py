"""Where a party's kit is at work. The kit notes where it was first started: a copy finds that it is
one before it dials the hub, where its connection would push out the original's. The hub's own note
(`federation/engines/nvflare_place.py`) is the one that binds: it also refuses a copy taken before
the first start."""

from contextlib import suppress

from protoevfl.deploy import durable
from protoevfl.deploy.kit import Kit
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare_place

_NOTE = "place"  # file of the kit


def check(opened: Kit) -> None:
    """Raises if this kit was started in another place before."""
    with suppress(FileNotFoundError):
        noted = (opened.folder / _NOTE).read_text()
        if noted != nvflare_place.place_of(opened.folder):
            raise UserError(
                f"this kit of {opened.name} is a second copy: it was started in another folder or "
                "on another machine, and works in one place. If it moved, stop it there, type "
                f"`protoevfl deploy move {opened.folder}`, and let the hub's operator type "
                f"`protoevfl deploy move HUB {opened.name}`"
            )


def note(opened: Kit) -> None:
    """Remember where this kit is started."""
    if opened.identity.role == "party" and not (opened.folder / _NOTE).exists():
        durable.write(opened.folder / _NOTE, nvflare_place.place_of(opened.folder).encode())


def move(opened: Kit, party: str | None) -> str:
    """Let a kit be at work in another place, on purpose: at the party, in its new place, and at the
    hub, for the party named. Returns what is left to do."""
    if opened.identity.role == "party":
        if party not in (None, opened.name):
            raise UserError(f"{opened.folder} is the kit of {opened.name}, not of {party}")
        (opened.folder / _NOTE).unlink(missing_ok=True)
        return (
            f"{opened.name} may start here; before it does, stop it where it was and let the hub's "
            f"operator type `protoevfl deploy move HUB {opened.name}`"
        )
    if party not in opened.identity.parties:
        raise UserError(
            f"say which party moved: one of {', '.join(opened.identity.parties)}, not {party!r}"
        )
    if not nvflare_place.release(opened.folder, party):
        return f"{party} is held to no place; it can join from anywhere"
    return (
        f"{party} is let go; the place it joins from next is its own. Is it stopped where it was?"
    )
