"""Privacy tables: label inference, noise on representations, noise on prototypes."""

from protoevfl.reproduction.grid import ALIGNED, cell, smalls
from protoevfl.reproduction.spec import ACCURACY, Experiment, Quantity, rate

KAPPAS = ("0", "0.01", "0.05", "0.1", "0.2")
CLIPPED = "0, clipped"  # the bound without the noise, to tell their prices apart
PRESETS = ("proto_evfl", "proto_evfl undefended", "proto_evfl paper", "proto_evfl one_way")
GRADIENTS = ("vanilla", "fedhssl", "one_shot")

_inference = [
    cell("fashion_mnist", m, n, priority=3 if n == 200 else 4, overrides={"privacy.audit": True})
    for n in (200, 1000)
    for m in (*PRESETS, *GRADIENTS)
]

LABEL_INFERENCE = Experiment(
    name="label_inference",
    title="Label inference",
    place="Table: attack accuracy under label inference attacks",
    source="label_inference",
    cells=tuple(_inference),
    quick=smalls(_inference, aligned="200"),
    rows=("method",),
    columns=("aligned",),
    quantities=(
        Quantity("best attack", rate("attack.accuracy"), "%", printed="attack_accuracy"),
        Quantity("advantage", rate("attack.advantage"), "%"),
        Quantity("without a known label", rate("attack.unaided"), "%"),
        Quantity("canary", rate("attack.canary"), "%"),
        Quantity("canary of colluding parties", rate("attack.canary_colluding"), "%"),
        Quantity("nearest prototype", rate("attack.nearest_prototype"), "%"),
        ACCURACY,
    ),
    runner="protoevfl.audit:attacked",
    note="Best attack: the maximum over attacks and rounds by a passive party that knows one label "
    "of each class. Advantage: over the best attacker that sees no message. Canary: the same with "
    "shuffled labels and no known one, where anything above chance (10 %) is about single people "
    "(for gradient methods groups are named by the best matching, worth about 20 % by luck alone; "
    "– means that nothing was sent that could be attacked). The paper's 8.89 % is the cosine to "
    "the nearest prototype alone.",
)

REPRESENTATIONS = (
    "The default preset. Representations are clipped to norm 1 before the noise, at every kappa "
    "but 0: without a bound noise guarantees nothing, and the line '0, clipped' says what the "
    "bound alone costs. See the privacy page for the epsilon of each scale."
)
PROTOTYPES = (
    "The undefended preset, because the default's guard makes prototypes of its own, under a "
    "proof. This noise on class means of unbounded rows guarantees nothing. See the privacy page "
    "for the epsilon it would have."
)


def _noise(
    name: str,
    title: str,
    method: str,
    settings: dict[str, dict[str, float]],
    source: str,
    note: str,
) -> Experiment:
    cells = [
        cell(
            "modelnet10",
            method,
            n,
            priority={200: 3, 1000: 4}.get(n, 5),
            overrides=overrides,
            kappa=k,
        )
        for n in ALIGNED
        for k, overrides in settings.items()
    ]
    return Experiment(
        name=name,
        title=title,
        place="Table: Gaussian noise of scale kappa "
        f"({source.removesuffix('_modelnet10').replace('_', ' ')})",
        source=source,
        cells=tuple(cells),
        quick=smalls(cells, aligned="200"),
        rows=("kappa",),
        columns=("aligned",),
        quantities=(ACCURACY,),
        note=note,
    )


def _scaled(setting: str, **always: float) -> dict[str, dict[str, float]]:
    extra = {f"privacy.{name}": value for name, value in always.items()}
    return {k: {**extra, f"privacy.{setting}": float(k)} if k != "0" else {} for k in KAPPAS}


NOISE_REPRESENTATIONS = _noise(
    "noise_representations",
    "Noise on representations",
    "proto_evfl",
    {**_scaled("embedding_noise", clip=1.0), CLIPPED: {"privacy.clip": 1.0}},
    "noise_on_representations_modelnet10",
    REPRESENTATIONS,
)
NOISE_PROTOTYPES = _noise(
    "noise_prototypes",
    "Noise on prototypes",
    "proto_evfl undefended",
    _scaled("prototype_kappa"),
    "noise_on_prototypes_modelnet10",
    PROTOTYPES,
)
