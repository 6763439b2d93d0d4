"""What an attacker has seen: the messages of one passive party, or of several that collude, and its
own rows.

    View       exchanges in order, own embeddings before any message arrived, what is public about the method
    Known      side knowledge: labels (N,) of a few aligned rows, -1 elsewhere
    Release    prototypes together with the embeddings they were made of

Attacks are functions (View, Known) -> {variant: Guess}.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from protoevfl.core import random as rnd
from protoevfl.messages import (
    BackwardBatch,
    BackwardMixed,
    Embeddings,
    ForwardBatch,
    Learn,
    Learned,
    Message,
    PartialGradients,
    Residuals,
)


@dataclass(frozen=True)
class Exchange:
    """One request to a party and its reply."""

    party: int
    request: Message
    reply: Message


@dataclass(frozen=True)
class View:
    """The attacker's whole knowledge, side knowledge apart."""

    exchanges: tuple[Exchange, ...]
    rows: int  # N, aligned
    classes: int  # Z
    # (N, d) aligned rows, by an encoder no message touched
    own: Mapping[int, Tensor] = field(default_factory=dict)
    pool: Mapping[int, Tensor] = field(default_factory=dict)  # (n, d) the pool by the same encoder
    # (N, D) aligned rows, all layers of that encoder
    wide: Mapping[int, Tensor] = field(default_factory=dict)
    update: str = "none"  # the method's rule for prototypes: none, ema, paper
    rho: float = 1.0
    rank: int | None = None  # of noisy releases, where the policy makes them
    # see attacks/gradients.py: condensed
    sums: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)
    # (N, d) last embeddings of rows sent in batches
    newest: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def parties(self) -> tuple[int, ...]:
        return tuple(sorted({e.party for e in self.exchanges} | set(self.own) | set(self.newest)))

    def of(self, party: int) -> "View":
        """One member's part of a coalition's view."""

        def part(of_parties: Mapping[int, Tensor]) -> dict[int, Tensor]:
            return {party: of_parties[party]} if party in of_parties else {}

        return replace(
            self,
            exchanges=tuple(e for e in self.exchanges if e.party == party),
            own=part(self.own),
            pool=part(self.pool),
            wide=part(self.wide),
            sums={stage: part(of_parties) for stage, of_parties in self.sums.items()},
            newest=part(self.newest),
        )

    def releases(self) -> list["Release"]:
        """Prototypes in order, each with the embeddings the party had sent last."""
        last: dict[int, Tensor] = {}
        released = []
        for e in self.exchanges:
            if isinstance(e.request, Learn) and e.party in last:
                width = e.request.prototypes.shape[1]
                f = last[e.party][:, :width]
                released.append(
                    Release(
                        e.party, f.double(), e.request.prototypes.double(), e.request.present > 0
                    )
                )
            if isinstance(e.reply, Embeddings | Learned) and len(e.reply.values) == self.rows:
                last[e.party] = e.reply.values
        return released

    def uploads(self, party: int) -> list[Tensor]:
        """All embeddings (N, d) of the aligned rows the party sent."""
        replies = (
            e.reply
            for e in self.exchanges
            if e.party == party and not isinstance(e.request, ForwardBatch)
        )
        return [
            r.values
            for r in replies
            if isinstance(r, Embeddings | Learned) and len(r.values) == self.rows
        ]

    def last_embeddings(self, party: int) -> Tensor | None:
        """The newest embedding (N, d) of each aligned row; rows sent in batches are put
        together."""
        if party in self.newest:
            return self.newest[party]
        whole = self.uploads(party)
        pairs = [(e.request, e.reply) for e in self.exchanges if e.party == party]
        batches = [
            (q.rows, r.values)
            for q, r in pairs
            if isinstance(q, ForwardBatch) and isinstance(r, Embeddings)
        ]
        if not batches:
            return whole[-1] if whole else None
        embeddings = batches[0][1].new_zeros(self.rows, batches[0][1].shape[1])
        for rows, values in batches:
            embeddings[rows] = values
        return embeddings

    def gradients(self) -> list[tuple[int, Tensor, Tensor]]:
        """(party, rows (B,), gradients (B, d)) in order."""
        batches = []
        for e in self.exchanges:
            if isinstance(e.request, BackwardBatch | BackwardMixed):
                batches.append((e.party, e.request.rows, e.request.gradients))
            elif isinstance(e.request, PartialGradients | Residuals):
                rows = torch.arange(self.rows, device=e.request.gradients.device)
                batches.append((e.party, rows, e.request.gradients))
        return batches


@dataclass(frozen=True)
class Release:
    """mu_z (Z, d), said to be made of f (N, d); `present` (Z,) marks the classes shown."""

    party: int
    f: Tensor
    mu: Tensor
    present: Tensor


@dataclass(frozen=True)
class Known:
    """labels (N,) with -1 where the attacker knows nothing."""

    labels: Tensor

    @property
    def mask(self) -> Tensor:
        return self.labels >= 0


@dataclass(frozen=True)
class Guess:
    """labels (N,); `named` False: groups only, to be scored under the best matching of names."""

    labels: Tensor
    named: bool = True


Attack = Callable[[View, Known], dict[str, Guess]]


def know(labels: Tensor, per_class: int, classes: int, seed: int) -> Known:
    """k labels of each class, at most half of it, chosen at random.

    >>> know(torch.tensor([0, 0, 1, 1]), 1, 2, seed=0).mask.sum()
    tensor(2)
    """
    order = rnd.permutation(torch.tensor([rnd.key(seed, "known")]), "known", 0, len(labels))[0].to(
        labels.device
    )
    onehot = torch.nn.functional.one_hot(labels[order], classes)
    rank = (onehot.cumsum(0) * onehot).sum(1) - 1  # place within the class
    most = (onehot.sum(0) // 2).clamp(max=per_class)  # (Z,)
    chosen = order[rank < most[labels[order]]]
    known_labels = torch.full_like(labels, -1)
    known_labels[chosen] = labels[chosen]
    return Known(known_labels)


def views(
    transcript: Iterable[tuple[int, Message, Message]], rows: int, classes: int, active: int = 0
) -> dict[int, View]:
    """One view for each passive party of a transcript [(party, request, reply)]."""
    kept = [Exchange(p, q, r) for p, q, r in transcript if p != active]
    return {
        p: View(tuple(e for e in kept if e.party == p), rows, classes)
        for p in sorted({e.party for e in kept})
    }


def together(members: Iterable[View]) -> View:
    """The view of colluding parties."""
    parts = list(members)
    exchanges = tuple(e for v in parts for e in v.exchanges)
    own = {p: t for v in parts for p, t in v.own.items()}
    pool = {p: t for v in parts for p, t in v.pool.items()}
    wide = {p: t for v in parts for p, t in v.wide.items()}
    newest = {p: t for v in parts for p, t in v.newest.items()}
    sums = {
        stage: {p: t for v in parts for p, t in v.sums.get(stage, {}).items()}
        for stage in parts[0].sums
    }
    return replace(
        parts[0], exchanges=exchanges, own=own, pool=pool, wide=wide, sums=sums, newest=newest
    )


def best_own(view: View) -> Tensor:
    """The attacker's own representation of the aligned rows (N, d), side by side over colluding
    parties."""
    if view.own:
        return torch.cat([view.own[p] for p in sorted(view.own)], 1)
    first = [view.uploads(p)[0] for p in view.parties if view.uploads(p)]
    return torch.cat(first, 1) if first else torch.zeros(view.rows, 1)
