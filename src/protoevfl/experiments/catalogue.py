"""All experiments, in the order in which the paper has them; ours last."""

from protoevfl.errors import UserError
from protoevfl.experiments import accuracy, costs, leaks, margins, pieces
from protoevfl.experiments.spec import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        accuracy.ACCURACY_IMAGES,
        accuracy.ACCURACY_TABLES,
        pieces.ABLATION,
        pieces.SELECTION,
        accuracy.RARE_CLASSES,
        costs.COMMUNICATION,
        costs.CONVERGENCE,
        costs.ROUNDS,
        costs.TRAINING_TIME,
        accuracy.PARTIES,
        leaks.LABEL_INFERENCE,
        leaks.NOISE_REPRESENTATIONS,
        leaks.NOISE_PROTOTYPES,
        accuracy.IMBALANCE,
        pieces.GRADIENT_NORM,
        pieces.OUR_PIECES,
        margins.MARGINS,
    )
}


def select(name: str) -> list[Experiment]:
    """`all`, one name, or several separated by commas."""
    if name == "all":
        return list(EXPERIMENTS.values())
    wanted = [part.strip() for part in name.split(",") if part.strip()]
    for part in wanted:
        if part not in EXPERIMENTS:
            raise UserError(f"there is no experiment '{part}'; there are {', '.join(EXPERIMENTS)} and all")
    return [EXPERIMENTS[part] for part in wanted]
