"""LASER-VFL (arXiv 2410.22564): one model that predicts with any subset of the parties.

    L = sum over k, j of  a_j CE( head_k( mean_{m in S_kj} z_m ), y ),   S_kj a random set of j parties that holds k

Each party has an extractor and a fusion head that takes the mean of the blocks present. For every row, head and size
one subset is drawn; a_j = C(M-1, j-1) / j makes every non-empty subset count the same (its loss the mean over its
members), `weights = "sizes"` every size. A subset predicts by the mean of its members' heads.
Departs: the heads sit with the label owner, who alone holds labels here; bytes are those of split learning.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from protoevfl.core import random as rnd
from protoevfl.core.losses import soft_cross_entropy
from protoevfl.head import HeadNet, HeadSettings
from protoevfl.methods.split import SplitLearning


@dataclass(frozen=True)
class Laser(SplitLearning):
    """Split learning with a fusion head a party and sampled subsets."""

    name: ClassVar[str] = "laser"
    weights: str = "subsets"  # or "sizes"

    def head(self, keys: Tensor, parties: int, width: int, classes: int) -> nn.Module:
        """models x M heads, each on one block of width d."""
        many = torch.stack([rnd.derive(keys, "fusion", m) for m in range(parties)], 1).flatten()
        settings = HeadSettings(hidden=self.hidden, dropout=self.dropout, gate=False, adaptor=False)
        return HeadNet(many, 1, width, classes, settings)

    def loss(self, head: nn.Module, z: Tensor, targets: Tensor, step: rnd.Counter) -> Tensor:
        assert isinstance(head, HeadNet)
        e, parties, rows = z.shape[:3]
        chosen = subsets(head.keys, step, parties, rows)  # (E*M, size, B, M)
        mean = fused(z, chosen.view(e, parties, parties, rows, parties))  # (E, head, size, B, d)
        x = mean.flatten(0, 1).flatten(1, 2)[:, None]  # (E*M, 1, size*B, d)
        logits = head(x, step=step).view(e, parties, parties, rows, -1)
        losses = soft_cross_entropy(logits, targets[:, None, None].expand_as(logits))  # (E, head, size)
        return (losses * self.size_weights(parties).to(losses)).sum(-1).mean(-1)

    def size_weights(self, parties: int) -> Tensor:
        """a_j for j = 1..M, summing to one."""
        counts = [math.comb(parties - 1, j - 1) / j for j in range(1, parties + 1)]
        weights = torch.tensor(counts if self.weights == "subsets" else [1.0] * parties)
        return weights / weights.sum()

    def probabilities(self, head: nn.Module, z: Tensor, here: Tensor) -> Tensor:
        """The heads of the parties present, each on the mean of the blocks present, averaged."""
        e, parties = z.shape[:2]
        mean = (z * here[:, None, None]).sum(1) / here.sum()  # (E, B, d)
        x = mean.repeat_interleave(parties, 0)[:, None]  # (E*M, 1, B, d)
        p = head(x).softmax(-1).view(e, parties, z.shape[2], -1)
        out: Tensor = (p * here[:, None, None]).sum(1).mean(0) / here.sum()
        return out


def subsets(keys: Tensor, step: rnd.Counter, parties: int, rows: int) -> Tensor:
    """Masks (E*M, size, B, M): for each head k, size j and row a random set of j parties that holds k.

    The other parties are ranked at random; k and the first j - 1 of them are in.
    """
    score = rnd.uniform(keys, "subset", step, (parties, rows, parties))  # (E*M, size, B, M)
    own = torch.arange(len(keys), device=keys.device) % parties  # (E*M,)
    mine = torch.arange(parties, device=keys.device) == own[:, None]  # (E*M, M)
    rank = score.masked_fill(mine[:, None, None], -1.0).argsort(-1).argsort(-1)  # 0 is k itself
    return rank <= torch.arange(parties, device=keys.device)[:, None, None]


def fused(z: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen blocks: z (E, M, B, d), chosen (E, head, size, B, M) -> (E, head, size, B, d)."""
    share = chosen.to(z) / chosen.sum(-1, keepdim=True)
    return torch.einsum("ehsbm,embd->ehsbd", share, z)
