"""What the pieces of Proto-EVFL do: ablation, selection of unaligned rows, gradient norm against rounds."""

from typing import Any

from protoevfl.experiments import derive
from protoevfl.experiments.cells import ALIGNED, cell, smalls
from protoevfl.experiments.spec import ACCURACY, BALANCED, Experiment, Quantity

PSEUDO_LABELS = Quantity("pseudo-labels", derive.pseudo_labels, "%")
VARIANTS: dict[str, dict[str, Any]] = {
    "proto_evfl": {},
    "without_prototype_update": {"rounds.update": "none"},
    "without_prototype_learning": {"rounds.learning": False},
    "without_mixed_prior": {"rounds.mixed_prior": False},
    "without_gated_aggregation": {"head.gate": False},
}
_ablation = [
    *(
        cell("modelnet10", "proto_evfl", n, priority=1 if n == 200 else 3, overrides=o, variant=v)
        for n in (200, 1000) for v, o in VARIANTS.items()
    ),
    *(cell("modelnet10", "vanilla", n, priority=1, variant="vanilla") for n in (200, 1000)),
    *(
        cell("fashion_mnist", "proto_evfl", 200, priority=3, overrides=o, variant=v)
        for v, o in VARIANTS.items()
    ),
]  # fmt: skip

ABLATION = Experiment(
    name="ablation",
    title="Ablation",
    place="Table: ablation study on ModelNet-10",
    source="ablation_modelnet10",
    cells=tuple(_ablation),
    quick=smalls(_ablation, dataset="modelnet10", aligned="200"),
    rows=("dataset", "variant"),
    columns=("aligned",),
    quantities=(ACCURACY, BALANCED, PSEUDO_LABELS),
    note="Every variant changes one setting of the default preset. Pseudo-labels: how often a party names its own pool "
    "rows right by its prototypes.",
)

STRATEGIES = {"cosine_similarity": "cosine", "traditional_ot": "ot", "pdtc_single_direction": "single", "pdtc": "dual"}
_selection = [
    cell("modelnet10", "proto_evfl", n, priority=2 if n == 200 else 4, strategy=k,
         overrides={"rounds.selection": s} if s != "dual" else {})
    for n in ALIGNED for k, s in STRATEGIES.items()
]  # fmt: skip

SELECTION = Experiment(
    name="selection",
    title="Selection of unaligned rows",
    place="Table: selection methods for unaligned data on ModelNet-10",
    source="selection_modelnet10",
    cells=tuple(_selection),
    quick=smalls(_selection, aligned="200"),
    rows=("strategy",),
    columns=("aligned",),
    quantities=(ACCURACY, BALANCED, PSEUDO_LABELS),
    note="In the rounds of the default preset; traditional optimal transport is entropic.",
)

TAUS = (1, 4, 8)
_theorem = [
    cell(
        d, "proto_evfl paper", priority=2 if d == "modelnet10" else 4,
        overrides={"rounds.count": 100, "rounds.epochs": tau},
    ).tagged(tau=str(tau))
    for d in ("modelnet10", "fashion_mnist") for tau in TAUS
]  # fmt: skip

GRADIENT_NORM = Experiment(
    name="gradient_norm",
    title="Gradient norm of the global loss against rounds",
    place="Theorem 1: the mean squared gradient norm falls as 1/sqrt(T) for tau = 1",
    cells=tuple(_theorem),
    quick=smalls(_theorem, dataset="modelnet10"),
    rows=("dataset", "tau"),
    columns=(),
    quantities=(
        Quantity("fitted exponent", derive.exponent, digits=2),
        Quantity("last loss", derive.last_loss, digits=3),
        ACCURACY,
    ),
    figures=("gradients",),
    note="The exponent is the slope of log(mean squared gradient norm up to round T) against log T. A "
    "measurement beside the theorem, not a test of it: the implementation does not meet its assumptions "
    "(strong convexity of the local loss needs phi > L, the local problem is not solved to accuracy, the "
    "hyper-gradient is never computed).",
)
