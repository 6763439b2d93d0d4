"""The active party's own part of a standing service: its model of a run, its rows of today, and what
it takes to open the run at the other parties."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.deploy import durable, job_file, supervise
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.local import Local
from protoevfl.deploy.own_file import NewRows
from protoevfl.deploy.seal import Keys
from protoevfl.deploy.spec import JobSpec
from protoevfl.deploy.standing_lead import Partner, Send, StandingLead
from protoevfl.deploy.universe import Universe, earlier_segments
from protoevfl.errors import UserError
from protoevfl.rows.ids import collect


def serve_spec(kit: Kit, base: str, cache_s: float = 0.0) -> JobSpec:
    """The specification of serving the training run `base`."""
    if not kit.identity.admin:
        raise UserError(f"a run is served with the kit of the active party, {kit.identity.active}")
    trained = supervise.read_spec(kit, base)
    asked = replace(
        trained,
        run=f"{base}-serve"[:63],
        task="serve",
        base=base,
        rounds=1,
        down=(),
        up=(),
        cache_s=cache_s,
    )
    return job_file.complete(asked)


@dataclass
class StandingActive:
    """One run that is served."""

    kit: Kit
    spec: JobSpec
    send: Send

    def __post_init__(self) -> None:
        self.local = Local(self.kit, self.spec)
        if not self.local.own_data:
            raise UserError("only a run on files can be served; a demo run keeps no model")
        self.owner: StoredOwner = self.local.stored_owner()
        self.party: StoredParty = self.local.stored_party()
        path = self.local.folder / "spec.json"

        durable.write(path, json.dumps(self.spec.to_dict(), indent=1).encode())

    @property
    def base(self) -> str:
        return self.spec.base

    @cached_property
    def digest(self) -> str:
        """Which model this is: a hash of what the run keeps of the label owner."""
        text = (self.local.base_folder / "owner" / "owner.json").read_bytes()
        return hashlib.sha256(text).hexdigest()[:16]

    def source(self) -> NewRows:
        source = self.local.source()
        assert isinstance(source, NewRows)
        return source

    def spelt(self, ids: Sequence[Any]) -> list[str]:
        """Ids of callers in their one spelling; UserError where one is missing."""
        columns = len(self.party.id_columns)
        parts = [[i] for i in ids] if columns == 1 else [list(i) for i in ids]
        if any(len(part) != columns for part in parts):
            raise UserError(f"an id has {columns} parts here")
        found = [collect([[v] for v in part], self.party.id_rules, "the request") for part in parts]
        return [one.values[0] for one in found]

    def partners(self) -> dict[int, Partner]:
        """The other parties, with what is known to be shared with each of them."""
        keys = Keys.of_kit(self.kit.folder, self.kit.name)
        partners = {}
        for number, name in enumerate(self.spec.parties[1:], 1):
            universe = Universe.load(self.local.folder / "universe" / name)
            if not universe.segments:
                for segment, ids in earlier_segments(self.local, name):
                    universe.add(segment, ids.values)
            partners[number] = Partner(
                name, self.spec, keys, self.send, universe, width=self._width(number)
            )
        return partners

    def _width(self, number: int) -> int | None:
        """Numbers per row that a party sent while the run was measured."""
        known = self.owner.test.embeddings.get(number)
        return None if known is None or not known.shape[1] else int(known.shape[1])

    def lead(self, beats: bool = True) -> StandingLead:
        return StandingLead(self.partners(), beats=beats)

    def embed(self, encoded: Tensor) -> Tensor:
        """(n, d) the active party's own embeddings of encoded rows; they leave nobody."""
        return self.party.embed([encoded])
