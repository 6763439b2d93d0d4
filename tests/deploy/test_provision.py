"""project.toml and the kits made of it: every mistake has its line; what is renewed, added and kept
the second time."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from protoevfl.deploy import kit, provision
from protoevfl.deploy.own_file import PartyFileConfig
from protoevfl.deploy.provision import Project, read_project
from protoevfl.errors import UserError

PROJECT = Project(
    "credit", "bank", "localhost", 18003, "Hub & Sons", {"shop": "Shop", "bank": "Bank"}
)
PARTIES = "[party.bank]\n[party.shop]\n"
HUB = '[hub]\nhost = "hub.example.com"\n'
TOP = 'name = "credit"\nactive = "bank"\n'


def read(tmp_path: Path, text: str) -> Project:
    (tmp_path / "project.toml").write_text(text)
    return read_project(tmp_path / "project.toml")


# ------------------------------------------------------------ project.toml


def test_what_a_project_does_not_say_has_a_default(tmp_path: Path) -> None:
    found = read(tmp_path, TOP + HUB + PARTIES)
    assert found == Project(
        "credit", "bank", "hub.example.com", 8002, "hub", {"bank": "bank", "shop": "shop"}, 360
    )


def test_the_active_party_comes_first_wherever_it_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, TOP + HUB + "[party.shop]\n[party.tele]\n[party.bank]\n")
    assert found.order == ("bank", "shop", "tele")
    assert found.admin == "lead@bank.local"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name = ", "is not valid TOML"),
        (TOP + HUB + PARTIES + "[certs]\n", "has no key 'certs'; did you mean 'certificates'"),
        (TOP + HUB, "needs the key 'party'"),
        (TOP + PARTIES, "needs the key 'hub'"),
        (TOP + "[hub]\n" + PARTIES, r"\[hub\] needs the key 'host'"),
        ('name = "credit"\n' + HUB + PARTIES, "needs the key 'active'"),
        ('active = "bank"\n' + HUB + PARTIES, "needs the key 'name'"),
        (TOP + 'hub = "localhost"\n' + PARTIES, "hub must be a table"),
        (TOP + 'party = ["bank", "shop"]\n' + HUB, "party must be a table"),
        (TOP + HUB + '[party]\nbank = "Bank"\nshop = "Shop"\n', r"\[party\]: bank must be a table"),
        (TOP + "certificates = 30\n" + HUB + PARTIES, "certificates must be a table"),
        (
            TOP.replace("credit", "credit 1") + HUB + PARTIES,
            "name must be letters, digits and dashes, not 'credit 1'",
        ),
        (TOP + HUB + PARTIES + '[party."../tele"]\n', "use letters, digits and dashes"),
        (TOP + HUB + "[party.bank]\n", "name at least two parties"),
        (
            TOP.replace("bank", "bnak") + HUB + PARTIES,
            "the active party 'bnak' is not among the parties",
        ),
        (
            TOP + HUB + PARTIES + "[party.hub]\n",
            "hub, authority, server, owner, .* are not party names",
        ),
        (
            TOP + HUB + PARTIES + "[party.authority]\n",
            "hub, authority, server, owner, .* are not party names",
        ),
        (TOP + HUB + "port = 65536\n" + PARTIES, "port must be a whole number from 1 to 65535"),
        (TOP + HUB + 'port = "8002"\n' + PARTIES, "port must be a whole number from 1 to 65535"),
        (TOP + HUB + "port = true\n" + PARTIES, "port must be a whole number from 1 to 65535"),
        (TOP + HUB + PARTIES + "[certificates]\ndays = 0\n", "days must be a whole number from 1"),
        (
            TOP + HUB + PARTIES + "[certificates]\ndays = 1.5\n",
            "days must be a whole number from 1",
        ),
    ],
)
def test_every_mistake_is_one_line_that_names_the_file(
    tmp_path: Path, text: str, word: str
) -> None:
    with pytest.raises(UserError, match=rf"project\.toml.*{word}") as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_project_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*project\.toml: No such file"):
        read_project(tmp_path / "project.toml")


def test_names_of_organisations_may_hold_anything() -> None:
    assert provision._org("Müller & Söhne, Ltd.") == "M_ller___S_hne__Ltd_"
    assert provision._org("") == "org"


# ------------------------------------------------------------ the kits


@dataclass
class Twice:
    """The same project provisioned, and what was on the disk in between."""

    folder: Path
    kits: dict[str, Path]

    def signed(self) -> dict[str, bytes]:
        """{file: content} of the certificates and keys of all kits."""
        found = [p for suffix in ("crt", "key", "pem") for p in self.folder.rglob(f"*.{suffix}")]
        return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in found}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Twice:
    folder = tmp_path_factory.mktemp("kits")
    return Twice(folder, provision.provision(PROJECT, folder))


@pytest.fixture
def copy(first: Twice, tmp_path: Path) -> Twice:
    """The kits again, to be changed."""
    shutil.copytree(first.folder, tmp_path / "kits")
    return Twice(tmp_path / "kits", {name: tmp_path / "kits" / name for name in first.kits})


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """Folders of those certificates and keys that are new or others."""
    names = {name for name in after if before.get(name) != after[name]}
    return {"admin" if name.startswith("bank/admin") else name.split("/")[0] for name in names}


def test_the_hub_knows_the_parties_and_what_it_dials(first: Twice) -> None:
    assert json.loads((first.kits["hub"] / "parties.json").read_text()) == ["bank", "shop"]
    assert not (first.kits["hub"] / "party.toml").exists()
    assert not (first.kits["hub"] / "policy.toml").exists()
    for name, folder in first.kits.items():
        identity = kit.open_kit(folder).identity
        assert (identity.role, identity.hub) == (
            "hub" if name == "hub" else "party",
            "localhost:18003",
        )
        assert identity.admin == ("lead@bank.local" if name == "bank" else "")


def test_each_party_gets_a_file_to_fill_in_that_only_the_owner_reads(first: Twice) -> None:
    for name in ("bank", "shop"):
        facts = kit.open_kit(first.kits[name]).party_config()
        assert set(facts) <= set(PartyFileConfig.__dataclass_fields__)
        assert facts["file"] == f"{name}.parquet"
        assert ("label" in facts) == (name == "bank")
        for own in ("party.toml", "policy.toml"):
            assert (first.kits[name] / own).stat().st_mode & 0o077 == 0


def test_no_kit_holds_a_script_or_a_sample(first: Twice) -> None:
    names = [
        p.name
        for folder in first.kits.values()
        for part in ("startup", "local")
        for p in (folder / part).iterdir()
    ]
    assert [n for n in names if n.endswith((".sh", ".sample"))] == []
    assert {n for n in names if n.endswith(".default")} == {"log_config.json.default"}
    assert [path for folder in first.kits.values() for path in folder.rglob("*.sh")] == []


def test_the_hub_keeps_jobs_in_its_kit_and_checks_its_list(first: Twice) -> None:
    facts: dict[str, Any] = json.loads((first.kits["hub"] / "local" / kit.HUB_TEMPLATE).read_text())
    parts = {part["id"]: part for part in facts["components"]}
    assert parts["job_manager"]["args"]["uri_root"] == "{kit}/jobs"
    assert parts["party_list"]["path"] == "protoevfl.federation.engines.nvflare.PartyList"
    assert "log_receiver" not in parts
    assert facts["class_list_enforcement_mode"] == "enforce"


def test_the_second_time_nothing_changes_and_what_a_party_wrote_stays(copy: Twice) -> None:
    mine = {
        "party.toml": "# mine\n",
        "policy.toml": 'active = "bank"\n',
        "runs/one/status.json": "{}",
    }
    for name, text in mine.items():
        (copy.kits["bank"] / name).parent.mkdir(parents=True, exist_ok=True)
        (copy.kits["bank"] / name).write_text(text)
    before = copy.signed()
    assert provision.provision(PROJECT, copy.folder) == copy.kits
    assert copy.signed() == before
    assert {name: (copy.kits["bank"] / name).read_text() for name in mine} == mine


def test_a_new_party_comes_under_the_same_authority_and_everybody_hears_of_it(copy: Twice) -> None:
    before = copy.signed()
    made = provision.provision(
        replace(PROJECT, parties={**PROJECT.parties, "tele": "Tele"}), copy.folder
    )
    assert changed(before, copy.signed()) == {"tele"}
    assert len({(folder / "startup" / "rootCA.pem").read_bytes() for folder in made.values()}) == 1
    for folder in made.values():
        kit.check(kit.open_kit(folder))
        assert kit.open_kit(folder).identity.parties == ("bank", "shop", "tele")
    assert "tele" in json.loads((made["hub"] / "parties.json").read_text())


def test_the_active_party_is_renewed_with_its_right_to_submit_and_the_hub_alone(
    copy: Twice,
) -> None:
    before = copy.signed()
    provision.provision(PROJECT, copy.folder, renew=["bank"])
    after = copy.signed()
    assert changed(before, after) == {"bank", "admin"}
    provision.provision(PROJECT, copy.folder, renew=["hub"])
    assert changed(after, copy.signed()) == {"hub"}
    for folder in copy.kits.values():
        kit.check(kit.open_kit(folder))


def test_renewing_a_stranger_renews_nobody(copy: Twice) -> None:
    state = copy.folder / "authority" / "credit" / "state" / "cert.json"
    before = copy.signed(), state.read_bytes()
    with pytest.raises(UserError, match="cannot renew 'tele': not a participant of this project"):
        provision.provision(PROJECT, copy.folder, renew=["shop", "tele"])
    assert (copy.signed(), state.read_bytes()) == before
