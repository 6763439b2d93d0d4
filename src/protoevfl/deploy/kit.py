"""A kit: the folder that makes one machine the hub or a party of a project, and what this party
adds to it.

KIT/kit.json        who this is                          signed by the project's authority, checked at start
KIT/startup, local  certificates and NVFlare settings    signed too
KIT/party.toml      this party's own data                edited by the party, never leaves
KIT/policy.toml     which jobs it accepts                edited by the party, never leaves
KIT/secret.key      starts all that is random here       drawn by the party, never leaves (secret.py)
KIT/admin           the right to submit jobs             active party only
KIT/runs/RUN        the run directory (artifacts/run_dir.py), checkpoints, audit log, predictions
"""

import base64
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protoevfl.errors import UserError
from protoevfl.validation import read_toml

RUN, RUN_WORDS = r"[a-z0-9][a-z0-9-]{0,62}", "small letters, digits and dashes"
SIGNED = ("kit.json", "startup", "local", "admin/startup", "admin/local")
# NVFlare wants absolute paths; `settle` fills in where the hub's kit lies
HUB_TEMPLATE = "hub-resources.json"
FILLED_IN = "local/resources.json"


@dataclass(frozen=True)
class Identity:
    """kit.json."""

    project: str
    name: str
    role: str  # "hub" or "party"
    org: str
    hub: str  # host:port
    active: str
    parties: tuple[str, ...]
    admin: str = ""  # user name for submitting jobs


@dataclass(frozen=True)
class Kit:
    """An opened kit."""

    folder: Path
    identity: Identity

    @property
    def name(self) -> str:
        return self.identity.name

    def run_folder(self, run: str) -> Path:
        """Where a run's files lie; a name that leads out of the kit is none."""
        if re.fullmatch(RUN, run) is None:
            raise UserError(f"{run!r} is not the name of a run: use {RUN_WORDS}")
        return self.folder / "runs" / run

    def party_config(self) -> dict[str, Any]:
        """What party.toml says."""
        return read_toml(self.folder / "party.toml")


def open_kit(folder: Path) -> Kit:
    """The kit in `folder`, or an error that says what is missing."""
    path = folder / "kit.json"
    try:
        facts = json.loads(path.read_text())
        identity = Identity(**{**facts, "parties": tuple(facts["parties"])})
    except OSError:
        raise UserError(f"{folder} is not a kit: it has no readable kit.json") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path} is damaged; ask for the kit again") from None
    return Kit(folder.resolve(), identity)


def write_identity(folder: Path, identity: Identity) -> None:
    (folder / "kit.json").write_text(json.dumps(asdict(identity), indent=1) + "\n")


def settle(kit: Kit) -> None:
    """Tell NVFlare where the hub's kit lies on this machine."""
    template = kit.folder / "local" / HUB_TEMPLATE
    if template.exists():
        path = kit.folder / FILLED_IN
        try:
            path.write_text(template.read_text().replace("{kit}", str(kit.folder)))
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror}; the hub needs a kit it can write to"
            ) from None


# ---------------------------------------------------------------- the authority's signature


def sign(folder: Path, root_key: Any) -> None:
    """Writes manifest.json: a checksum of every file the party must not change, signed by the
    project's root key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    listing = json.dumps(_listing(folder), sort_keys=True)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
    signature = root_key.sign(listing.encode(), pss, hashes.SHA256())
    facts = {"files": listing, "signature": base64.b64encode(signature).decode()}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")


def check(kit: Kit) -> None:
    """Raises unless the kit is as the authority signed it and its certificates are valid today."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    root = _certificate(kit.folder / "startup" / "rootCA.pem")
    try:
        facts = json.loads((kit.folder / "manifest.json").read_text())
        listing, signature = str(facts["files"]), base64.b64decode(facts["signature"])
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
        root.public_key().verify(signature, listing.encode(), pss, hashes.SHA256())
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{kit.folder} has no usable manifest.json; ask for the kit again"
        ) from None
    except InvalidSignature:
        raise UserError(
            f"{kit.folder}: manifest.json is not signed by this project's authority"
        ) from None
    expected, present = json.loads(listing), _listing(kit.folder)
    changed = sorted(
        n for n in expected.keys() | present.keys() if expected.get(n) != present.get(n)
    )
    if changed:
        raise UserError(
            f"{kit.folder}: {changed[0]} was changed after signing; ask for the kit again"
        )
    for name in ("rootCA.pem", "server.crt" if kit.identity.role == "hub" else "client.crt"):
        _check_dates(kit, _certificate(kit.folder / "startup" / name), name)


def expiry(kit: Kit) -> datetime:
    """When the kit's first certificate runs out."""
    names = ("rootCA.pem", "server.crt" if kit.identity.role == "hub" else "client.crt")
    ends: list[datetime] = [
        _certificate(kit.folder / "startup" / n).not_valid_after_utc for n in names
    ]
    return min(ends)


def _check_dates(kit: Kit, certificate: Any, name: str) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        day = certificate.not_valid_after_utc.date()
        raise UserError(
            f"certificate {name} of {kit.name} expired on {day}; ask for a new kit (`provision "
            "--renew`)"
        )
    if now < certificate.not_valid_before_utc:
        raise UserError(
            f"certificate {name} of {kit.name} is not valid yet; is this machine's clock right?"
        )


def _certificate(path: Path) -> Any:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged; ask for the kit again") from None


def _listing(folder: Path) -> dict[str, str]:
    """{file: SHA-256} of what is signed; private keys are listed too, by their checksum."""
    files = [folder / name for name in SIGNED if (folder / name).is_file()]
    for name in SIGNED:
        files += [p for p in sorted((folder / name).rglob("*")) if p.is_file()]
    if (folder / "local" / HUB_TEMPLATE).exists():
        files = [p for p in files if p != folder / FILLED_IN]
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }
