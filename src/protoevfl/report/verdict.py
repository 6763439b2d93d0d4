"""Does joining pay, and how sure is that: the first section of the page."""

from collections.abc import Iterator, Mapping
from typing import Any

from protoevfl.report.curves import found_within, gains
from protoevfl.report.measured import Measured
from protoevfl.report.parts import (
    NOTHING,
    Interval,
    Part,
    Section,
    Table,
    Words,
    listed,
    percent,
    points,
)

FEW_ROWS = 30  # test rows of a class below which its figures are a rough guess
NAMES = {"auc": "AUC", "accuracy": "accuracy"}
TITLE = "Does joining pay?"


def verdict(measured: Measured) -> Section:
    """The answer in words, then the figures it rests on."""
    if not len(measured.labels):
        return Section("verdict", TITLE, _nothing_measured(measured))
    return Section("verdict", TITLE, [*_answer(measured), *_figures(measured)])


def sentence(gain: Mapping[str, Any], joint: float | None, alone: float | None) -> str:
    """The verdict on a paired gain with its 95 % interval; all are fractions.

    >>> gain = {"measure": "auc", "difference": 0.048, "low": 0.041, "high": 0.055}
    >>> sentence(gain, 0.912, 0.864)
    'Joining pays: AUC 91.2 instead of 86.4 alone; gain 4.8 points, 95 % interval 4.1 to 5.5.'
    """
    difference, low, high = (gain[name] for name in ("difference", "low", "high"))
    figures = f"{NAMES[gain['measure']]} {percent(joint)} instead of {percent(alone)} alone"
    interval = f"95 % interval {points(low)} to {points(high)}"
    if difference == low == high == 0:
        return f"Joining does not pay here: the joint model answers as the own one ({figures})."
    if low > 0:
        return f"Joining pays: {figures}; gain {points(difference)} points, {interval}."
    if high < 0:
        return f"Joining does not pay: {figures}; loss {points(-difference)} points, {interval}."
    doubt = "which includes zero: the difference may be chance"
    return (
        f"Joining is not shown to pay: {figures}; gain {points(difference)} points, "
        f"{interval}, {doubt}."
    )


def _answer(measured: Measured) -> Iterator[Part]:
    gain = measured.gain
    name = str(gain["measure"])
    joint = measured.figures["test"].get(name)
    alone = measured.alone_figures.get(name)
    what = NAMES[name]
    if measured.has_own_model:
        yield Words(sentence(gain, joint, alone), "lead" if gain["low"] > 0 else "lead doubt")
    else:
        yield Words(
            f"Whether joining pays cannot be said from this run: it has no model that "
            f"{measured.active} made by itself. The joint model reaches {what} {percent(joint)}, "
            f"and {percent(alone)} where it is given the columns of {measured.active} only.",
            "lead doubt",
        )
        yield Words(
            f"The difference of {points(gain['difference'])} points (95 % interval "
            f"{points(gain['low'])} to {points(gain['high'])}) says what the others' columns are "
            f"worth to this model. A model that {measured.active} makes by itself may be better "
            "than the joint one with its columns only: before you decide, train again with "
            '`[method] name = "local"`, which keeps the same rows aside, and compare. With labels '
            f"of rows that nobody else has, {measured.active} gets such a model in every run.",
            "caution",
        )
    rows = f"{len(measured.labels):,} rows"
    whence = "new rows" if measured.new_rows else "rows kept aside from training"
    yield Words(
        f"Measured on {rows} ({whence}) that {listed([measured.active, *_there(measured)])} share. "
        "Both models answer for the same rows. The interval says how much the gain would vary with "
        "other rows of the same kind; it does not say how much training again would change."
    )
    title = "Gain of joining" if measured.has_own_model else "Difference"
    yield Interval(
        f"{title} in points of {what}",
        f"{points(gain['difference'])} points, 95 % interval {points(gain['low'])} to "
        f"{points(gain['high'])}",
        gain["difference"],
        gain["low"],
        gain["high"],
        f"points of {what}",
        measured.alone_name,
    )
    if len(measured.classes) == 2 and measured.drawn:
        yield Words(_found_in_a_list(measured))
    yield from _cautions(measured)


def _there(measured: Measured) -> list[str]:
    return [name for name in measured.others if name not in measured.away]


def _found_in_a_list(measured: Measured) -> str:
    """What the gain means for a list to be worked through."""
    (z,) = measured.drawn
    joint, alone, hits = measured.scores(z)
    together, single = (found_within(gains(p, hits), 0.1) for p in (joint, alone))
    return (
        f"In practice: looking at the tenth of rows ranked highest finds {percent(together, 0)} % "
        f"of “{measured.classes[z]}” with the joint model, {percent(single, 0)} % with "
        f"{measured.alone_name}."
    )


def _cautions(measured: Measured) -> Iterator[Part]:
    few = [
        f"{name} ({rows})"
        for name, rows in zip(measured.classes, measured.counts, strict=True)
        if rows < FEW_ROWS
    ]
    if few:
        yield Words(
            f"Few test rows of {listed(few[:6])}{' and others' if len(few) > 6 else ''}: what is "
            "said about them below is a rough guess.",
            "caution",
        )
    if measured.away:
        yield Words(
            f"{listed(measured.away)} sent nothing of these rows: the figures are those without.",
            "caution",
        )
    if unseen := [measured.classes[z] for z in measured.owner.unseen]:
        yield Words(
            f"No label shows {listed(unseen)}: rows of it were looked for among the unlabelled "
            "ones, and are recognised the better the more rows are predicted together.",
            "caution",
        )


def _figures(measured: Measured) -> Iterator[Part]:
    joint, alone = measured.figures["test"], measured.alone_figures
    common = measured.figures["majority"]
    lines = [
        (f"{title}", percent(joint[name]), percent(alone[name]), constant)
        for title, name, constant in (
            ("AUC %", "auc", NOTHING),
            ("accuracy %", "accuracy", percent(common["accuracy"])),
            ("balanced accuracy %", "balanced_accuracy", NOTHING),
        )
        if joint[name] is not None
    ]
    for title, name in (("Brier score", "brier"), ("calibration error", "calibration_error")):
        lines.append((title, f"{joint[name]:.3f}", f"{alone[name]:.3f}", NOTHING))
    heads = ("", "joint", measured.alone_name, f"always “{common['class']}”")
    yield Table("The figures of both models on these rows", heads, lines)
    yield Words(
        "AUC: how often a row of the class is ranked above one that is not (50 is chance, 100 "
        "perfect). Balanced accuracy: mean over the classes. Brier score and calibration error: how "
        "far probabilities are off, 0 is best.",
        "soft",
    )


def _nothing_measured(measured: Measured) -> list[Part]:
    inputs = " ".join(f"--input {name}=FILE" for name in measured.owner.parties)
    return [
        Words("Nobody knows: this run kept no rows to measure on (test = 0).", "lead doubt"),
        Words(
            "Without rows that took no part in training, neither the gain of joining nor any curve "
            "can be had. Two ways to get them:"
        ),
        Words(
            "Train again with `test = 0.2` in protoevfl.toml (between companies: in party.toml of "
            f"{measured.active}): a fifth of the shared labelled rows is kept aside."
        ),
        Words(
            "Or measure this run on new rows that all parties have and whose labels are known: "
            f"`protoevfl report {measured.run.path} {inputs} --labels FILE`"
        ),
    ]
