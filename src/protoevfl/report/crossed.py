"""What crossed between the parties and what it gives away, in words, for whoever answers for the
data."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from protoevfl.artifacts.run_dir import Run
from protoevfl.privacy import column_words, words
from protoevfl.privacy.levels import LEVELS
from protoevfl.privacy.policy import settings_from
from protoevfl.report.parts import NOTHING, Part, Section, Table, Terms, Words, listed

ANONYMOUS = (
    "Embeddings of the shared rows went to the label owner: numbers that a network made of a party's "
    "columns. They are not anonymous: part of the columns can be rebuilt from them. Columns and row ids "
    "as such were not sent."
)
MEASURE = (
    "How much can be rebuilt of each column, and how many labels an attacker finds, is measured by "
    "`protoevfl check` (before training) and `protoevfl audit` (attacks a run)."
)
PUBLIC = (
    "Taken to be known to all: which classes exist, how many rows are shared, and the settings "
    "below."
)


def crossed(run: Run) -> Section:
    title = "What crossed, and what does it give away?"
    return Section("crossed", title, list(_parts(run)))


def _parts(run: Run) -> Iterator[Part]:
    owner = run.need_owner()
    active, *others = owner.parties
    traffic: Mapping[str, Any] = owner.metrics["bytes"]
    if run.manifest.get("one_process"):
        yield Words(
            "This run was trained in one process from files on one machine: nothing left it. What "
            "follows is what passes between companies that run it with these settings."
        )
    yield Words(_columns(run), head=f"The columns of {listed(others)}.")
    yield Words(_labels(run), head=f"The labels of {active}.")
    aligned, statistics = column_words.members({"rows": f"{len(owner.labels):,}"})
    yield Words(str(aligned), head="Who is a customer.")
    kinds = {words.kind_of(name) for name in traffic["by_type"]}
    if "statistics" in kinds:
        yield Words(column_words.POOLS)
    else:
        yield Words(str(statistics))
    if "Learned" in traffic["by_type"]:
        yield Words(words.RATES)
    yield _by_type(traffic, active, others)
    yield _meanings(traffic)
    yield _by_party(traffic, run)
    yield Words(PUBLIC)
    yield Words(MEASURE, "soft")


def _columns(run: Run) -> str:
    """What the label owner got of the other parties' columns."""
    owner = run.need_owner()
    level = str(getattr(owner.method, "columns", "open"))
    if level == "few":
        return words.FEW
    if level == "sealed":
        return (
            f'At the level columns = "sealed" the label owner got {LEVELS["sealed"]}: a coarse '
            "number, from which little of a column can be rebuilt. Before it sends, each party "
            "measures what it gives away."
        )
    if "linear" in owner.memory:
        return words.FEATURES
    if "parameters" in {words.kind_of(name) for name in owner.metrics["bytes"]["by_type"]}:
        return f"{ANONYMOUS} Parameters of networks cross too, trained on all rows of a party."
    return ANONYMOUS


def _labels(run: Run) -> str:
    """What the other parties can learn about labels."""
    owner = run.need_owner()
    traffic = owner.metrics["bytes"]
    names = owner.parties
    if not words.labels_sent(traffic):
        return (
            "Nothing made of labels left the label owner during training: nothing can be learnt "
            "about them from what was sent."
        )
    if any(words.kind_of(name) == "gradients" for name in traffic["by_type"]):
        return words.GRADIENTS
    if {"sealed", "labels"} & set(map(words.kind_of, traffic["by_type"])):
        epsilon = settings_from(run.manifest["privacy"]).sealed_epsilon
        return (
            "Labels were randomised before anything was made of them, and how little that tells of a "
            f"single one is proven, whatever a party does: epsilon {epsilon:g}. {_odds(epsilon)}"
        )
    spent: Mapping[str, float] = owner.metrics.get("epsilon") or {}
    finite = {int(m): value for m, value in spent.items() if math.isfinite(value)}
    if not finite:
        return (
            "What was sent is made of labels, and nothing is proven about how much it tells of a "
            "single one."
        )
    delta = run.manifest["privacy"]["delta"]
    each = listed([f"{names[m]} {value:.2f}" for m, value in finite.items()])
    return (
        "What was sent carries noise, and how little it tells of a single label is proven: "
        f"epsilon {each} (delta {delta:g}). {_odds(max(finite.values()))}"
    )


def _odds(epsilon: float) -> str:
    return (
        "In words: the odds of any guess about one row's label grow at most "
        f"{math.exp(epsilon):.1f} times by it."
    )


def _by_type(traffic: Mapping[str, Any], active: str, others: list[str]) -> Table:
    lines = []
    for name, sizes in traffic["by_type"].items():
        ways = [
            way
            for way, count in (
                (f"{active} to {listed(others)}", sizes["down"]),
                (f"{listed(others)} to {active}", sizes["up"]),
            )
            if count
        ]
        size = f"{sizes['down'] + sizes['up']:,}"
        lines.append((name, "; ".join(ways) or NOTHING, size))
    heads = ("message", "from, to", "bytes")
    return Table("Every message of the training, by its type", heads, lines, words=(1,))


def _meanings(traffic: Mapping[str, Any]) -> Terms:
    """What each type of message is, in the words of the type itself."""
    types = traffic["by_type"]
    return Terms(tuple((t, words.meaning(t) or "not known to this version") for t in types))


def _by_party(traffic: Mapping[str, Any], run: Run) -> Table:
    active, *others = run.names
    lines = [
        (
            name,
            *(f"{traffic['by_party'].get(str(m), {}).get(way, 0):,}" for way in ("up", "down")),
        )
        for m, name in enumerate(others, 1)
    ]
    lines.append(("together", f"{traffic['up']:,}", f"{traffic['down']:,}"))
    heads = ("party", f"sent to {active}", f"got from {active}")
    return Table("Bytes of each party", heads, lines)
