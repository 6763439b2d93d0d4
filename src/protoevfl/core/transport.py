"""Transport between embeddings and class prototypes, in both directions (PDTC).

    forward plan    pi(mu_z | f_n) = softmax_z( s(f_n, mu_z) + log p_z )
    backward plan   pi(f_n | mu_z) = softmax_n( s(f_n, mu_z) + log w_n )
    cost            c(f_n, mu_z)   = 1 - cos(f_n, mu_z)
    dual cost       mean_n sum_z pi(mu_z | f_n) c  +  sum_z p_z sum_n pi(f_n | mu_z) c

f (..., N, d) embeddings, mu (..., Z, d) prototypes, p (..., Z) prior, w (..., N) row weights, all
>= 0 (absent: all equal). This is the bi-directional conditional transport of Tanwisuth et al. 2021
(arXiv 2110.12024).

Departs: the paper's backward plan prints a prior p(mu_n) that depends on the row; a prior of the
class cancels in the softmax over rows, so none appears. Gradients pass through the plans, as in the
source.

    >>> f, mu = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.eye(2)
    >>> prior = torch.tensor([0.5, 0.5])
    >>> forward_plan(similarity(f, mu, 0.1), prior).exp().round(decimals=3)
    tensor([[1., 0.],
            [0., 1.]])
    >>> float(dual_cost(f, mu, prior, temperature=0.1)) < 1e-3
    True
"""

from typing import Literal

import torch
from torch import Tensor

from protoevfl.errors import UserError

Direction = Literal["dual", "forward"]
TINY = 1e-12  # vectors with no larger entry count as zero


def unit(x: Tensor) -> Tensor:
    """x / ||x|| along the last axis, safe for any norm that float can hold; a zero vector stays
    zero.

    The largest entry is divided out first (squares cannot overflow); it needs no gradient because
    the result does not depend on it.
    """
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(largest > TINY, largest, 1.0)  # now the norm is 0 or at least 1
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norm.clamp_min(1.0)


def cosine(f: Tensor, mu: Tensor) -> Tensor:
    """cos(f_n, mu_z) -> (..., N, Z); 0 where either is the zero vector."""
    return unit(f) @ unit(mu).mT


def similarity(f: Tensor, mu: Tensor, temperature: float | None = None) -> Tensor:
    """s(f_n, mu_z) -> (..., N, Z): cos / temperature, or the raw inner product (the paper's) for
    None."""
    return f @ mu.mT if temperature is None else cosine(f, mu) / temperature


def cost(f: Tensor, mu: Tensor) -> Tensor:
    """c = 1 - cos(f_n, mu_z) -> (..., N, Z), between 0 and 2."""
    return 1 - cosine(f, mu)


def forward_plan(scores: Tensor, prior: Tensor) -> Tensor:
    """log pi(mu_z | f_n) = log softmax_z( s + log p ) -> (..., N, Z); a class of prior 0 gets
    -inf."""
    return (scores + prior.log().unsqueeze(-2)).log_softmax(-1)


def _backward_plan(scores: Tensor, weights: Tensor | None = None) -> Tensor:
    """log pi(f_n | mu_z) = log softmax_n( s + log w ) -> (..., N, Z); a row of weight 0 gets -inf.

    Where all weights are 0 they count as equal, so that the plan stays a plan.
    """
    if weights is None:
        return scores.log_softmax(-2)
    kept = weights > 0
    empty = ~kept.any(-1, keepdim=True)
    log_w = torch.where(kept, torch.where(kept, weights, 1.0).log(), -torch.inf)
    return (scores + torch.where(empty, 0.0, log_w).unsqueeze(-1)).log_softmax(-2)


def mean_rows(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """sum_n w_n x_n / sum_n w_n over the last axis: (..., N) -> (...); 0 where all weights are
    0."""
    if weights is None:
        return x.mean(-1)
    total = weights.sum(-1)
    return (weights * x).sum(-1) / torch.where(total > 0, total, 1.0)


def planned_cost(plan: Tensor, costs: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean_n sum_z plan_nz c_nz -> (...), for any plan (..., N, Z) whose rows sum to one."""
    return mean_rows((plan * costs).sum(-1), weights)


def _forward_cost(
    scores: Tensor, costs: Tensor, prior: Tensor, weights: Tensor | None = None
) -> Tensor:
    """L(f -> mu) = mean_n sum_z pi(mu_z | f_n) c_nz -> (...)."""
    return planned_cost(forward_plan(scores, prior).exp(), costs, weights)


def _backward_cost(
    scores: Tensor, costs: Tensor, prior: Tensor, weights: Tensor | None = None
) -> Tensor:
    """L(mu -> f) = sum_z p_z sum_n pi(f_n | mu_z) c_nz -> (...); 0 where all weights are 0."""
    per_class = (_backward_plan(scores, weights).exp() * costs).sum(-2)  # (..., Z)
    total = (prior * per_class).sum(-1)
    return total if weights is None else total * (weights > 0).any(-1)


def dual_cost(
    f: Tensor,
    mu: Tensor,
    prior: Tensor,
    temperature: float | None = None,
    weights: Tensor | None = None,
    direction: Direction = "dual",
) -> Tensor:
    """L(f -> mu) + L(mu -> f) -> (...); direction "forward" leaves the second term out
    (single-direction PDTC)."""
    cos = cosine(f, mu)  # (..., N, Z)
    scores = similarity(f, mu) if temperature is None else cos / temperature
    loss = _forward_cost(scores, 1 - cos, prior, weights)
    return (
        loss if direction == "forward" else loss + _backward_cost(scores, 1 - cos, prior, weights)
    )


def select_soft(f: Tensor, mu: Tensor, prior: Tensor, temperature: float | None = None) -> Tensor:
    """pi(mu_z | f_n) -> (..., N, Z), constant for the gradient: the forward plan as
    pseudo-labels."""
    return forward_plan(similarity(f, mu, temperature), prior).exp().detach()


def select_cosine(f: Tensor, mu: Tensor) -> Tensor:
    """One-hot of the nearest prototype, argmax_z cos(f_n, mu_z) -> (..., N, Z), constant for the
    gradient."""
    nearest = cosine(f, mu).detach()
    return torch.zeros_like(nearest).scatter_(-1, nearest.argmax(-1, keepdim=True), 1.0)


def select_entropic(
    f: Tensor, mu: Tensor, prior: Tensor, regularisation: float = 0.1, iterations: int = 200
) -> Tensor:
    """argmin_P <P, c> - reg H(P), rows sum to 1/N, columns to p; returned as N P -> (..., N, Z),
    rows sum to one.

    Solved by POT's log-domain Sinkhorn on the host, one problem after another: slow, a comparison
    for small batches, not for use inside a CUDA graph. Constant for the gradient.
    """
    try:
        import ot
    except ImportError as error:
        raise UserError("entropic selection needs POT: pip install 'protoevfl[ot]'") from error
    costs = cost(f, mu).detach()
    *batch, rows, classes = costs.shape
    problems = costs.double().cpu().reshape(-1, rows, classes).numpy()
    p = prior.detach().double().cpu().expand(*batch, classes).reshape(-1, classes)
    marginals = (p / p.sum(-1, keepdim=True)).numpy()
    solve = {
        "reg": regularisation,
        "method": "sinkhorn_log",
        "numItermax": iterations,
        "warn": False,
    }
    plans = [torch.from_numpy(ot.sinkhorn([], b, c, **solve)) for c, b in zip(problems, marginals)]
    joint = torch.stack(plans).reshape(costs.shape).to(costs)
    return joint / joint.sum(-1, keepdim=True)
