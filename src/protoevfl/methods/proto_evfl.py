"""Proto-EVFL: class prototypes go down, embeddings and class rates come up, no gradient ever
crosses.

    round 0   every party trains its extractor on its own rows (no bytes) and uploads embeddings
              of the aligned rows
    round t   owner -> party m: prototypes mu^m and the global prior
              party m: prior by EM over its pool, mixed with the global one; tau epochs of the
              dual transport cost on its own rows, self-supervision kept on; uploads new
              embeddings and its prior
              owner: prototypes and global prior updated
    unseen    a party describes the part of its pool that no aligned row covers (a mixture, no rows)
    at last   inner layers of the aligned rows cross once, if they are sent at all; the owner
              trains adaptors, gate and head, with synthetic rows for unseen and rare classes

`rounds.count = 0` is the one-way mode: nothing derived from labels ever leaves the owner.
docs/methods/proto_evfl.md gives every field, its reason and its ablation.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.head import HeadSettings
from protoevfl.messages import (
    Describe,
    Embeddings,
    Learn,
    Learned,
    Message,
    OpenedSums,
    SealedLabels,
    SealedSums,
    SendFeatures,
    Statistics,
    WarmUp,
)
from protoevfl.method import PREDICTION, Asking, Exchanges, Talk
from protoevfl.methods import answers, deciding, training
from protoevfl.methods.own_model import OwnModelSettings
from protoevfl.methods.rounds import pseudo_labels
from protoevfl.methods.sealed_grain import SealedSettings
from protoevfl.methods.settings import RoundSettings
from protoevfl.methods.unseen import UnseenSettings
from protoevfl.methods.warmup import WarmUpSettings
from protoevfl.models import extractor
from protoevfl.privacy.levels import check_level


@dataclass(frozen=True)
class ProtoEVFL:
    """Fields are the method's settings; presets live in
    protoevfl/settings/presets/proto_evfl.json."""

    name: ClassVar[str] = "proto_evfl"
    uses_every_label: ClassVar[bool] = True
    warm: WarmUpSettings = field(default_factory=WarmUpSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
    unseen: UnseenSettings = field(default_factory=UnseenSettings)
    own: OwnModelSettings = field(default_factory=OwnModelSettings)
    sealed: SealedSettings = field(default_factory=SealedSettings)
    layers: tuple[str, ...] = ("output",)  # which representations are sent
    columns: str = "open"  # how much a party sends of a shared row: open, few or sealed
    few: int = 1  # numbers per row and party at the level "few"
    width: int = 84  # of an extractor's output
    norm: bool = True  # batch-norm in the extractor
    table: str = "skip"  # extractor of tables: skip or mlp5
    # train the head in every round, as the paper has it, instead of once at the end
    head_each_round: bool = False

    def __post_init__(self) -> None:
        check_level(self.columns)
        if self.few < 1:
            raise UserError(f"proto_evfl.few must be at least 1, not {self.few}")

    @property
    def has_rounds(self) -> bool:
        """Whether prototypes go down; few numbers of a row say too little to learn from them."""
        return self.rounds.count > 0 and self.columns == "open"

    @property
    def exchanges(self) -> Exchanges:
        """Prototypes go down only where there are rounds; `Describe` is asked where a class lacks
        labels, and `SendFeatures` instead of `WarmUp` where the parties hold tables and the active
        party knows all its labels."""
        if self.columns == "sealed":
            return ((SealedLabels, SealedSums), (OpenedSums, Embeddings), *PREDICTION)
        starts: Exchanges = ((WarmUp, Embeddings), (SendFeatures, Embeddings))
        learning: Exchanges = ((Learn, Learned),) if self.has_rounds else ()
        describing: Exchanges = ((Describe, Statistics),) if self.unseen.slot else ()
        return (*starts, *learning, *PREDICTION, *describing)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return extractor(shape, keys, norm=self.norm, table=self.table, width=self.width)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        return answers.answer(self, cohort, request)

    def embed(self, cohort: Cohort, rows: Tensor) -> Tensor:
        """What leaves of these rows."""
        return answers.embeddings(self, cohort, rows)

    def alone(self, cohort: Cohort, mu: Tensor, shown: Tensor) -> Tensor:
        """Simulation only (`bench/measure.py`): classes (G, n) each party would give its own pool
        rows by its prototypes."""
        f = answers.embeddings(self, cohort, cohort.rows.pool, ("output",))
        return pseudo_labels(f, mu, shown, self.rounds)

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        return training.train(self, owner)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        return deciding.predict(self, owner, present)
