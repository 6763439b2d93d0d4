"""All experiments, in the order in which the paper has them; ours last."""

from protoevfl.errors import UserError
from protoevfl.reproduction import ablation, accuracy, costs, every_label, privacy_tables
from protoevfl.reproduction.spec import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        accuracy.ACCURACY_IMAGES,
        accuracy.ACCURACY_TABLES,
        ablation.ABLATION,
        ablation.SELECTION,
        accuracy.RARE_CLASSES,
        costs.COMMUNICATION,
        costs.CONVERGENCE,
        costs.ROUNDS,
        costs.TRAINING_TIME,
        accuracy.PARTIES,
        privacy_tables.LABEL_INFERENCE,
        privacy_tables.NOISE_REPRESENTATIONS,
        privacy_tables.NOISE_PROTOTYPES,
        accuracy.IMBALANCE,
        ablation.GRADIENT_NORM,
        ablation.OUR_PIECES,
        accuracy.MARGINS,
        every_label.LABELS,
        every_label.OVERLAPS,
    )
}


def select(name: str) -> list[Experiment]:
    """`all`, one name, or several separated by commas."""
    if name == "all":
        return list(EXPERIMENTS.values())
    wanted = [part.strip() for part in name.split(",") if part.strip()]
    for part in wanted:
        if part not in EXPERIMENTS:
            raise UserError(
                f"there is no experiment '{part}'; there are {', '.join(EXPERIMENTS)} and all"
            )
    return [EXPERIMENTS[part] for part in wanted]
