"""Three companies with a finished run, whose standing services answer in this process."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from protoevfl.deploy.kit import Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.standing_active import StandingActive, serve_spec
from protoevfl.deploy.standing_lead import StandingLead
from protoevfl.deploy.standing_worker import StandingParties
from protoevfl.federation.engines.nvflare import CallError
from tests.deploy.test_site_job import Companies, train, write_files


def never(name: str, frame: bytes) -> bytes:
    """The wire as it should be."""
    return frame


@dataclass
class Standing:
    """`meet` sees every frame on its way to a party and may change it or raise."""

    folder: Path
    meet: Callable[[str, bytes], bytes] = never
    back: Callable[[str, bytes], bytes] = never  # the same for answers
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    parties: dict[str, StandingParties] = field(default_factory=dict)
    cache_s: float = 0.0

    def kit(self, name: str) -> Kit:
        kit = Companies.kit(self, name)  # type: ignore[arg-type]
        return replace(kit, identity=replace(kit.identity, admin="lead" if name == "bank" else ""))

    def party(self, name: str) -> StandingParties:
        if name not in self.parties:
            self.parties[name] = StandingParties(self.kit(name))
        return self.parties[name]

    def send(self, name: str, frame: bytes, seconds: float) -> bytes:
        self.sent.append((name, frame))
        return self.back(name, self.party(name).answer("bank", self.meet(name, frame)))

    def cut(self, name: str) -> None:
        """From now on a party does not answer."""

        def meet(to: str, frame: bytes) -> bytes:
            if to == name:
                raise CallError("the line is cut")
            return frame

        self.meet = meet

    @property
    def spec(self) -> JobSpec:
        return serve_spec(self.kit("bank"), "train", self.cache_s)

    def active(self) -> StandingActive:
        return StandingActive(self.kit("bank"), self.spec, self.send)

    def lead(self) -> StandingLead:
        """Every party greeted once, nothing in the background."""
        lead = self.active().lead(beats=False)
        for partner in lead.partners.values():
            partner.beat()
        return lead

    def rules(self, name: str, **changes: object) -> None:
        """Change [serve] of a party's policy."""
        path = self.folder / name / "policy.toml"
        lines = path.read_text().splitlines()
        for key, value in changes.items():
            at = next(k for k, line in enumerate(lines) if line.startswith(f"{key} = "))
            lines[at] = f"{key} = {json.dumps(value)}"
        path.write_text("\n".join(lines) + "\n")


@cache
def trained() -> Path:
    """The companies' folder after training, once per process."""
    folder = Path(tempfile.mkdtemp(prefix="protoevfl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return train(write_files(folder)).folder


def standing(folder: Path, cache_s: float = 0.0) -> Standing:
    """A copy of the companies whose partners allow serving; rows.csv is what is served."""
    shutil.copytree(trained(), folder / "kits")
    found = Standing(folder / "kits", cache_s=cache_s)
    for name in ("bank", "shop", "tele"):
        found.rules(name, allow=True)
        party = folder / "kits" / name / "party.toml"
        party.write_text('serve_file = "rows.csv"\n' + party.read_text())
    return found
