"""What the pieces of Proto-EVFL do: ablation, selection of unaligned rows, gradient norm against
rounds."""

from typing import Any

from protoevfl.reproduction import record_stats
from protoevfl.reproduction.grid import ALIGNED, IMAGES, cell, smalls
from protoevfl.reproduction.spec import (
    ACCURACY,
    BALANCED,
    DIFFERENCE,
    Experiment,
    Quantity,
    percent,
)

PSEUDO_LABELS = Quantity("pseudo-labels", record_stats.pseudo_labels, "%")
# a batch is otherwise predicted without head and gate
HEAD_DECIDES: dict[str, Any] = {"unseen.self_training": 0.0}
# the paper has no defence: under the default's noise the rounds teach nothing that could be taken
# away
UNDEFENDED = "proto_evfl undefended"
VARIANTS: dict[str, dict[str, Any]] = {
    "proto_evfl": {},
    "without_prototype_update": {"rounds.update": "none"},
    "without_prototype_learning": {"rounds.learning": False},
    "without_mixed_prior": {"rounds.mixed_prior": False},
    "without_gated_aggregation": {"head.gate": False},
}
_ablation = [
    *(
        cell(
            "modelnet10",
            UNDEFENDED,
            n,
            priority=1 if n == 200 else 3,
            overrides={**HEAD_DECIDES, **o},
            variant=v,
        )
        for n in (200, 1000)
        for v, o in VARIANTS.items()
    ),
    *(cell("modelnet10", "vanilla", n, priority=1, variant="vanilla") for n in (200, 1000)),
    *(
        cell(
            "fashion_mnist", UNDEFENDED, 200, priority=3, overrides={**HEAD_DECIDES, **o}, variant=v
        )
        for v, o in VARIANTS.items()
    ),
]

ABLATION = Experiment(
    name="ablation",
    title="Ablation",
    place="Table: ablation study on ModelNet-10",
    source="ablation_modelnet10",
    cells=tuple(_ablation),
    quick=smalls(_ablation, dataset="modelnet10", aligned="200"),
    rows=("dataset", "variant"),
    columns=("aligned",),
    quantities=(ACCURACY, DIFFERENCE, BALANCED, PSEUDO_LABELS),
    against="proto_evfl",
    note="Every variant changes one setting of the undefended preset, the head decides, as in the "
    "paper. Paired difference: to the first row, seed by seed. Pseudo-labels: how often a party "
    "names its own pool rows right by its prototypes.",
)

PIECES: dict[tuple[str, str], dict[str, Any]] = {
    ("batch", "default"): {},
    ("batch", "no rounds"): {"rounds.count": 0},
    ("batch", "no warm-up"): {"warm.epochs": 0},
    ("batch", "output layer alone"): {"layers": ("output",)},
    ("head", "default"): {},
    ("head", "no warm-up"): {"warm.epochs": 0},
    ("head", "output layer alone"): {"layers": ("output",)},
    ("head", "no gate"): {"head.gate": False},
    ("head", "no adaptor"): {"head.adaptor": False},
    ("head", "one head for five"): {"head.members": 1},
    ("head", "no mixup"): {"head.mixup": 0.0},
    ("head", "no noise on embeddings"): {"head.noise": 0.0},
    ("head", "no dropout"): {"head.dropout": 0.0},
    ("head", "no party dropout"): {"head.party_dropout": 0.0},
    ("head", "linear head"): {"head.hidden": 0},
}
_pieces = [
    cell(
        d, "proto_evfl", priority=3, decides=decides, piece=piece,
        overrides={**(HEAD_DECIDES if decides == "head" else {}), **o},
    )
    for d in IMAGES for (decides, piece), o in PIECES.items()
]  # fmt: skip

OUR_PIECES = Experiment(
    name="pieces",
    title="Every piece of Proto-EVFL as it is here",
    place="Not in the paper",
    cells=tuple(_pieces),
    quick=smalls(_pieces, dataset="modelnet10", piece="default")
    + smalls(_pieces, dataset="modelnet10", piece="no gate"),
    rows=("dataset", "decides", "piece"),
    columns=(),
    quantities=(
        ACCURACY,
        DIFFERENCE,
        Quantity("calibration error", percent("calibration_error"), "%"),
    ),
    against="default",
    note="Each line changes one setting of the default preset; batch: the rows to be predicted "
    "teach, too (the default); head: they do not, as with fewer than 200 of them. Paired "
    "difference: to the default of the same group, seed by seed.",
)

STRATEGIES = {
    "cosine_similarity": "cosine",
    "traditional_ot": "ot",
    "pdtc_single_direction": "single",
    "pdtc": "dual",
}
_selection = [
    cell("modelnet10", UNDEFENDED, n, priority=2 if n == 200 else 4, strategy=k,
         overrides={**HEAD_DECIDES, **({"rounds.selection": s} if s != "dual" else {})})
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
    note="In the rounds of the undefended preset, the head decides; traditional optimal transport "
    "is entropic.",
)

TAUS = (1, 4, 8)
_theorem = [
    cell(
        d, "proto_evfl paper", priority=2 if d == "modelnet10" else 4, pool=pool,
        overrides={"rounds.count": 100, "rounds.epochs": tau},
    ).tagged(tau=str(tau))
    for d, pool in (("modelnet10", None), ("fashion_mnist", 700)) for tau in TAUS
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
        Quantity("fitted exponent", record_stats.exponent, digits=2),
        Quantity("last loss", record_stats.last_loss, digits=3),
        ACCURACY,
    ),
    figures=("gradients",),
    note="The exponent is the slope of log(mean squared gradient norm up to round T) against log "
    "T. A measurement beside the theorem, not a test of it: the implementation does not meet its "
    "assumptions (strong convexity of the local loss needs phi > L, the local problem is not "
    "solved to accuracy, the hyper-gradient is never computed). Fashion-MNIST with pools of 700 "
    "rows, as many as ModelNet-10 has.",
)
