"""Where the best methods lie within a point of each other and five seeds do not decide: run it with `--seeds 0-14`."""

from protoevfl.reproduction.grid import cell, smalls
from protoevfl.reproduction.spec import DIFFERENCE, RARE, Experiment, Field, Quantity

BASELINES = ("ss_vfl_i", "ss_vfl_c", "one_shot", "fedhssl", "vanilla", "laser", "fedcvt")
_cases = [
    ("modelnet10", "normal", "accuracy", BASELINES),
    ("modelnet10", "few_shot", "balanced_accuracy", ("ss_vfl_c", "one_shot", "fedhssl", "vanilla", "laser")),
    ("adult", "normal", "auc", (*BASELINES, "local")),
]
_margins = [
    cell(dataset, method, 200, setting, priority=5, metric=metric)
    for dataset, setting, metric, others in _cases for method in ("proto_evfl", *others)
]  # fmt: skip

MARGINS = Experiment(
    name="margins",
    title="Close cases",
    place="Not in the paper",
    cells=tuple(_margins),
    quick=smalls(_margins, metric="accuracy"),
    rows=("dataset", "setting", "metric", "method"),
    columns=(),
    quantities=(Quantity("result", Field(("metrics.{metric}",), 100.0), "%"), DIFFERENCE, RARE),
    against="proto_evfl",
    note="200 aligned rows. Paired difference: the method's result less Proto-EVFL's, seed by seed; its standard error "
    "is the standard deviation over the root of the number of seeds.",
)
