"""From project.toml to kits: certificates, settings that forbid code in jobs, and each party's
files to fill in."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from protoevfl.deploy import kit, policy
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare
from protoevfl.rules import TEXT, Between, Matching
from protoevfl.validation import checked, read_toml

CLASSES = (*nvflare.RUNTIME, "protoevfl.deploy.site.Hub", "protoevfl.deploy.site.Site")
MAX_FRAME = (256 << 20) + (1 << 20)
_NAME = r"[A-Za-z][A-Za-z0-9-]{0,40}"
RESERVED = (
    "hub",
    "authority",
    "server",
    "owner",
    "draft",
    "alignment",
    "checkpoints",
    "journal",
)  # folders, certificates
PROJECT = """\
# One project between companies. `protoevfl deploy provision project.toml` turns it into one kit a participant.
name = "credit"
active = "bank"                 # the party that has the labels and leads

[hub]                           # relays encrypted messages; any of the companies or a third one can run it
host = "hub.example.com"        # the name the parties dial; it goes into the certificate
port = 8002                     # the only port that must be reachable
org = "Hub"

[party.bank]
org = "Bank"

[party.shop]
org = "Shop"

[certificates]
days = 360
"""
PARTY = """\
# This party's own data. Nothing in this file is ever sent anywhere.
file = "{name}.parquet"         # CSV or Parquet, relative to this folder
id = "customer_id"              # column of the shared id
# predict_file = "new.parquet"  # new rows, for `protoevfl deploy predict`
# exclude = ["name"]            # columns that are not used; also features, categorical, numeric, casefold, minimum
"""
ACTIVE = """\
label = "label"                 # column of the label, active party only; rows without a label are predicted
# test = 0.2                    # share of the rows of all parties kept aside to measure on
"""


@dataclass(frozen=True)
class HubEntry:
    host: TEXT  # the name or address the parties dial; it goes into the certificate
    port: Annotated[int, Between(1, 65535)] = 8002  # the only port that must be reachable
    org: str = "hub"  # who runs it


@dataclass(frozen=True)
class PartyEntry:
    org: str = ""  # the organisation's name; left out: the party's


@dataclass(frozen=True)
class Certificates:
    days: Annotated[int, Between(1)] = 360  # how long certificates are valid


@dataclass(frozen=True, kw_only=True)
class ProjectFile:
    """project.toml."""

    name: Annotated[str, Matching(f"^{_NAME}$", "letters, digits and dashes")]  # of the project
    active: str  # the party that has the labels and leads
    hub: HubEntry
    party: dict[str, PartyEntry]  # [party.NAME] per party
    certificates: Certificates = field(default_factory=Certificates)

    def __post_init__(self) -> None:
        for name in self.party:
            if not re.fullmatch(_NAME, name):
                raise UserError(f"party name {name!r}: use letters, digits and dashes")
            if name in RESERVED:
                raise UserError(f"{', '.join(RESERVED)} are not party names")
        if len(self.party) < 2:
            raise UserError("name at least two parties: [party.NAME]")
        if self.active not in self.party:
            raise UserError(f"the active party {self.active!r} is not among the parties")


@dataclass(frozen=True)
class Project:
    """What project.toml says."""

    name: str
    active: str
    host: str
    port: int
    hub_org: str
    parties: dict[str, str]  # name -> organisation
    days: int = 360

    @property
    def order(self) -> tuple[str, ...]:
        """The active party first."""
        return (self.active, *(n for n in self.parties if n != self.active))

    @property
    def admin(self) -> str:
        return f"lead@{self.active}.local"


def read_project(path: Path) -> Project:
    """project.toml, or one line that says what is wrong with it."""
    file = checked(ProjectFile, read_toml(path), str(path))
    parties = {name: entry.org or name for name, entry in file.party.items()}
    hub = file.hub
    return Project(
        file.name, file.active, hub.host, hub.port, hub.org, parties, file.certificates.days
    )


def provision(project: Project, out: Path, renew: Sequence[str] = ()) -> dict[str, Path]:
    """{participant: kit folder} under `out`. `out`/authority holds the root key: keep it offline.

    Running it again adds new parties under the same authority; `renew` gives the named ones new
    keys and certificates. A kit that exists keeps its party.toml, policy.toml and runs.
    """
    authority = out / "authority"
    authority.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority.chmod(0o700)
    _forget(authority / project.name / "state" / "cert.json", project, renew)
    sites = {n: _org(o) for n, o in project.parties.items()}
    hub = {"name": project.host, "org": _org(project.hub_org), "port": project.port}
    folders = nvflare.make_kits(
        authority, project.name, hub, sites, {project.admin: sites[project.active]}, project.days
    )
    root_key = _root_key(authority / project.name / "state" / "cert.json")
    kits = {"hub": _kit(project, "hub", folders[project.host], out / "hub")}
    for name in project.parties:
        kits[name] = _kit(project, name, folders[name], out / name)
    _replace(folders[project.admin], kits[project.active] / "admin", ("startup", "local"))
    _drop_scripts(kits[project.active] / "admin")
    for name, folder in kits.items():
        for path in folder.rglob("*.key"):
            path.chmod(0o600)
        _settings(folder, name)
        kit.sign(folder, root_key)
    shutil.rmtree(folders[project.host].parent)  # copies of everyone's private keys
    return kits


def _kit(project: Project, name: str, source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    _replace(source, folder, ("startup", "local"))
    _drop_scripts(folder)
    role, org = ("hub", project.hub_org) if name == "hub" else ("party", project.parties[name])
    admin = project.admin if name == project.active else ""
    address = f"{project.host}:{project.port}"
    identity = kit.Identity(
        project.name, name, role, _org(org), address, project.active, project.order, admin
    )
    kit.write_identity(folder, identity)
    if role == "hub":
        (folder / "parties.json").write_text(json.dumps(sorted(project.parties)) + "\n")
        return folder
    _write_new(
        folder / "party.toml", PARTY.format(name=name) + (ACTIVE if name == project.active else "")
    )
    _write_new(folder / "policy.toml", policy.TEMPLATE.format(active=project.active))
    return folder


def _settings(folder: Path, name: str) -> None:
    """NVFlare's local settings: a closed list of classes, no code in jobs, no logs or files to the
    hub, size limits."""
    local = folder / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = list(CLASSES)
    resources["class_list_enforcement_mode"] = "enforce"
    # they would send a party's error log to the hub
    unwanted = ("site_log_streamer", "log_receiver")
    resources["components"] = [c for c in resources["components"] if c["id"] not in unwanted]
    if name == "hub":
        _hub_settings(resources)
    else:
        resources["allow_log_streaming"] = False
        for component in resources["components"]:
            if component["id"] == "process_launcher":
                component["path"] = "protoevfl.federation.engines.nvflare_launch.Launcher"
                component["args"] = {"ready": "protoevfl.deploy.spare"}
        place = "protoevfl.federation.engines.nvflare.Place"
        resources["components"].append({"id": "place", "path": place, "args": {}})
        line = "protoevfl.federation.engines.nvflare_line.Line"
        opens = {"opens": "protoevfl.deploy.relay:open_relay"}
        resources["components"].append({"id": "line", "path": line, "args": opens})
    target = kit.HUB_TEMPLATE if name == "hub" else "resources.json"
    (local / target).write_text(json.dumps(resources, indent=1))
    rights = {
        "submit_job": "any",
        "manage_job": "n:submitter",
        "view": "any",
        "byoc": "none",
        "clone_job": "none",
        "download_job": "none",
        "operate": "none",
        "shell_commands": "none",
    }
    (local / "authorization.json").write_text(
        json.dumps({"format_version": "1.0", "permissions": {"lead": rights}}, indent=1)
    )
    limits = {"streaming_max_blob_size": MAX_FRAME, "allow_adhoc_conns": False}
    (local / "comm_config.json").write_text(json.dumps(limits, indent=1))
    for sample in (*local.glob("*.default"), *local.glob("*.sample")):
        if sample.name not in ("log_config.json.default",):
            sample.unlink()


def _hub_settings(resources: dict[str, Any]) -> None:
    """The hub keeps its jobs in its kit's folder (filled in at start) and checks the party list."""
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = "{kit}/jobs"
        if component["id"] == "job_scheduler":  # a party may be back at any moment
            component["args"] |= {"min_schedule_interval": 2.0, "max_schedule_interval": 5.0}
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = "{kit}/snapshots"
    resources["components"].append(
        {"id": "party_list", "path": "protoevfl.federation.engines.nvflare.PartyList", "args": {}}
    )


def _replace(source: Path, folder: Path, parts: Sequence[str]) -> None:
    for part in parts:
        shutil.rmtree(folder / part, ignore_errors=True)
        shutil.copytree(source / part, folder / part)


def _drop_scripts(folder: Path) -> None:
    for script in folder.glob("startup/*.sh"):
        script.unlink()  # users type our commands only


def _write_new(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text)
        path.chmod(0o600)


def _forget(state: Path, project: Project, renew: Sequence[str]) -> None:
    """Drop certificates from the authority's memory, so that new ones are made."""
    unknown = sorted(set(renew) - {"hub", *project.parties})
    if unknown:
        raise UserError(f"cannot renew {unknown[0]!r}: not a participant of this project")
    if not renew or not state.exists():
        return
    facts = json.loads(state.read_text())
    for name in renew:
        facts.pop(project.host if name == "hub" else name, None)
        if name == project.active:
            facts.pop(project.admin, None)
    state.write_text(json.dumps(facts))


def _root_key(state: Path) -> Any:
    from cryptography.hazmat.primitives import serialization

    state.chmod(0o600)
    text: str = json.loads(state.read_text())["root_pri_key"]
    return serialization.load_pem_private_key(text.encode(), password=None)


def _org(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text) or "org"
