"""What a site does with its own files: the party it runs, and, at the active party, the method's owner side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.deploy import probe
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.messages import decode, encode
from protoevfl.method import Method
from protoevfl.owner import LabelOwner
from protoevfl.party import Party
from protoevfl.presets import build


@dataclass
class LocalParty:
    """A `Party` that speaks bytes; what comes in is checked before it is used."""

    party: Party
    dims: Mapping[str, int]
    max_bytes: int

    def handle_bytes(self, request: bytes) -> bytes:
        return encode(self.party.handle(decode(request, self.dims, self.max_bytes)))

    def state(self) -> dict[str, Tensor]:
        return self.party.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self.party.restore(state)


def make_method(kit: Kit, spec: JobSpec) -> Method:
    """The method as the job's specification says, on this site's kind of data."""
    if spec.method == probe.Probe.name:
        return probe.make(spec.settings)
    config = kit.party_config()
    dataset = str(config["demo"]["dataset"]) if "demo" in config else "table"
    return build(spec.method, spec.preset, dataset, spec.settings)


def make_party(kit: Kit, spec: JobSpec) -> LocalParty:
    """This site's party, on the rows its own party.toml names."""
    index = spec.parties.index(kit.name)
    table = probe.table(kit.name) if spec.method == probe.Probe.name else _demo(kit, spec).tables[index]
    party = Party(make_method(kit, spec), table, rnd.key(spec.seed, "party", index))
    return LocalParty(party, {"classes": spec.classes}, spec.max_bytes)


def make_owner(kit: Kit, spec: JobSpec) -> tuple[Method, LabelOwner, int]:
    """The active party's side: (method, owner, number of rows to be predicted)."""
    if spec.method == probe.Probe.name:
        return make_method(kit, spec), probe.owner(len(spec.parties), spec.seed), 1
    world = _demo(kit, spec)
    return make_method(kit, spec), world.owner, len(world.labels.query)


def _demo(kit: Kit, spec: JobSpec) -> Any:
    """A public data set cut into parties, for trying a deployment out: every site takes its own part only."""
    from protoevfl.run import RunConfig, prepare

    config = kit.party_config()
    if "demo" not in config:
        raise UserError("own files in a deployment are not read yet; use [demo] in party.toml")  # TODO
    facts = {**config["demo"], "parties": len(spec.parties), "method": spec.method, "preset": spec.preset}
    try:
        return prepare(RunConfig(**facts), spec.seed, "cpu")
    except TypeError as error:
        raise UserError(f"party.toml: [demo] {error}") from None
