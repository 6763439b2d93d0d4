"""The party's side of a Proto-EVFL round: the local prior by EM, then tau epochs of the dual
transport cost."""

import torch
from torch import Tensor

from protoevfl import distributed
from protoevfl.core import losses, priors, transport
from protoevfl.core import random as rnd
from protoevfl.federation.party import Cohort
from protoevfl.fit import fit
from protoevfl.methods.settings import RoundSettings
from protoevfl.methods.warmup import WarmUpSettings, gather, own_rows, two_views
from protoevfl.models import embed, inputs

ABSENT = -1e4  # log-score of a class whose prototype is withheld


def scores_of(f: Tensor, mu: Tensor, shown: Tensor, temperature: float | None) -> Tensor:
    """Similarity to each prototype (G, n, Z); a withheld class cannot be chosen."""
    return transport.similarity(f, mu, temperature) + ABSENT * (1 - shown[:, None])


@torch.no_grad()
def local_prior(
    cohort: Cohort, mu: Tensor, shown: Tensor, common: Tensor, s: RoundSettings
) -> Tensor:
    """EM over the pool, mixed with the global prior: gamma p^g + (1 - gamma) p -> (G, Z)."""
    scores = distributed.for_rows(
        cohort.rows.pool, lambda rows: scores_of(embed(cohort.net, rows), mu, shown, s.temperature)
    )
    prior = priors.estimate(scores, s.prior_steps, s.prior_floor)
    if s.mixed_prior:
        gamma = priors.mixing_ratio(priors.pseudo_label_counts(scores, prior))
        prior = priors.mix(prior, common, gamma)
    return prior


@torch.no_grad()
def pseudo_labels(f: Tensor, mu: Tensor, shown: Tensor, s: RoundSettings) -> Tensor:
    """Classes (G, n) by prototypes and EM prior: what a party can say alone about rows that nobody
    else has."""
    scores = scores_of(f, mu, shown, s.temperature)
    prior = priors.estimate(scores, s.prior_steps, s.prior_floor)
    return (scores + prior.log()[:, None]).argmax(-1)


def learn(
    cohort: Cohort,
    mu: Tensor,
    shown: Tensor,
    prior: Tensor,
    round_: int,
    s: RoundSettings,
    warm: WarmUpSettings,
) -> Tensor:
    """Trains the extractors in place; returns the loss of each epoch (tau, G)."""
    rows, keys = own_rows(cohort), rnd.derive(cohort.keys, "round", round_)
    views = two_views(cohort, rows, keys, warm)
    mu = torch.where(shown[..., None] > 0, mu, 0.0)
    prior = prior * shown / (prior * shown).sum(-1, keepdim=True).clamp(min=1e-9)

    def loss(index: Tensor, step: rnd.Counter) -> Tensor:
        if not s.ssl_weight:
            return s.weight * plan_cost(cohort.net(inputs(gather(rows, index))), mu, prior, s)
        f1, f2 = cohort.net(views(index, step)).chunk(2, 1)
        moved = 0.5 * (plan_cost(f1, mu, prior, s) + plan_cost(f2, mu, prior, s))
        return s.weight * moved + s.ssl_weight * losses.nt_xent(f1, f2, warm.temperature)

    return fit(
        loss,
        cohort.net.parameters(),
        keys,
        rows.shape[1],
        epochs=s.epochs,
        batch=s.batch,
        lr=s.lr,
        weight_decay=s.weight_decay,
        optimizer=s.optimizer,
        decay=False,
        purpose="transport",
        graph=s.selection != "ot",
        progress=cohort.progress,
    )


def plan_cost(f: Tensor, mu: Tensor, prior: Tensor, s: RoundSettings) -> Tensor:
    """The transport loss of one batch (G,), by selection strategy."""
    prior = prior.clamp(min=1e-9)
    if s.selection in ("dual", "single"):
        way: transport.Direction = "dual" if s.selection == "dual" else "forward"
        return transport.dual_cost(f, mu, prior, s.temperature, direction=way)
    if s.selection == "soft":
        plan = transport.select_soft(f, mu, prior, s.temperature)
    elif s.selection == "cosine":
        plan = transport.select_cosine(f, mu)
    else:
        plan = transport.select_entropic(f, mu, prior)
    return transport.planned_cost(plan, transport.cost(f, mu))
