"""A party joins from one place, and no silence, restart or race of two changes which."""

import platform
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protoevfl.deploy.provision import Project, provision
from protoevfl.federation.engines import nvflare, nvflare_place

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parties = {"bank": "Bank", "shop": "Shop"}
    project = Project("credit", "bank", "localhost", 8002, "Hub", parties)
    return provision(project, tmp_path_factory.mktemp("kits"))


@pytest.fixture
def hub(made: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(made["hub"], tmp_path / "hub")


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(made["shop"], tmp_path / "elsewhere" / "shop")


@dataclass
class Context:
    """What the hub knows when a party registers."""

    hub: Path
    name: str
    claim: Any

    def get_prop(self, key: str, default: Any = None) -> Any:
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.private.defs import InternalFLContextKey

        known = {
            InternalFLContextKey.CLIENT_REG_SESSION: SimpleNamespace(client_name=self.name),
            FLContextKey.WORKSPACE_OBJECT: SimpleNamespace(get_root_dir=lambda: str(self.hub)),
        }
        return known.get(key, default)

    def get_peer_context(self) -> Any:
        return SimpleNamespace(get_prop={nvflare_place.PLACE: self.claim}.get)


def party_list() -> Any:
    """A hub that was just started."""
    started = nvflare.PartyList()
    started.log_error = lambda ctx, text: None
    return started


def refusal(hub: Path, name: str, claim: Any, at: Any = None) -> str:
    """Why the hub refuses a registration, "" where it lets the party in."""
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_exception import NotAuthenticated

    try:
        (at or party_list()).handle_event(
            EventType.CLIENT_REGISTER_RECEIVED, Context(hub, name, claim)
        )
    except NotAuthenticated as error:
        return str(error)
    return ""


def test_a_copy_is_refused_however_long_the_hub_has_heard_nothing_of_the_original(
    hub: Path, made: dict[str, Path], copy: Path
) -> None:
    # the hub has no client at all here: as after its own restart, or ten minutes of silence
    original, second = nvflare_place.statement(made["shop"]), nvflare_place.statement(copy)
    assert not refusal(hub, "shop", original)
    assert "second copy" in refusal(hub, "shop", second)
    assert not refusal(hub, "shop", original)  # a restart is let in at once
    assert "second copy" in refusal(hub, "shop", second)
    assert not refusal(hub, "bank", nvflare_place.statement(made["bank"]))


def test_a_party_that_was_let_go_is_held_to_its_next_place(
    hub: Path, made: dict[str, Path], copy: Path
) -> None:
    old, new = nvflare_place.statement(made["shop"]), nvflare_place.statement(copy)
    assert not nvflare_place.release(hub, "shop")
    assert not refusal(hub, "shop", old)
    assert nvflare_place.release(hub, "shop")
    assert not refusal(hub, "shop", new)
    assert "second copy" in refusal(hub, "shop", old)


def test_of_two_that_join_at_the_same_moment_one_is_let_in(
    hub: Path, made: dict[str, Path], copy: Path
) -> None:
    claims = [nvflare_place.statement(kit) for kit in (made["shop"], copy)] * 8
    gate, at = threading.Barrier(len(claims)), party_list()
    admitted: list[str] = []

    def join(claim: dict[str, Any]) -> None:
        gate.wait()
        if not refusal(hub, "shop", claim, at):
            admitted.append(claim["place"])

    threads = [threading.Thread(target=join, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(admitted)) == 1
    assert len(admitted) == 8


def test_nobody_has_another_party_held_to_a_place(hub: Path, made: dict[str, Path]) -> None:
    claim = nvflare_place.statement(made["shop"])
    other = nvflare_place.statement(made["bank"])
    forged = (
        other,
        {**claim, "place": "f" * 16},
        {**claim, "signature": other["signature"]},
        {**claim, "certificate": b"none"},
        {},
        "place",
        None,
    )
    for statement in forged:
        assert refusal(hub, "shop", statement)
    assert not (hub / nvflare_place.PLACES).exists()
    assert not refusal(hub, "shop", claim)


def test_what_the_hub_cannot_read_or_write_lets_nobody_in(hub: Path, made: dict[str, Path]) -> None:
    claim = nvflare_place.statement(made["shop"])
    (hub / nvflare_place.PLACES).write_text("a file, not a folder")
    assert refusal(hub, "shop", claim)
    (hub / nvflare_place.PLACES).unlink()
    (hub / "parties.json").write_text('["bank"]')
    assert "not on the list" in refusal(hub, "shop", claim)
    (hub / "parties.json").write_text("[")
    assert refusal(hub, "shop", claim)


def test_a_kit_keeps_its_place_over_a_restart_and_a_copy_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, copy, cards = tmp_path / "kit", tmp_path / "copy", tmp_path / "net"
    monkeypatch.setattr(nvflare_place, "CARDS", cards)
    kit.mkdir()
    copy.mkdir()

    def card(name: str, address: str, physical: bool) -> None:
        (cards / name).mkdir(parents=True)
        (cards / name / "address").write_text(f"{address}\n")
        if physical:
            (cards / name / "device").mkdir()

    card("eth0", "52:54:00:00:00:02", physical=True)
    here = nvflare_place.place_of(kit)
    card("docker0", "02:00:00:00:00:01", physical=False)  # comes and goes
    monkeypatch.setattr(platform, "node", lambda: "renamed")
    assert nvflare_place.place_of(kit) == here
    assert nvflare_place.place_of(copy) != here
    kit.rename(tmp_path / "old")
    copy.rename(kit)
    assert nvflare_place.place_of(kit) != here
    shutil.rmtree(kit)
    (tmp_path / "old").rename(kit)
    assert nvflare_place.place_of(kit) == here
    (cards / "eth0" / "address").write_text("52:54:00:00:00:03\n")  # a clone of the machine
    assert nvflare_place.place_of(kit) != here


def test_without_a_network_card_the_machine_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up = iter((1 << 40 | 11, 1 << 40 | 22, 1 << 40 | 33))  # a new number in each process
    monkeypatch.setattr(nvflare_place, "CARDS", tmp_path / "not-linux")
    monkeypatch.setattr(nvflare_place.uuid, "getnode", lambda: next(made_up))
    monkeypatch.setattr(platform, "node", lambda: "one")
    here = nvflare_place.place_of(tmp_path)
    assert nvflare_place.place_of(tmp_path) == here
    monkeypatch.setattr(platform, "node", lambda: "two")
    assert nvflare_place.place_of(tmp_path) != here
