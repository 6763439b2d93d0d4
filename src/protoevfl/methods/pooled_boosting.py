"""Pooled boosting: gradient boosting on all columns of the aligned rows, in one place.

What SecureBoost (arXiv 1901.08755) would give: it is lossless, its trees are those of the pooled
columns. Simulation only; nothing crosses and the parties are not asked, so a missing party changes
nothing. Rows that not all parties have, and their labels, are of no use to it.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.messages import Message
from protoevfl.method import Asking, Exchanges, Report, Talk
from protoevfl.methods import boosting
from protoevfl.methods.upper_bound import central
from protoevfl.models import inputs

PREFIX = "pooled."


@dataclass(frozen=True)
class PooledBoosting:
    """The fields are scikit-learn's, with its defaults."""

    name: ClassVar[str] = "pooled_boosting"
    exchanges: ClassVar[Exchanges] = ()
    learning_rate: float = 0.1
    max_iter: int = 100  # trees
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    l2_regularization: float = 0.0
    max_features: float = 1.0  # share of columns looked at in each split

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """Nothing: the parties have no part in this."""
        return nn.Identity()

    def answer(self, cohort: Cohort, request: Message) -> Message:
        raise NotImplementedError("pooled boosting asks no party")

    def train(self, owner: LabelOwner) -> Talk:
        rows = columns(central(owner).pool[: len(owner.labels)])  # the aligned rows come first
        model = boosting.fit_boosting(
            rows.numpy(), owner.labels.cpu().numpy(), owner.key, asdict(self)
        )
        trees = boosting.as_tensors([model], owner.classes)
        owner.memory |= {f"{PREFIX}{name}": tensor for name, tensor in trees.items()}
        yield Report("boosting", 1, 1)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        yield from ()
        if f"{PREFIX}base" not in owner.memory:
            raise UserError("pooled boosting is not trained yet")
        trees = {name: owner.memory[f"{PREFIX}{name}"].cpu() for name in boosting.NAMES}
        log_p = boosting.scores(trees, columns(central(owner).query))[0]
        return log_p.exp().to(owner.device)


def columns(rows: Tensor) -> Tensor:
    """Rows (n, ...) as plain columns (n, D)."""
    return inputs(rows).flatten(1).cpu()
