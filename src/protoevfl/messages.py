"""Every type that crosses the wire, and nothing else does: this file is the privacy boundary.

A message is a frozen dataclass of declared arrays and plain scalars; codec.py turns it into bytes
and back. Down means active party -> party, up means party -> active party.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor


class MessageError(Exception):
    """A message that must not be used; the text says which field and why."""


def array(*dims: str, dtype: torch.dtype = torch.float32) -> Any:
    """Declares an array field; equal dimension names must have equal sizes within a message."""
    return field(metadata={"dims": dims, "dtype": dtype})


@dataclass(frozen=True)
class Message:
    """Base of all types. `kind` groups types in the byte ledger."""

    kind: ClassVar[str] = "control"


# ---------------------------------------------------------------- down: active party -> party


@dataclass(frozen=True)
class WarmUp(Message):
    """Train the extractor on your own rows, then reply with `Embeddings` of the aligned rows.
    Carries nothing."""


@dataclass(frozen=True)
class SendFeatures(Message):
    """Tables: from now on reply with encoded columns and their bins instead of an embedding;
    `Embeddings` of the aligned rows come first. Carries nothing. What is sent back are the columns
    themselves, scaled: whoever receives it reads every number and category of these rows nearly
    exactly (docs/privacy.md)."""


@dataclass(frozen=True)
class Embed(Message):
    """Reply with `Embeddings` of rows that both sides know to be shared. Carries nothing.

    "aligned" rows are those of all parties, "further" ones are shared by the active party and the
    receiver but not by everybody, "query" rows are to be predicted.
    """

    rows: str

    def __post_init__(self) -> None:
        if self.rows not in ("aligned", "further", "query"):
            raise MessageError(
                f"Embed.rows must be aligned, further or query, not {self.rows!r}: no other row "
                "may be asked for"
            )


@dataclass(frozen=True)
class EmbedAt(Message):
    """Serving: reply with `Embeddings` of these places among the rows that both sides know to be
    shared (deploy/universe.py). Tells the receiver that the rows there are scored now."""

    places: Tensor = array("places", dtype=torch.int64)


@dataclass(frozen=True)
class Learn(Message):
    """One round of Proto-EVFL. Derived from labels: class means of the receiver's embeddings, class
    rates."""

    kind: ClassVar[str] = "prototypes"
    round: int
    prototypes: Tensor = array("classes", "width")
    present: Tensor = array("classes")  # 1 where the prototype may be used, 0 where it is withheld
    prior: Tensor = array("classes")


@dataclass(frozen=True)
class Describe(Message):
    """Reply with `Statistics` of the part of your pool that no aligned row covers. Carries nothing
    of labels."""

    groups: int


@dataclass(frozen=True)
class ForwardBatch(Message):
    """Split learning: reply with `Embeddings` of these aligned rows. Carries row numbers."""

    step: int
    rows: Tensor = array("batch", dtype=torch.int64)


@dataclass(frozen=True)
class BackwardBatch(Message):
    """Split learning: the loss gradient at the embeddings just sent. Derived from labels, row by
    row."""

    kind: ClassVar[str] = "gradients"
    step: int
    rows: Tensor = array("batch", dtype=torch.int64)
    gradients: Tensor = array("batch", "width")


@dataclass(frozen=True)
class Prepare(Message):
    """Train the extractor on your own rows; reply with `Done`. Carries nothing."""


@dataclass(frozen=True)
class Project(Message):
    """FedHSSL: reply with `Projections` of the aligned rows. Carries nothing."""


@dataclass(frozen=True)
class Guide(Message):
    """FedHSSL: the other side's projections of the aligned rows, to predict; reply with
    `Parameters`.

    Derived from the active party's columns (at the active party: from the others'), not from
    labels.
    """

    kind: ClassVar[str] = "embeddings"
    epoch: int
    targets: Tensor = array("rows", "width")


@dataclass(frozen=True)
class Merged(Message):
    """FedHSSL: the parties' `Parameters`, averaged; take them over, reply with `Projections` (the
    last time `Done`)."""

    kind: ClassVar[str] = "parameters"
    epoch: int
    values: Tensor = array("size")


@dataclass(frozen=True)
class PartialGradients(Message):
    """One-shot VFL: the loss gradient of every aligned row at the embeddings sent; reply with new
    `Embeddings`.

    Derived from labels row by row: clustering them gives back the labels up to their names.
    """

    kind: ClassVar[str] = "gradients"
    groups: int
    gradients: Tensor = array("rows", "width")


@dataclass(frozen=True)
class ForwardMixed(Message):
    """FedCVT: reply with `MixedEmbeddings` of these aligned rows and of `pool` rows of your own
    choice."""

    step: int
    pool: int
    rows: Tensor = array("batch", dtype=torch.int64)


@dataclass(frozen=True)
class BackwardMixed(Message):
    """FedCVT: the loss gradients at the `MixedEmbeddings` just sent. Derived from labels, row by
    row."""

    kind: ClassVar[str] = "gradients"
    step: int
    rows: Tensor = array("batch", dtype=torch.int64)
    gradients: Tensor = array("batch", "width")
    pool: Tensor = array("pool", "width")


@dataclass(frozen=True)
class Residuals(Message):
    """Vertical logistic regression: p - y of every aligned row, the loss gradient at the scores
    sent; take one step and reply with `Embeddings`, the new partial scores.

    Derived from labels, and gives them away: p_z - y_z is below zero for the row's own class and
    for no other.
    """

    kind: ClassVar[str] = "gradients"
    step: int  # 0: begin with weights of zero
    strength: float  # of the ridge
    blocks: int  # among which the step is divided: all parties and the intercept
    gradients: Tensor = array("rows", "classes")


@dataclass(frozen=True)
class SealedLabels(Message):
    """Sealed level: the classes of the rows shared with the receiver, after randomised response and
    under the active party's key; reply with `SealedSums`.

    Derived from labels. Without the key a ciphertext tells nothing; with the sums that come back a
    receiver learns at most the randomised labels, whatever it does.
    """

    kind: ClassVar[str] = "sealed"
    # of the noise that the owner adds to the sums, in lengths of a row; 0: none
    sigma: float
    key: Tensor = array("bytes", dtype=torch.uint8)
    proof: Tensor = array("roots", "bytes", dtype=torch.uint8)  # that the key has the right form
    labels: Tensor = array("rows", "cipher", dtype=torch.uint8)
    present: Tensor = array("classes")  # 1 where a class may be scored, 0 where it is withheld

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < float("inf"):
            raise MessageError(f"SealedLabels.sigma must not be below 0, and is {self.sigma!r}")


@dataclass(frozen=True)
class OpenedSums(Message):
    """Sealed level: the receiver's `SealedSums`, decrypted and still under the receiver's mask, with
    noise; reply with `Embeddings`, the scores of the rows shared with it. Derived from labels."""

    kind: ClassVar[str] = "sealed"
    sums: Tensor = array("folds", "packs", "bytes", dtype=torch.uint8)


@dataclass(frozen=True)
class OpenLabels(Message):
    """Sealed level in one process: the same labels without encryption, for simulations and for the
    active party itself; reply with `Embeddings`, the scores. No method declares it, so no party
    takes it from another company; a simulation's guard puts randomised labels and the owner's noise
    in it.
    """

    kind: ClassVar[str] = "labels"
    # places of these rows among those shared by all, then the further ones
    rows: Tensor = array("rows", dtype=torch.int64)
    labels: Tensor = array("rows", dtype=torch.int64)
    present: Tensor = array("classes")
    sigma: float = 0.0  # of the noise on the sums; 0: none
    noise: str = ""  # what it is drawn from, hexadecimal


# to the active party's own extractor: these never cross, so no method declares them and no other
# party takes them


@dataclass(frozen=True)
class LearnLabels(Message):
    """Train the extractor on these own rows and their labels; reply with `Done`. For the active
    party itself."""

    kind: ClassVar[str] = "labels"
    rows: Tensor = array("rows", "width")
    labels: Tensor = array("rows", dtype=torch.int64)
    # added to the logits: log of own class rates over those of the shared rows
    offsets: Tensor = array("classes")


@dataclass(frozen=True)
class OwnFeatures(Message):
    """Sealed level: reply with `Embeddings` of the aligned rows in full, and from now on so. For the
    active party itself, where it has no model of its own."""

    kind: ClassVar[str] = "rows"


@dataclass(frozen=True)
class ForwardOwn(Message):
    """LASER-VFL: reply with `Embeddings` of these own rows. For the active party itself."""

    kind: ClassVar[str] = "rows"
    step: int
    rows: Tensor = array("batch", "columns")


@dataclass(frozen=True)
class BackwardOwn(Message):
    """LASER-VFL: the loss gradient at the embeddings of these own rows. For the active party
    itself."""

    kind: ClassVar[str] = "gradients"
    step: int
    rows: Tensor = array("batch", "columns")
    gradients: Tensor = array("batch", "width")


# ---------------------------------------------------------------- up: party -> active party


@dataclass(frozen=True)
class Done(Message):
    """Acknowledges; carries nothing."""


@dataclass(frozen=True)
class Embeddings(Message):
    """Representations of shared rows or rows to be predicted, one line each. Derived from the
    party's columns; after `SendFeatures` they are these columns, encoded."""

    kind: ClassVar[str] = "embeddings"
    values: Tensor = array("rows", "width")


@dataclass(frozen=True)
class Learned(Message):
    """The party's answer to `Learn`: new embeddings of the aligned rows and its estimated class
    rates."""

    kind: ClassVar[str] = "embeddings"
    values: Tensor = array("rows", "width")
    prior: Tensor = array("classes")


@dataclass(frozen=True)
class Statistics(Message):
    """Gaussian mixtures of parts of the pool: groups x components; no row of the pool crosses."""

    kind: ClassVar[str] = "statistics"
    means: Tensor = array("groups", "components", "width")
    variances: Tensor = array("groups", "components", "width")
    weights: Tensor = array("groups", "components")
    reliability: Tensor = array("groups")


@dataclass(frozen=True)
class SealedSums(Message):
    """Sealed level: sums of the party's quantised features by class and fold, under the active
    party's key and a mask of the party's own. Uniformly distributed: tells nothing to anybody
    without the mask."""

    kind: ClassVar[str] = "sealed"
    sums: Tensor = array("folds", "packs", "cipher", dtype=torch.uint8)


@dataclass(frozen=True)
class Projections(Message):
    """FedHSSL: the cross-party encoder's projections of the aligned rows. Derived from the party's
    columns."""

    kind: ClassVar[str] = "embeddings"
    values: Tensor = array("rows", "width")


@dataclass(frozen=True)
class Parameters(Message):
    """FedHSSL: weights and running figures of the shareable layers, as one vector. Trained on all
    rows of the party."""

    kind: ClassVar[str] = "parameters"
    values: Tensor = array("size")


@dataclass(frozen=True)
class MixedEmbeddings(Message):
    """FedCVT: representations of aligned rows and of some rows of the pool (which rows, only the
    party knows)."""

    kind: ClassVar[str] = "embeddings"
    values: Tensor = array("batch", "width")
    pool: Tensor = array("pool", "width")


def values(reply: Message) -> Tensor:
    """The embeddings in a reply that must carry some."""
    if not isinstance(reply, Embeddings | Learned):
        raise MessageError(f"expected embeddings, got {type(reply).__name__}")
    return reply.values
