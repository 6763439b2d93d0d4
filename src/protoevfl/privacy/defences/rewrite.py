"""Small rewritings of a prototype message: rounding, withheld classes, permuted class numbers.

None of them is a guarantee. Rounding hides low-order bits; a withheld class shows neither its mean
nor that it is small by how much; a permutation hides names only (the receiver still sees which rows
belong together).
"""

from dataclasses import replace

import torch
from torch import Tensor

from protoevfl.messages import Learn, Learned


def rounded(request: Learn, digits: int) -> Learn:
    """Prototypes and prior to so many decimals."""
    return replace(
        request,
        prototypes=request.prototypes.round(decimals=digits),
        prior=request.prior.round(decimals=digits),
    )


def without_small_classes(request: Learn, counts: Tensor, minimum: int) -> Learn:
    """Classes with fewer labelled rows than `minimum` are neither shown nor marked present."""
    shown = request.present * (counts.to(request.present) >= minimum)
    return replace(request, present=shown, prototypes=request.prototypes * shown[:, None])


def permuted(request: Learn, order: Tensor) -> Learn:
    """Class z is sent as number order^-1(z): line i of the message is class order[i]."""
    return replace(
        request,
        prototypes=request.prototypes[order],
        present=request.present[order],
        prior=request.prior[order],
    )


def unpermuted(reply: Learned, order: Tensor) -> Learned:
    """The reply with the owner's class numbers again."""
    return replace(reply, prior=reply.prior[torch.argsort(order)])
