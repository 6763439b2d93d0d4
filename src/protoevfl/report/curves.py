"""The points of the page's curves, from scores of one class against the rest; everything is a
fraction between 0 and 1.

    ROC                false positive rate -> share of the class that is found
    precision-recall   share of the class that is found -> how many of those named are of it
    gains              share of all rows looked at, the likeliest first -> share of the class found
    calibration        mean probability in a bin -> how often it was true there

scores (n,) probabilities, hits (n,) true where the row is of the class; both occur.
"""

import numpy as np
from numpy.typing import NDArray

Points = list[tuple[float, float]]
Floats = NDArray[np.float64]
Hits = NDArray[np.bool_]

MOST = 160  # points of a curve on the page
BINS = 10  # of a calibration curve, with about as many rows in each


def roc(scores: Floats, hits: Hits) -> Points:
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(hits, scores)
    return _thinned(false, true)


def precision_recall(scores: Floats, hits: Hits) -> Points:
    """From the row named first to all rows named. Where nothing is named there is no precision, so
    the point (0, 1) that closes such curves by convention is left out."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(hits, scores)
    return _thinned(recall[:-1][::-1], precision[:-1][::-1])


def gains(scores: Floats, hits: Hits) -> Points:
    """Rows of equal score are looked at together, in no order: a straight piece."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    share_of_class = np.cumsum(hits[order])[ends] / hits.sum()
    looked_at = (ends + 1) / len(order)
    return _thinned(np.append(0.0, looked_at), np.append(0.0, share_of_class))


def found_within(points: Points, share: float) -> float:
    """The share of the class found among this share of the rows, from a gains curve."""
    x, y = zip(*points)
    return float(np.interp(share, x, y))


def calibration(scores: Floats, hits: Hits) -> Points:
    """(mean probability, how often it was true) in bins of about equally many rows."""
    order = np.argsort(scores, kind="stable")
    bins = [part for part in np.array_split(order, min(BINS, len(order))) if len(part)]
    return [(float(scores[part].mean()), float(hits[part].mean())) for part in bins]


def _thinned(x: Floats, y: Floats) -> Points:
    """At most MOST points of a curve, spread evenly along it; the ends stay."""
    if len(x) > MOST:
        walked = np.append(0.0, np.cumsum(np.hypot(np.diff(x), np.diff(y))))
        near = np.searchsorted(walked, np.linspace(0, walked[-1], MOST))
        kept = np.unique(np.concatenate([[0], near, [len(x) - 1]]))
        x, y = x[kept], y[kept]
    return list(zip(x.tolist(), y.tolist(), strict=True))
