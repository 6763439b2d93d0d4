"""Settings of Proto-EVFL's rounds, one field a line with its symbol in the paper."""

from dataclasses import dataclass

from protoevfl.errors import UserError

SELECTIONS = ("dual", "single", "cosine", "ot", "soft")
UPDATES = ("ema", "paper", "none")


@dataclass(frozen=True)
class RoundSettings:
    """One communication round: what a party does with the prototypes, how the owner moves them."""

    count: int = 0  # T; 0 is the one-way mode
    epochs: int = 3  # tau
    batch: int = 256
    lr: float = 5e-4  # eta
    weight_decay: float = 1e-4  # phi
    optimizer: str = "adamw"
    temperature: float | None = 0.2  # of the plans; None is the raw inner product
    weight: float = 0.3  # of the transport cost
    ssl_weight: float = 1.0  # of self-supervision, kept on against collapse
    selection: str = "dual"
    update: str = "ema"
    rho: float = 0.5
    adapted: bool = False  # prototypes from the adaptor's output, as the paper has it
    mixed_prior: bool = True
    prior_steps: int = 10
    prior_floor: float = 0.01
    learning: bool = True  # off: prototypes are sent but the extractor stays
    least_rows: int = 1  # prototypes of classes with fewer aligned rows are withheld
    patience: int = 0  # stop after so many rounds without a better held-out accuracy; 0: never
    holdout: float = 0.2  # share of aligned rows held out for that
    guard: bool = True  # stop with a message when the embeddings collapse

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            raise UserError(
                f"unknown selection '{self.selection}'; there are {', '.join(SELECTIONS)}"
            )
        if self.update not in UPDATES:
            raise UserError(
                f"unknown prototype update '{self.update}'; there are {', '.join(UPDATES)}"
            )
