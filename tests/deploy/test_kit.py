"""Kits: made, signed, checked, renewed; nothing secret in the wrong one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from protoevfl.deploy import kit, provision
from protoevfl.deploy.policy import Policy
from protoevfl.errors import UserError

PROJECT = provision.Project(
    "credit", "bank", "localhost", 18002, "Hub", {"bank": "Bank", "shop": "Shop & Co"}
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return provision.provision(PROJECT, tmp_path_factory.mktemp("kits"))


def test_every_participant_gets_a_kit_that_checks(made: dict[str, Path]) -> None:
    assert set(made) == {"hub", "bank", "shop"}
    for name, folder in made.items():
        opened = kit.open_kit(folder)
        kit.check(opened)
        assert opened.name == name
        assert opened.identity.parties == ("bank", "shop")
        assert folder.stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*.key"))


def test_only_the_active_party_may_submit_and_no_kit_holds_a_foreign_key(
    made: dict[str, Path],
) -> None:
    assert (made["bank"] / "admin").is_dir()
    assert not (made["shop"] / "admin").exists()
    keys = [path.read_bytes() for folder in made.values() for path in folder.rglob("*.key")]
    assert len(keys) == len(set(keys)) == 4  # hub, bank, bank's administrator, shop
    authority = made["hub"].parent / "authority"
    assert [p.name for p in authority.rglob("*") if p.is_file()] == ["cert.json"]
    assert authority.stat().st_mode & 0o077 == 0


def test_the_settings_forbid_code_and_keep_logs_at_home(made: dict[str, Path]) -> None:
    for name in ("bank", "shop"):
        local = made[name] / "local"
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_allow_list"] == list(provision.CLASSES)
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["allow_log_streaming"] is False
        assert "site_log_streamer" not in {c["id"] for c in resources["components"]}
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert set(rights) == {"lead"}
        assert rights["lead"]["byoc"] == rights["lead"]["shell_commands"] == "none"
        assert json.loads((local / "comm_config.json").read_text())["allow_adhoc_conns"] is False
        Policy.read(made[name] / "policy.toml")


@pytest.mark.parametrize(
    "path", ["kit.json", "local/resources.json", "startup/client.crt", "local/extra.json"]
)
def test_a_kit_changed_after_signing_is_refused(
    tmp_path: Path, made: dict[str, Path], path: str
) -> None:
    import shutil

    folder = shutil.copytree(made["shop"], tmp_path / "shop")
    before = (folder / path).read_text() if (folder / path).exists() else ""
    (folder / path).write_text(before.replace("shop", "tele") + " ")
    with pytest.raises(UserError, match="changed after signing"):
        kit.check(kit.open_kit(folder))


def test_a_manifest_of_another_authority_is_refused(tmp_path: Path, made: dict[str, Path]) -> None:
    import shutil

    other = provision.provision(PROJECT, tmp_path / "other")
    folder = shutil.copytree(made["shop"], tmp_path / "shop")
    shutil.copy(other["shop"] / "manifest.json", folder)
    with pytest.raises(UserError, match="not signed by this project's authority"):
        kit.check(kit.open_kit(folder))


def test_provisioning_again_keeps_what_is_there_and_renews_what_is_named(tmp_path: Path) -> None:
    first = provision.provision(PROJECT, tmp_path)
    before = {n: (first[n] / "startup" / "client.crt").read_bytes() for n in ("bank", "shop")}
    (first["shop"] / "party.toml").write_text("# mine\n")
    grown = replace(PROJECT, parties={**PROJECT.parties, "tele": "Tele"})
    second = provision.provision(grown, tmp_path, renew=["shop"])
    assert (second["bank"] / "startup" / "client.crt").read_bytes() == before["bank"]
    assert (second["shop"] / "startup" / "client.crt").read_bytes() != before["shop"]
    assert (second["shop"] / "party.toml").read_text() == "# mine\n"
    for folder in second.values():
        kit.check(kit.open_kit(folder))
    with pytest.raises(UserError, match="cannot renew"):
        provision.provision(grown, tmp_path, renew=["nobody"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ('active = "bank"', "not among"),
        ("[hub]", "has no key 'hubb'"),
        ("port = 8002", "port"),
        ('name = "credit"', "name"),
    ],
)
def test_mistakes_in_project_toml_are_one_line(tmp_path: Path, change: str, word: str) -> None:
    wrong = {
        "active": 'active = "bnak"',
        "[hub]": "[hubb]",
        "port": "port = 0",
        "name": 'name = "a b"',
    }
    text = provision.PROJECT.replace(change, wrong[change.split(" ")[0]])
    (tmp_path / "project.toml").write_text(text)
    with pytest.raises(UserError, match=f"project.toml.*{word}"):
        provision.read_project(tmp_path / "project.toml")


def test_the_template_is_a_project(tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text(provision.PROJECT)
    project = provision.read_project(tmp_path / "project.toml")
    assert project.order == ("bank", "shop")


def test_a_folder_that_is_no_kit(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a kit"):
        kit.open_kit(tmp_path)
    (tmp_path / "kit.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        kit.open_kit(tmp_path)
