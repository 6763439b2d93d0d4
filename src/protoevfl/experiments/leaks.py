"""Privacy tables: label inference, noise on representations, noise on prototypes."""

from protoevfl.experiments.cells import ALIGNED, cell, smalls
from protoevfl.experiments.spec import ACCURACY, Experiment, Quantity, rate

KAPPAS = ("0", "0.01", "0.05", "0.1", "0.2")
RUNNER = "protoevfl.experiments.private:run"

_inference = [
    cell("fashion_mnist", m, n, priority=3 if n == 200 else 4, overrides={"privacy.audit": True})
    for n in (200, 1000)
    for m in ("vanilla", "fedhssl", "proto_evfl", "proto_evfl paper", "proto_evfl one_way")
]

LABEL_INFERENCE = Experiment(
    name="label_inference",
    title="Label inference",
    place="Table: attack accuracy under label inference attacks",
    source="label_inference",
    cells=tuple(_inference),
    quick=smalls(_inference, aligned="200", method="vanilla") + smalls(_inference, aligned="200", method="proto_evfl"),
    rows=("method",),
    columns=("aligned",),
    quantities=(
        Quantity("best attack", rate("attack.accuracy"), "%", printed="attack_accuracy"),
        Quantity("advantage", rate("attack.advantage"), "%"),
        Quantity("canary", rate("attack.canary"), "%"),
        Quantity("nearest prototype", rate("attack.nearest_prototype"), "%"),
        ACCURACY,
    ),
    runner="protoevfl.audit:attacked",
    note="Best attack: the maximum over attacks and rounds. Advantage: over the best attacker that sees no "
    "message. Canary: the same with random labels, where anything above chance (10 %) leaks from "
    "individuals. The paper's 8.89 % is the cosine to the nearest prototype alone.",
)

NOISE = {
    "noise_representations": ({"privacy.clip": 1.0}, "privacy.embedding_noise", "noise_on_representations_modelnet10"),
    "noise_prototypes": ({}, "privacy.prototype_kappa", "noise_on_prototypes_modelnet10"),
}


def _noise(name: str, title: str) -> Experiment:
    extra, setting, source = NOISE[name]
    cells = [
        cell(
            "modelnet10", "proto_evfl", n, priority=3 if n == 200 else 4,
            overrides={**extra, setting: float(k)} if k != "0" else {}, kappa=k,
        )
        for n in ALIGNED for k in KAPPAS
    ]  # fmt: skip
    return Experiment(
        name=name,
        title=title,
        place=f"Table: Gaussian noise of scale kappa ({source.removesuffix('_modelnet10').replace('_', ' ')})",
        source=source,
        cells=tuple(cells),
        quick=smalls(cells, aligned="200"),
        rows=("kappa",),
        columns=("aligned",),
        quantities=(ACCURACY,),
        runner=RUNNER,
        note="Representations are clipped to norm 1 before the noise; without a bound noise guarantees nothing. "
        "See the privacy page for the epsilon of each scale.",
    )


NOISE_REPRESENTATIONS = _noise("noise_representations", "Noise on representations")
NOISE_PROTOTYPES = _noise("noise_prototypes", "Noise on prototypes")
