"""The module that touches NVFlare: jobs carry names and plain values only; nothing else needs the
package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protoevfl.federation.engines import nvflare


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
