"""A party's kit knows where it works: a copy does not start, a kit moved on purpose does."""

import shutil
from pathlib import Path

import pytest

from protoevfl.deploy import os_process, place, processes
from protoevfl.deploy.kit import Kit, open_kit
from protoevfl.deploy.provision import Project, provision
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare, nvflare_place

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parties = {"bank": "Bank", "shop": "Shop"}
    project = Project("credit", "bank", "localhost", 8002, "Hub", parties)
    return provision(project, tmp_path_factory.mktemp("kits"))


def start_and_stop(opened: Kit) -> None:
    processes.start(opened, wait_s=0)
    processes.stop(opened, seconds=0)


def test_a_copy_of_a_started_kit_dials_nobody_until_it_is_moved(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import signal; signal.pause()"
    monkeypatch.setattr(
        nvflare, "command", lambda role, folder, *_: ["-c", code, os_process.MARK, str(folder)]
    )
    shop = open_kit(shutil.copytree(made["shop"], tmp_path / "shop"))
    start_and_stop(shop)
    copy = open_kit(shutil.copytree(shop.folder, tmp_path / "copy"))
    started = []
    with monkeypatch.context() as watching:
        watching.setattr(processes.subprocess, "Popen", lambda *a, **k: started.append(a))
        with pytest.raises(UserError, match=f"second copy.*deploy move {copy.folder}"):
            processes.start(copy, wait_s=0)
    assert not started
    start_and_stop(shop)  # a restart in its own place
    assert "deploy move HUB shop" in place.move(copy, None)
    start_and_stop(copy)


def test_the_hub_lets_go_of_the_party_named(made: dict[str, Path], tmp_path: Path) -> None:
    hub = open_kit(shutil.copytree(made["hub"], tmp_path / "hub"))
    assert "held to no place" in place.move(hub, "shop")
    nvflare_place.hold(hub.folder, "shop", "here")
    nvflare_place.hold(hub.folder, "bank", "here")
    assert "let go" in place.move(hub, "shop")
    assert nvflare_place.hold(hub.folder, "shop", "there") == "there"
    assert nvflare_place.hold(hub.folder, "bank", "there") == "here"


@pytest.mark.parametrize(("kit", "party"), [("hub", None), ("hub", "../jobs"), ("shop", "bank")])
def test_only_a_party_of_the_project_moves(
    made: dict[str, Path], kit: str, party: str | None
) -> None:
    with pytest.raises(UserError, match="not"):
        place.move(open_kit(made[kit]), party)
