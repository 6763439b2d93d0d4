"""A party's side of Proto-EVFL: what it answers to each request, by how much of its columns may
leave.

    open      embeddings of the network, or features of a table
    few       a few numbers per row
    sealed    masked sums and audited scores, whatever is asked
"""

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from protoevfl import distributed
from protoevfl.errors import UserError
from protoevfl.federation.party import Cohort
from protoevfl.messages import (
    Describe,
    Embed,
    Embeddings,
    Learn,
    Learned,
    Message,
    MessageError,
    OpenedSums,
    OpenLabels,
    OwnFeatures,
    SealedLabels,
    SendFeatures,
    WarmUp,
)
from protoevfl.methods import rounds, sealed
from protoevfl.methods.sealed import PartyView
from protoevfl.methods.table_features import learn_features, table_features
from protoevfl.methods.unseen import describe
from protoevfl.methods.warmup import warm_up, whole_rows
from protoevfl.models import embed
from protoevfl.privacy.levels import few_numbers, learn_few

if TYPE_CHECKING:
    from protoevfl.methods.proto_evfl import ProtoEVFL


def answer(settings: "ProtoEVFL", cohort: Cohort, request: Message) -> Message:
    if settings.columns == "sealed":
        return answer_sealed(settings, cohort, request)
    match request:
        case WarmUp():
            if settings.warm.epochs and not without_network(settings, cohort):
                warm_up(cohort, settings.warm)
            # inner layers cross once, at the end
            wanted = ("output",) if settings.has_rounds else settings.layers
            return Embeddings(embeddings(settings, cohort, cohort.rows.aligned, wanted))
        case SendFeatures():
            if cohort.rows.spans is None:
                raise UserError(
                    "features were asked for, but these rows are images: they are never sent "
                    "as such"
                )
            if settings.columns == "open":
                learnt = learn_features(whole_rows(cohort), cohort.rows.numbers)
                cohort.memory |= learnt
            return Embeddings(embeddings(settings, cohort, cohort.rows.aligned))
        case Learn():
            return learn(settings, cohort, request)
        case Describe(groups=groups):
            pool = embeddings(settings, cohort, cohort.rows.pool)
            aligned = embeddings(settings, cohort, cohort.rows.aligned)
            return describe(cohort, pool, aligned, groups, settings.unseen)
        case Embed(rows=which):
            return Embeddings(embeddings(settings, cohort, getattr(cohort.rows, which)))
    raise NotImplementedError(type(request).__name__)


def answer_sealed(settings: "ProtoEVFL", cohort: Cohort, request: Message) -> Message:
    """The sealed level: nothing but masked sums and audited scores leaves, whatever is asked."""
    match request:
        case OwnFeatures():
            prepare_features(settings, cohort)
            cohort.memory["open"] = torch.ones(cohort.size)
            return Embeddings(embeddings(settings, cohort, cohort.rows.aligned))
        case SealedLabels():
            prepare_features(settings, cohort)
            return sealed.sum_under_encryption(party_view(settings, cohort), request)
        case OpenLabels():
            prepare_features(settings, cohort)
            view = party_view(settings, cohort)
            sealed.learn_plain(view, request, settings.sealed)
            return Embeddings(sealed.shared_scores(view))
        case OpenedSums():
            view = party_view(settings, cohort)
            sealed.learn_opened(view, request, settings.sealed)
            return Embeddings(sealed.shared_scores(view))
        case Embed(rows="query"):
            rows = cohort.rows.query
            if "open" in cohort.memory:
                return Embeddings(embeddings(settings, cohort, rows))
            if not sealed.has_scores(cohort):  # nothing was learnt: nothing to say
                return Embeddings(torch.zeros(*rows.shape[:2], 1, device=rows.device))
            return Embeddings(sealed.new_scores(cohort, embeddings(settings, cohort, rows), rows))
    raise MessageError(f"{type(request).__name__} is not answered at the sealed level")


def prepare_features(settings: "ProtoEVFL", cohort: Cohort) -> None:
    """What scores are made of: bins of a table's columns, an image's embedding after warm-up."""
    if cohort.rows.spans is not None:
        cohort.memory |= learn_features(whole_rows(cohort), cohort.rows.numbers)
    elif settings.warm.epochs:
        warm_up(cohort, settings.warm)


def party_view(settings: "ProtoEVFL", cohort: Cohort) -> PartyView:
    rows = whole_rows(cohort)
    further = cohort.rows.further
    shared = torch.cat([cohort.rows.aligned] + ([] if further is None else [further]), 1)
    own, features = (embeddings(settings, cohort, x) for x in (rows, shared))
    return PartyView(cohort, rows, own, features, shared, layer_bounds(settings, cohort))


def layer_bounds(settings: "ProtoEVFL", cohort: Cohort) -> tuple[tuple[int, int], ...]:
    """Where each layer of an image's features lies, then all of them; () for tables."""
    if cohort.rows.spans is not None or len(settings.layers) == 1:
        return ()
    one = cohort.rows.aligned[:, :1]
    ends = [0]
    for layer in settings.layers:
        ends.append(ends[-1] + embed(cohort.net, one, (layer,)).shape[-1])
    return (*pairwise(ends), (0, ends[-1]))


def embeddings(
    settings: "ProtoEVFL", cohort: Cohort, rows: Tensor, layers: tuple[str, ...] | None = None
) -> Tensor:
    """What leaves of these rows: features, a few numbers, or layers side by side (all that are
    sent, unless told)."""
    memory = cohort.memory
    if "edges" in memory:  # features were asked for
        return table_features(rows, cohort.rows.numbers, memory["edges"], memory["centre"])
    if settings.columns != "few":  # at the sealed level scores are made of it, and it stays
        return layers_of(settings, cohort, rows, layers)

    def whole(rows: Tensor) -> Tensor:
        return rows if without_network(settings, cohort) else layers_of(settings, cohort, rows)

    if "few.basis" not in memory:
        memory |= learn_few(whole(whole_rows(cohort)), settings.few)
    return few_numbers(whole(rows), memory["few.centre"], memory["few.basis"])


def without_network(settings: "ProtoEVFL", cohort: Cohort) -> bool:
    """Whether a party's numbers come from its encoded columns: few numbers of a table."""
    return settings.columns == "few" and cohort.rows.spans is not None


def layers_of(
    settings: "ProtoEVFL", cohort: Cohort, rows: Tensor, layers: tuple[str, ...] | None = None
) -> Tensor:
    """Layers of the network side by side; several are standardised by the party's own pool."""
    f = embed(cohort.net, rows, layers or settings.layers)
    if (layers or settings.layers) == ("output",):
        return f
    if "mean" not in cohort.memory:
        mean, spread = distributed.moments(
            cohort.rows.pool, lambda own: embed(cohort.net, own, settings.layers)
        )
        cohort.memory |= {"mean": mean, "spread": spread + 0.05 * spread.mean(-1, keepdim=True)}
    return (f - cohort.memory["mean"]) / cohort.memory["spread"]


def learn(settings: "ProtoEVFL", cohort: Cohort, request: Learn) -> Learned:
    """One round: local prior, then transport on the party's own rows; the reply holds the new
    embeddings."""
    mu, shown = request.prototypes, request.present
    prior = rounds.local_prior(cohort, mu, shown, request.prior, settings.rounds)
    if settings.rounds.learning:
        rounds.learn(cohort, mu, shown, prior, request.round, settings.rounds, settings.warm)
        cohort.memory.pop("mean", None)  # of the old extractor
    return Learned(embeddings(settings, cohort, cohort.rows.aligned, ("output",)), prior)
