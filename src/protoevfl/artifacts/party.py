"""What a run keeps of one party, in a folder that holds nothing of anybody else.

    RUN/<party>/   party.json  encoder.json  model.safetensors  [alignment.json  aligned_rows.i64]

A stored party turns its own new rows into the embeddings that the label owner asks for; that is all
it can do.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protoevfl.artifacts import integrity
from protoevfl.core import random as rnd
from protoevfl.federation.party import Party
from protoevfl.messages import Embed, values
from protoevfl.method import Method
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import PartyGuard, PrivacySettings, settings_from
from protoevfl.rows.alignment import Alignment
from protoevfl.rows.encoders import Encoder, encoder_from, encoder_state, row_shape
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.ids import IdRules
from protoevfl.rows.table import PartyTable
from protoevfl.settings.method_choice import method_facts, method_from

ROWS = 65_536  # embedded at a time
FORMAT = "protoevfl-party"


@dataclass(frozen=True)
class StoredParty:
    name: str
    index: int  # among the parties of the run; 0 holds the labels
    id_columns: tuple[str, ...]
    id_rules: IdRules
    on_bad_ids: str
    encoder: Encoder
    method: Method
    privacy: PrivacySettings
    dtype: str  # of its rows: "float32" or "uint8"
    state: dict[str, Tensor]  # network and memory
    alignment: Alignment | None = None
    facts: dict[str, Any] | None = None  # rows and columns, for `inspect`

    def embed(self, batches: Iterable[Tensor], device: str = "cpu") -> Tensor:
        """Embeddings (n, d) of encoded rows (b, ...), as they may leave the party."""
        party, guard = self.party(device), self.guard()
        parts = []
        for rows in chain(
            [party.rows.pool[0]], *(torch.split(batch, ROWS) for batch in batches)
        ):  # no rows give (0, d)
            party.rows.query = rows.to(party.rows.pool.dtype)[None].to(device)
            reply = party.handle(Embed("query"))
            parts.append(values(guard.up(reply) if self.index and len(rows) else reply).cpu())
        return torch.cat(parts)

    def party(self, device: str = "cpu") -> Party:
        """The trained party without any row."""
        nothing = torch.zeros((0, *row_shape(self.encoder)), dtype=getattr(torch, self.dtype))
        encoder = self.encoder
        numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
        table = PartyTable(self.name, nothing, nothing, nothing, encoder.spans, numbers)
        party = Party(self.method, table, 0, device)
        party.restore(self.state)
        return party

    def guard(self) -> PartyGuard:
        return PartyGuard(self.privacy, self.index, SeededNoise(rnd.key("prediction", self.index)))

    def save(self, folder: Path) -> None:
        """Write the folder; party.json comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        integrity.write_json(folder / "encoder.json", encoder_state(self.encoder))
        kept = {name: t for name, t in self.state.items() if not name.startswith("optimizer.")}
        integrity.write_tensors(folder / "model.safetensors", kept)
        if self.alignment is not None:
            self.alignment.save(folder)
        facts = {
            "name": self.name,
            "index": self.index,
            "id_columns": list(self.id_columns),
            "id_rules": asdict(self.id_rules),
            "on_bad_ids": self.on_bad_ids,
            "method": method_facts(self.method),
            "privacy": asdict(self.privacy),
            "dtype": self.dtype,
            "facts": self.facts or {},
        }
        integrity.seal(folder, "party.json", FORMAT, facts)

    @classmethod
    def load(cls, folder: Path) -> "StoredParty":
        """Read what `save` wrote; UserError when it is damaged or of another version."""
        facts = integrity.unseal(folder, "party.json", FORMAT)
        with integrity.readable(folder):
            return cls(
                name=facts["name"],
                index=facts["index"],
                id_columns=tuple(facts["id_columns"]),
                id_rules=IdRules(**facts["id_rules"]),
                on_bad_ids=facts["on_bad_ids"],
                encoder=encoder_from(integrity.read_json(folder / "encoder.json")),
                method=method_from(facts["method"]),
                privacy=settings_from(facts["privacy"]),
                dtype=facts["dtype"],
                state=integrity.read_tensors(folder / "model.safetensors"),
                alignment=Alignment.load(folder) if (folder / "alignment.json").is_file() else None,
                facts=facts["facts"],
            )
