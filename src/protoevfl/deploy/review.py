"""What a job would take from this party, in words, for the person who accepts or refuses it."""

from collections.abc import Iterator
from pathlib import Path

from protoevfl.deploy.policy import Policy, method_of
from protoevfl.deploy.row_ledger import RowLedger
from protoevfl.deploy.spec import JobSpec
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.privacy.policy import settings_from


def review(spec: JobSpec, policy: Policy, ledger: RowLedger) -> str:
    """The specification, what it sends, what has left before, and what the policy says to it."""
    objections = policy.objections(spec)
    verdict = "accepted" if not objections else "refused: " + "; ".join(objections)
    paragraphs = [
        spec.review(),
        "what leaves:    " + "\n                ".join(sends(spec, policy)),
        "left so far:    " + "\n                ".join(line.strip() for line in ledger.summary()),
        f"policy:         {verdict}",
    ]
    return "\n".join(paragraphs)


def sends(spec: JobSpec, policy: Policy) -> list[str]:
    """What crosses from this party, a sentence each."""
    method = method_of(spec)
    if not isinstance(method, ProtoEVFL):
        made_up = spec.method == "probe"
        return [
            "made-up numbers; nothing of this party"
            if made_up
            else f"messages of {spec.method}: docs/methods says what each holds"
        ]
    return list(_of_proto_evfl(spec, policy, method))


def _of_proto_evfl(spec: JobSpec, policy: Policy, method: ProtoEVFL) -> Iterator[str]:
    queried = f"each row that is measured or to be predicted (at most {policy.max_query_rows:,})"
    if spec.task == "serve":
        rules = policy.serve
        yield (
            "what the training run sends of a row, of any row shared with the active party, "
            f"whenever it asks: at most {rules.requests_per_day:,} requests and "
            f"{rules.rows_per_day:,} rows a day, {rules.rows_per_request:,} a request, each row "
            f"{policy.max_sends:,} times ever"
        )
        yield f"it may keep an answer for {min(rules.cache_s, spec.cache_s):g} s and use it again"
        yield "you learn which of the rows you share are scored, and when; nothing else"
        yield from _shield(spec, method)
        return
    if spec.task == "predict":
        yield f"what the training run sends of a row, of {queried}, once"
        yield from _shield(spec, method)
        return
    if method.columns == "sealed":
        yield "sums of its columns over the shared rows, masked under encryption: random numbers"
        steps = method.sealed.levels
        kind = f"of at most {steps} levels" if steps else "of any value (pictures: with noise)"
        yield f"a score per class of each shared row, {kind}, once"
        yield f"the same of {queried}, once"
        yield from _shield(spec, method)
        return
    few = method.columns == "few"
    rounds = method.rounds.count if method.has_rounds else 0
    several = "once" if not rounds else f"{rounds + 1} times (after warm-up and after each round)"
    numbers = f"{method.few} rounded" if few else f"{method.width}"
    yield f"{numbers} numbers of each shared row, {several}"
    if len(method.layers) > 1 and not few:
        yield f"of images also the inner layers ({', '.join(method.layers)}), once"
    yield f"the same of {queried}, once"
    if "SendFeatures" in spec.down and not few:
        yield (
            "or, where the rows are tables and the active party uses all its labels: every encoded "
            "column of these rows, once; it reads them nearly exactly"
        )
    if "Learned" in spec.up:
        withheld = policy.require_privacy
        yield (
            "class rates that it estimates from its pool, "
            + ("withheld here (require_privacy)" if withheld else f"{rounds} times")
        )
    if "Statistics" in spec.up:
        yield (
            f"where a class lacks labels: at most {method.unseen.components} means and spreads of "
            f"rows of its pool for each such class, each of at least {policy.min_component_rows} "
            "rows, once"
        )
    yield from _shield(spec, method)


def _shield(spec: JobSpec, method: ProtoEVFL) -> Iterator[str]:
    """What stands between these numbers and the columns behind them."""
    defences = settings_from(spec.privacy)
    if method.columns == "sealed":
        bounds = method.sealed
        yield (
            "scores are coarsened (pictures: noise is added) until this party's own measurement "
            f"rebuilds at most {bounds.most_of_number:g} of any number and {bounds.most_of_category:g} of any "
            "category from them (docs/sealed.md), or nothing is sent"
        )
        return
    if defences.clip is None or not defences.embedding_noise:
        rebuilt = "part of the columns" if method.columns == "few" else "most columns"
        yield (
            f"no noise is added: whoever receives these numbers can rebuild {rebuilt} of these "
            "rows from them (docs/privacy.md has figures)"
        )
        return
    budget = "" if spec.epsilon is None else f", up to epsilon {spec.epsilon:g} in this run"
    yield (
        f"clipped to {defences.clip:g}, with noise of {defences.embedding_noise:g} times that on "
        f"every number{budget}"
    )


def ledger_of(folder: Path, policy: Policy) -> RowLedger:
    """The account of the kit in `folder` with its active party."""
    return RowLedger(folder / "ledger" / policy.active, policy.active, policy.limits)
