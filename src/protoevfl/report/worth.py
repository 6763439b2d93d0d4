"""What each party is worth, which own columns matter, and what own pictures look like."""

import base64
import io
from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.pipeline.importance import MOST_ROWS, own_columns
from protoevfl.pipeline.value import Worth, value
from protoevfl.report.measured import Measured
from protoevfl.report.parts import (
    NOTHING,
    Bar,
    Cell,
    Part,
    Pictures,
    Section,
    Table,
    Words,
    listed,
    percent,
    points,
)
from protoevfl.report.verdict import NAMES

SHOWN = 20  # columns
PICTURE_CLASSES = 10
PICTURES_EACH = 3
SIDE = 64  # to which small pictures are enlarged


def sections(measured: Measured, observer: Observer = SILENT) -> list[Section]:
    own = list(_own_columns(measured, observer))
    has_pictures = measured.rows.own is not None and measured.rows.own.dim() > 2
    title = f"Which of {measured.active}'s own columns matter?"
    if has_pictures:
        title = f"What do test rows of {measured.active} look like?"
    return [
        Section("parties", "What is each party worth?", list(_parties(measured))),
        Section("columns", title, own),
    ]


def _parties(measured: Measured) -> Iterator[Part]:
    if measured.away:
        yield Words(
            f"Not measured: {listed(measured.away)} sent nothing of the test rows. Measure again "
            "when all are there.",
            "caution",
        )
        return
    try:
        worth = value(measured.owner, measured.rows)
    except UserError as error:
        yield Words(f"Not measured: {error}.", "caution")
        return
    what = NAMES[worth.metric]
    start = f"{worth.start} alone" if worth.start else "nobody"
    nobody = "" if worth.start else " (chance, or the commonest class)"
    yield Words(
        f"From {percent(worth.nobody)} {what} with {start}{nobody} to {percent(worth.everyone)} "
        "with all: the difference is shared out by what each party adds on average, whatever the "
        "order in which they join (Shapley value). The shares add up to the whole gain."
    )
    yield _shares(worth, what)
    yield Words(
        "Where the interval includes zero, the party's share may be chance. A party whose columns "
        "another one repeats is worth little beside it and much without it.",
        "soft",
    )


def _shares(worth: Worth, what: str) -> Table:
    scale = _scale([(share.low, share.high) for share in worth.shares])
    beside = f"with {worth.start} only" if worth.start else "by itself"
    lines = [
        (
            share.party,
            Cell("", Bar(share.value, share.low, share.high, scale)),
            points(share.value),
            f"{points(share.low)} to {points(share.high)}",
            percent(share.alone),
            percent(share.without),
        )
        for share in worth.shares
    ]
    heads = ("party", "", "points", "95 % interval", beside, "all but this one")
    return Table(f"Value in points of {what}, and {what} in per cent", heads, lines)


def _scale(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """From the least to the most of all intervals, zero among them."""
    low = min(0.0, *(low for low, _ in intervals))
    high = max(0.0, *(high for _, high in intervals))
    return (low, high) if high > low else (0.0, 1.0)


def _own_columns(measured: Measured, observer: Observer) -> Iterator[Part]:
    own = measured.rows.own
    if own is None or measured.active not in measured.run.parties:
        yield Words(
            f"Not measured: the rows of {measured.active} or its folder of the run are not at hand. "
            "Runs trained with this version keep them; train again, or put the folder back.",
            "caution",
        )
        return
    if own.dim() > 2:
        yield from _pictures(measured, own)
        return
    party = measured.run.parties[measured.active]
    column_gains = own_columns(measured.owner, party, measured.rows, observer)
    if not column_gains:
        yield Words("Not measured: the test rows are of one class only.", "caution")
        return
    what = NAMES[str(measured.gain["measure"])]
    rows = min(len(own), MOST_ROWS)
    yield Words(
        f"Points of {what} that the joint model loses where one column of {measured.active} is "
        f"shuffled among {rows:,} of its test rows. Columns of the other parties cannot be looked "
        "at: they are not here."
    )
    shown = column_gains[:SHOWN]
    scale = _scale([(one.low, one.high) for one in shown])
    lines = [
        (
            one.column,
            Cell("", Bar(one.joint, one.low, one.high, scale)),
            points(one.joint),
            f"{points(one.low)} to {points(one.high)}",
            NOTHING if one.alone is None else points(one.alone),
        )
        for one in shown
    ]
    heads = ("column", "", "joint", "95 % interval", "alone")
    caption = f"Own columns, the most important first; points of {what}"
    if measured.has_own_model:
        yield Table(caption, heads, lines)
        after = " What matters alone and not jointly, the other parties know too."
    else:
        yield Table(caption, heads[:-1], [line[:-1] for line in lines])
        after = ""
    if len(column_gains) > len(shown):
        last = shown[-1].joint
        not_shown = len(column_gains) - len(shown)
        yield Words(
            f"{not_shown} further columns matter {points(last)} points or less each.", "soft"
        )
    yield Words(
        "Of columns that say the same, each matters little: shuffle one and the model reads the "
        f"other.{after}",
        "soft",
    )


def _pictures(measured: Measured, own: Tensor) -> Iterator[Part]:
    """A few test rows of each class as the active party sees them, with what the model says."""
    yield Words(
        f"{measured.active} holds pictures, which have no columns to compare. Some of its test rows, "
        "as it sees them (the other parties' part of the same rows is not here), and what the joint "
        "model says; of each class a mistake comes first where there is one, marked ✗."
    )
    counts = measured.counts
    order = sorted(range(len(counts)), key=lambda z: -counts[z])[:PICTURE_CLASSES]
    shown = []
    for z in order:
        of_class = (measured.labels[: len(own)] == z).nonzero()[:, 0]
        is_right = measured.choice[of_class] == z
        mistakes = of_class[~is_right][:1].tolist()
        right = of_class[is_right].tolist()
        for row in [*mistakes, *right][:PICTURES_EACH]:
            predicted = int(measured.choice[row])
            sure = percent(float(measured.joint[row, predicted]), 0)
            mark = "" if predicted == z else "✗ "
            shown.append(
                (
                    address(own[row]),
                    f"{mark}is {measured.classes[z]}, called {measured.classes[predicted]} ({sure} %)",
                )
            )
    yield Pictures(f"Test rows of {measured.active}", tuple(shown))


def address(picture: Tensor) -> str:
    """A picture (C, H, W), bytes or numbers in 0..1, as the data address of a small PNG."""
    from PIL import Image

    pixels = picture.cpu().numpy()
    if pixels.dtype != np.uint8:
        pixels = (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)
    grey = pixels[0] if len(pixels) != 3 else pixels.transpose(1, 2, 0)
    image = Image.fromarray(grey)
    factor = max(1, SIDE // max(image.size))
    if factor > 1:
        size = (image.width * factor, image.height * factor)
        image = image.resize(size, Image.Resampling.NEAREST)
    else:
        image.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    image.save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
