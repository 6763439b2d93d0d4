"""How good the joint model is beside the own one: curves, calibration, gains, confusion."""

from collections.abc import Callable, Iterator, Sequence

from protoevfl.core import decisions, metrics
from protoevfl.report import curves
from protoevfl.report.curves import Floats, Hits, Points, found_within
from protoevfl.report.measured import Measured
from protoevfl.report.parts import (
    NOTHING,
    Cell,
    Chart,
    Charts,
    Part,
    Section,
    Series,
    Table,
    Words,
    listed,
    percent,
)

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)  # of the rows, in the table beside the gains chart
FEW_SHARES = (0.05, 0.1, 0.2)  # where several classes are in it
WIDEST = 12  # classes of a confusion table; with more the commonest mistakes are listed
MOST_CLASSES = 30  # lines of the table of classes
DIAGONAL: Points = [(0.0, 0.0), (1.0, 1.0)]
ONE_CLASS = Words(
    "All test rows are of one class, so no curve can be drawn: more test rows are needed.",
    "caution",
)
Curve = Callable[[Floats, Hits], Points]


def sections(measured: Measured) -> list[Section]:
    return [
        Section("ranking", "How well does it tell rows apart?", list(_ranking(measured))),
        Section("calibration", "Do the probabilities hold?", list(_calibration(measured))),
        Section("gains", "How much is found by looking at few rows?", list(_gains(measured))),
        Section("confusion", "What does the decision rule do?", list(_confusion(measured))),
    ]


def _series(measured: Measured, curve: Curve, dots: bool = False) -> tuple[Series, ...]:
    """Joint and alone of every class that is drawn."""
    several = len(measured.drawn) > 1
    series = []
    for place, z in enumerate(measured.drawn):
        joint, alone, hits = measured.scores(z)
        name = f"{measured.classes[z]}, " if several else ""
        colours = (place, place) if several else (0, 1)
        series.append(Series(f"{name}joint", curve(joint, hits), colours[0], False, dots))
        series.append(
            Series(f"{name}{measured.alone_name}", curve(alone, hits), colours[1], True, dots)
        )
    return tuple(series)


def _against_the_rest(measured: Measured) -> str:
    names = [f"“{measured.classes[z]}”" for z in measured.drawn]
    if len(measured.classes) == 2:
        return f"The curves are about finding {names[0]}, the rarer class."
    return (
        f"The curves show the {len(names)} commonest classes, {listed(names)}, each against all "
        "others."
    )


def _ranking(measured: Measured) -> Iterator[Part]:
    if not measured.drawn:
        yield ONE_CLASS
        return
    yield Words(_against_the_rest(measured) + " The higher a curve, the better.")
    rate = [measured.counts[z] / len(measured.labels) for z in measured.drawn]
    roc = Chart(
        "ROC curve",
        "Share of the class that is found, over the share of other rows wrongly named.",
        "others wrongly named, %",
        "found, %",
        _series(measured, curves.roc),
        DIAGONAL,
    )
    precision = Chart(
        "Precision and recall",
        "How many of the rows named are of the class, over the share of the class that is found.",
        "found, %",
        "right among those named, %",
        _series(measured, curves.precision_recall),
        [(0.0, rate[0]), (1.0, rate[0])] if len(rate) == 1 else [],
    )
    yield Charts((roc, precision))
    yield _class_table(measured)


def _class_table(measured: Measured) -> Table:
    from sklearn.metrics import average_precision_score, roc_auc_score

    lines = []
    counts = measured.counts
    order = sorted(range(len(counts)), key=lambda z: -counts[z])
    shown = measured.drawn if len(counts) == 2 else order[:MOST_CLASSES]
    for z in shown:
        joint, alone, hits = measured.scores(z)
        both = bool(hits.any()) and not bool(hits.all())
        areas = [
            percent(float(area(hits, p))) if both else NOTHING
            for area in (roc_auc_score, average_precision_score)
            for p in (joint, alone)
        ]
        lines.append((measured.classes[z], f"{counts[z]:,}", *areas))
    left_out = len(counts) - len(shown) if len(counts) > 2 else 0
    more = f" ({left_out} rarer classes are left out)" if left_out else ""
    single = measured.alone_short
    areas_of = [f"{area} {who}" for area in ("AUC", "precision") for who in ("joint", single)]
    heads = ("class", "test rows", *areas_of)
    what = "Area under both curves in per cent, each class against the rest"
    return Table(f"{what}{more}; precision is the mean over all thresholds", heads, lines)


def _calibration(measured: Measured) -> Iterator[Part]:
    joint, alone = measured.figures["test"], measured.alone_figures
    yield Words(
        "Where the model says 30 %, it should be true for 30 of 100 rows. Brier score: the mean "
        "square of how far probabilities are off. Calibration error: the mean distance between the "
        "probability of an answer and how often it is right. Of both, 0 is best."
    )
    lines = [
        (title, f"{joint[name]:.3f}", f"{alone[name]:.3f}")
        for title, name in (("Brier score", "brier"), ("calibration error", "calibration_error"))
    ]
    table = Table("How far probabilities are off", ("", "joint", measured.alone_name), lines)
    if not measured.drawn:
        yield table
        return
    several = len(measured.drawn) > 1
    chart = Chart(
        "Calibration",
        "How often it was true, over the probability that was said; the diagonal is best. Every "
        f"dot stands for about {max(1, len(measured.labels) // curves.BINS):,} rows.",
        "probability said, %",
        "true, %",
        _series(measured, curves.calibration, dots=True),
        DIAGONAL,
    )
    yield Charts((chart,), table)
    if several:
        yield Words(_against_the_rest(measured), "soft")


def _gains(measured: Measured) -> Iterator[Part]:
    if not measured.drawn:
        yield ONE_CLASS
        return
    series = _series(measured, curves.gains)
    yield Words(
        "Rows are looked at in the order of their probability, the likeliest first. The line of "
        "chance is what looking at random finds."
    )
    chart = Chart(
        "Gains",
        "Share of the class that is found, over the share of all rows looked at.",
        "rows looked at, %",
        "found, %",
        series,
        DIAGONAL,
    )
    lines = []
    for place, z in enumerate(measured.drawn):
        both = series[2 * place : 2 * place + 2]
        for share in FEW_SHARES if len(measured.drawn) > 1 else SHARES:
            shares = [found_within(one.points, share) for one in both]
            name = measured.classes[z]
            line = (f"{100 * share:.0f} %", *(percent(value, 0) for value in shares))
            lift = f"{shares[0] / share:.1f} ×"
            lines.append((name, *line, lift) if len(measured.drawn) > 1 else (*line, lift))
    heads = (
        "rows looked at",
        "found % joint",
        f"found % {measured.alone_short}",
        "joint against chance",
    )
    if len(measured.drawn) > 1:
        table = Table("Found by looking at few rows", ("class", *heads), lines)
    else:
        name = measured.classes[measured.drawn[0]]
        table = Table(f"Share of “{name}” found by looking at few rows", heads, lines)
    yield Charts((chart,), table)


def rule_in_words(rule: decisions.Rule, classes: Sequence[str]) -> str:
    """
    >>> rule_in_words({1: 0.2}, ["no", "yes"])
    'A row is called “yes” from a probability of 20 % on, else the likeliest other class.'
    """
    if rule == "likeliest":
        return "A row is called by its likeliest class."
    if rule == "balanced":
        return "A row is called by the class whose probability exceeds its usual rate most."
    assert not isinstance(rule, str)
    each = [f"“{classes[z]}” from a probability of {100 * bar:g} % on" for z, bar in rule.items()]
    return f"A row is called {listed(each)}, else the likeliest other class."


def _confusion(measured: Measured) -> Iterator[Part]:
    counts = metrics.confusion(measured.choice, measured.labels, len(measured.classes)).long()
    right = int(counts.diagonal().sum())
    yield Words(
        f"{rule_in_words(measured.owner.decision, measured.classes)} With this rule the joint "
        f"model is right for {right:,} of {len(measured.labels):,} rows "
        f"({percent(right / len(measured.labels))} %). Another rule is a line in the "
        "configuration (`decision` under `[label]`); a threshold decides which mistakes are made."
    )
    if len(measured.classes) == 2 and measured.drawn:
        (z,) = measured.drawn
        named = int(counts[:, z].sum())
        of_class = int(counts[z].sum())
        hit = int(counts[z, z])
        share = f"{percent(hit / named, 0)} % of them" if named else "none"
        yield Words(
            f"It calls {named:,} rows “{measured.classes[z]}”; {hit:,} ({share}) are. It finds "
            f"{percent(hit / of_class, 0)} % of the {of_class:,} rows that are."
        )
    if len(measured.classes) <= WIDEST:
        lines: list[tuple[str | Cell, ...]] = []
        for y, name in enumerate(measured.classes):
            row = counts[y].tolist()
            cells = [Cell(f"{n:,}", shade=n / max(1, sum(row))) for n in row]
            lines.append((f"is {name}", *cells, f"{sum(row):,}"))
        heads = ("", *(f"called {name}" for name in measured.classes), "rows")
        yield Table("Test rows by their class and by what the joint model calls them", heads, lines)
        return
    mistakes = [
        (int(counts[y, z]), y, z)
        for y in range(len(counts))
        for z in range(len(counts))
        if y != z and counts[y, z]
    ]
    commonest = [
        (measured.classes[y], measured.classes[z], f"{n:,}", f"{int(counts[y].sum()):,}")
        for n, y, z in sorted(mistakes, key=lambda mistake: -mistake[0])[:15]
    ]
    heads = ("is", "called", "rows", "of")
    yield Table("The commonest mistakes of the joint model", heads, commonest, words=(1,))
