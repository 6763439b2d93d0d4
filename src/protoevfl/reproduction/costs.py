"""What training costs: bytes, rounds and seconds, and how accuracy grows with them.

Every point of a curve is a run of its own that was told its length: no best epoch is picked on test
rows.
"""

from protoevfl.reproduction import record_stats
from protoevfl.reproduction.grid import ALIGNED, IMAGES, LENGTHS, TABLES, cell, smalls
from protoevfl.reproduction.spec import (
    ACCURACY,
    EXCHANGES,
    MEGABYTES,
    SECONDS,
    Experiment,
    Field,
    Quantity,
)

_curves = [
    cell(d, m, priority=2 if d in IMAGES else 4, overrides=settings).tagged(
        length=str(sum(settings.values()))
    )
    for d in (*IMAGES, *TABLES)
    for m, lengths in LENGTHS.items()
    for settings in lengths
]
_curves_quick = smalls(_curves, dataset="modelnet10")

CONVERGENCE = Experiment(
    name="convergence",
    title="Convergence curves",
    place="Figure: convergence comparisons on four data sets",
    cells=tuple(_curves),
    quick=_curves_quick,
    rows=("dataset", "method"),
    columns=("length",),
    quantities=(ACCURACY, MEGABYTES, EXCHANGES),
    figures=("accuracy_bytes", "accuracy_rounds", "losses"),
    note="Length is the number of epochs that cross the border (Vanilla VFL, SS-VFL), pre-training "
    "plus fine-tuning epochs (FedHSSL) or rounds after the warm-up (Proto-EVFL). The paper prints "
    "these figures without numbers.",
)

_finals = [
    cell(d, m, n, priority=3).tagged(length="0")
    for d in (*IMAGES, *TABLES) for n in ALIGNED[1:] for m in LENGTHS
]  # fmt: skip

COMMUNICATION = Experiment(
    name="communication",
    title="Communication cost",
    place="Figure: communication cost to reach optimal accuracy on four data sets",
    cells=(*_curves, *_finals),
    quick=_curves_quick,
    rows=("dataset", "method"),
    columns=("aligned",),
    reach=("dataset", "aligned", "method"),
    quantities=(MEGABYTES, ACCURACY, EXCHANGES),
    figures=("overview", "messages"),
    note="200 aligned rows: megabytes of the shortest run within one point of the best accuracy on "
    "the method's curve. 600 and 1000: megabytes of the run in the default length. The paper "
    "prints this figure without numbers.",
)

ROUNDS = Experiment(
    name="rounds",
    title="Communication rounds",
    place="Text: mean rounds to peak accuracy over four data sets, 200 aligned rows",
    source="rounds_to_peak_at_200",
    cells=tuple(_curves),
    quick=_curves_quick,
    rows=("method",),
    columns=(),
    reach=("dataset", "method"),
    pool=("dataset",),
    quantities=(
        Quantity("rounds", record_stats.length, printed="mean_rounds_over_four_datasets"),
        EXCHANGES,
        ACCURACY,
    ),
    note="Rounds as the paper seems to count them: epochs or rounds. Exchanges are what a network "
    "sees: one request and reply each. Split learning needs two for every batch. Proto-EVFL's "
    "first upload (round 0) counts as an exchange. Mean over the data sets that every method has "
    "been run on (values in brackets).",
)

_time = [cell("modelnet10", m, n, priority=2 if n == 200 else 4) for n in ALIGNED for m in LENGTHS]

TRAINING_TIME = Experiment(
    name="training_time",
    title="Training time",
    place="Table: training time on ModelNet-10",
    source="training_hours_modelnet10",
    cells=tuple(_time),
    quick=smalls(_time, aligned="200"),
    rows=("method",),
    columns=("aligned",),
    quantities=(
        Quantity("seconds", SECONDS.value, "s", printed="hours", printed_scale=3600.0),
        Quantity("peak memory", Field(("peak_memory_mb",)), "MB", digits=0),
    ),
    note="Seconds of one seed when its seeds run in lockstep on one device (named in the records), "
    "from data in memory to metrics. The paper's hours are for unknown hardware; 13 to 76 hours "
    "for 200 to 1000 rows are no method's cost.",
)
