"""Numbers worked out from a record: curves of its history, the exponent of a power law, a run's
length.

exponent of Theorem 1:  log( 1/T sum_{t<=T} |grad_t|^2 ) = a + b log T
"""

import math
from collections.abc import Sequence
from statistics import linear_regression

from protoevfl.reproduction.spec import Record, Tags, dig


def curve(record: Record, name: str) -> list[float]:
    """The values a run reported under `name`, in order."""
    values = [entry.get(name) for entry in record.get("history") or []]
    return [
        float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)
    ]


def mean_squares(gradients: Sequence[float]) -> list[float]:
    """1/T sum_{t<=T} g_t^2 for T = 1, 2, ..."""
    total, means = 0.0, []
    for count, g in enumerate(gradients, start=1):
        total += g * g
        means.append(total / count)
    return means


def power_law(values: Sequence[float]) -> tuple[float, float] | None:
    """(b, a) of  log v_T = a + b log T  by least squares over T = 2, 3, ...; None for one point.

    >>> power_law([9.0, 1.0, 1.0])
    (0.0, 0.0)
    """
    points = [(math.log(t), math.log(v)) for t, v in enumerate(values, start=1) if t > 1 and v > 0]
    if len(points) < 2:
        return None
    slope, intercept = linear_regression(*zip(*points, strict=True))
    return slope, intercept


def exponent(record: Record, tags: Tags) -> float | None:
    """The fitted exponent of a run's mean squared gradient norm.

    >>> run = {"history": [{"gradient_norm": 1.0}] * 9}
    >>> exponent(run, {})
    0.0
    """
    power = power_law(mean_squares(curve(record, "gradient_norm")))
    return None if power is None else power[0]


def last_loss(record: Record, tags: Tags) -> float | None:
    losses = curve(record, "loss")
    return losses[-1] if losses else None


def pseudo_labels(record: Record, tags: Tags) -> float | None:
    """How often the parties name their own pool rows right, in percent, mean over parties."""
    by_party = dig(record, "metrics.pseudo_label_accuracy")
    values = [v for v in by_party.values() if v is not None] if isinstance(by_party, dict) else []
    return 100 * sum(values) / len(values) if values else None


def length(record: Record, tags: Tags) -> float | None:
    """Rounds or epochs of a curve's point."""
    return float(tags["length"]) if "length" in tags else None


def total_bytes(record: Record) -> float | None:
    up, down = dig(record, "bytes.up"), dig(record, "bytes.down")
    return None if up is None or down is None else float(up + down)
