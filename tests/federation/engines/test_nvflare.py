"""The module that touches NVFlare: jobs carry names and plain values only; nothing else needs the
package."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protoevfl.federation.engines import nvflare


@dataclass
class Context:
    """What the hub knows when a party registers."""

    root: Path
    name: str
    place: str
    heard: dict[str, float]  # when it last heard of each party

    def get_prop(self, key: str, default: Any = None) -> Any:
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.private.defs import InternalFLContextKey

        known = {
            InternalFLContextKey.CLIENT_REG_SESSION: SimpleNamespace(client_name=self.name),
            FLContextKey.WORKSPACE_OBJECT: SimpleNamespace(get_root_dir=lambda: str(self.root)),
        }
        return known.get(key, default)

    def get_peer_context(self) -> Any:
        return SimpleNamespace(
            get_prop=lambda key, default: self.place if key == nvflare.PLACE else default
        )

    def get_engine(self) -> Any:
        clients = {
            name: SimpleNamespace(name=name, last_connect_time=then)
            for name, then in self.heard.items()
        }
        return SimpleNamespace(client_manager=SimpleNamespace(get_clients=lambda: clients))


def test_a_kit_works_in_one_place_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_exception import NotAuthenticated

    (tmp_path / "parties.json").write_text('["bank", "shop"]')
    hub = nvflare.PartyList()
    hub.log_error = lambda ctx, text: None
    now = time.time()

    def join(name: str, place: str, heard: dict[str, float]) -> None:
        hub.handle_event(EventType.CLIENT_REGISTER_RECEIVED, Context(tmp_path, name, place, heard))

    join("shop", "here", {})
    join("shop", "here", {"shop": now})  # started again at once
    with pytest.raises(NotAuthenticated, match="at work in another place"):
        join("shop", "there", {"shop": now})
    join("bank", "there", {"shop": now})
    join("shop", "here", {"shop": now})  # the first goes on
    join("shop", "there", {"shop": now - 60})  # it moved to another machine
    with pytest.raises(NotAuthenticated, match="not on the list"):
        join("tele", "here", {})


def test_a_kit_keeps_its_place_over_a_restart_and_a_copy_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, copy = tmp_path / "kit", tmp_path / "copy"
    kit.mkdir()
    copy.mkdir()
    made_up = iter((1 << 40 | 11, 1 << 40 | 22))  # no network card: a new number in each process
    monkeypatch.setattr(nvflare.uuid, "getnode", lambda: next(made_up))
    assert nvflare.place_of(kit) == nvflare.place_of(kit)
    monkeypatch.setattr(nvflare.uuid, "getnode", lambda: 11)
    here = nvflare.place_of(kit)
    assert here != nvflare.place_of(copy)
    kit.rename(tmp_path / "old")
    copy.rename(kit)
    assert here != nvflare.place_of(kit)
    monkeypatch.setattr(nvflare.uuid, "getnode", lambda: 12)
    assert nvflare.place_of(tmp_path / "old") != here


def test_a_job_holds_two_class_names_their_arguments_and_no_code(tmp_path: Path) -> None:
    nvflare.write_job(
        tmp_path / "job",
        "run-1",
        ["bank", "shop"],
        ("a.Hub", {"active": "bank"}),
        ("a.Site", {"spec": "{}"}),
    )
    files = sorted(
        p.relative_to(tmp_path / "job").as_posix()
        for p in (tmp_path / "job").rglob("*")
        if p.is_file()
    )
    assert files == [
        "app/config/config_fed_client.json",
        "app/config/config_fed_server.json",
        "meta.json",
    ]
    texts = [json.loads((tmp_path / "job" / name).read_text()) for name in files]
    paths = {part["path"] for text in texts for part in text.get("components", [])}
    assert paths == {"a.Hub", "a.Site"}
    meta = texts[2]
    assert meta["mandatory_clients"] == ["bank", "shop"]
    assert meta["min_clients"] == 2
    assert meta["deploy_map"] == {"app": ["server", "bank", "shop"]}


def test_commands_start_the_hub_and_a_party_in_secure_mode() -> None:
    hub, party = (nvflare.command(role, Path("/kit"), "shop", "Org") for role in ("hub", "party"))
    assert "nvflare.private.fed.app.server.server_train" in hub
    assert "uid=shop" in party
    assert all("secure_train=true" in line for line in (hub, party))


def test_the_package_imports_where_nvflare_is_missing() -> None:
    code = (
        "import sys; sys.modules['nvflare'] = None\n"
        "import protoevfl.federation.engines.nvflare as n, protoevfl.deploy.site as s\n"
        "assert n.publish(len) is len\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_marks_are_those_nvflare_looks_for() -> None:
    pytest.importorskip("nvflare")
    from nvflare.collab.api.decorators import get_object_main_funcs, get_object_publish_interface

    from protoevfl.deploy.site import Hub, Site

    assert [name for name, _ in get_object_main_funcs(Hub("bank"))] == ["main"]
    spec = json.dumps({"run": "r", "parties": ["bank", "shop"]})
    assert set(get_object_publish_interface(Site(spec)).to_dict()) == {"answer", "lead"}


def test_unknown_names_are_still_errors() -> None:
    with pytest.raises(AttributeError):
        nvflare.nothing  # noqa: B018
