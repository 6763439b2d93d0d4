"""Vertical logistic regression: partial scores go up, residuals come down, on the columns as they
are.

    score(x) = b + sum_m x_m . w_m                      party m sends x_m . w_m of every aligned row
    r = softmax(score) - y                              the owner sends r, the loss gradient at the scores
    w_m <- w_m - (k/2 X_m'X_m + lambda)^-1 (X_m'r + lambda w_m)

min sum_i -log p_i(y_i) + lambda/2 |w|^2, the intercept b at the owner and free. The Hessian of the
loss is at most 1/2 of that of least squares (Boehning 1992), and k blocks that step at once (the
parties and b) at most k times their own parts: no step ever makes the objective worse, and parties
need to know nothing of each other. Features are those that Proto-EVFL sends of a table
(methods/table_features.py); pixels of images are columns. The ridge lambda has the least log-loss
over the owner's folds of the aligned rows. Residuals give labels away: r_z is below zero for the
row's own class and for no other (docs/privacy.md).
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.messages import Embed, Embeddings, Message, Residuals, values
from protoevfl.method import PREDICTION, Asking, Exchanges, Replies, Report, Talk
from protoevfl.methods.own_model import folds
from protoevfl.methods.table_features import learn_features, table_features
from protoevfl.methods.warmup import own_rows
from protoevfl.models import inputs

# in this order: each starts from the solution of the last
STRENGTHS = (100.0, 30.0, 10.0, 3.0, 1.0)
BIAS = "logistic.bias"


@dataclass(frozen=True)
class VerticalLogistic:
    """Labels of aligned rows, columns of all parties, one linear model."""

    name: ClassVar[str] = "vertical_logistic"
    exchanges: ClassVar[Exchanges] = ((Residuals, Embeddings), *PREDICTION)
    rounds: int = 300  # of the final fit
    path_rounds: int = 30  # of every other fit: each strength in each fold
    folds: int = 4  # of the aligned rows, to choose the ridge
    strength: float = 0.0  # of the ridge; 0: chosen by the folds

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """Nothing: the weights are in the party's memory."""
        return nn.Identity()

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case Residuals():
                return Embeddings(self.step(cohort, request))
            case Embed(rows=which):
                return Embeddings(
                    self.features(cohort, getattr(cohort.rows, which)) @ cohort.memory["weights"]
                )
        raise NotImplementedError(type(request).__name__)

    def features(self, cohort: Cohort, rows: Tensor) -> Tensor:
        """(G, n, D) of stored rows."""
        memory, numbers = cohort.memory, cohort.rows.numbers
        if "edges" not in memory:
            memory |= learn_features(inputs(own_rows(cohort)).flatten(2), numbers)
        return table_features(inputs(rows).flatten(2), numbers, memory["edges"], memory["centre"])

    def step(self, cohort: Cohort, request: Residuals) -> Tensor:
        """One step of the weights; returns the new partial scores (G, N, Z) of the aligned rows."""
        memory = cohort.memory
        x = self.features(cohort, cohort.rows.aligned)
        if "curvature" not in memory:
            # in double precision: in single it fails, with NaN and no error, on columns that repeat
            # each other
            curvature, directions = torch.linalg.eigh(x.double().mT @ x.double())
            memory |= {"curvature": curvature.to(x), "directions": directions.to(x)}
        if not request.step:
            memory["weights"] = x.new_zeros(*x.shape[::2], request.gradients.shape[-1])
        weights, directions = memory["weights"], memory["directions"]
        gradient = x.mT @ request.gradients + request.strength * weights
        bound = request.blocks / 2 * memory["curvature"].clamp(min=0) + request.strength
        memory["weights"] = weights - directions @ ((directions.mT @ gradient) / bound[..., None])
        return x @ memory["weights"]

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        strength = self.strength or (yield from self.chosen_strength(owner))
        fit = Fit.of(owner)
        everything = torch.ones(len(owner.labels), dtype=torch.bool, device=owner.device)
        yield from self.descend(owner, fit, strength, everything, self.rounds)
        owner.memory[BIAS] = fit.bias
        loss = F.cross_entropy(fit.logits, owner.labels)
        yield Report("logistic regression", 1, 1, {"loss": loss, "strength": strength})

    def chosen_strength(self, owner: LabelOwner) -> Generator[Any, Any, float]:
        """The ridge with the least log-loss on rows that were left out."""
        fold = folds(owner.labels, owner.classes, self.folds, owner.keys("ridge"))
        losses = [0.0] * len(STRENGTHS)
        for k in range(self.folds):
            fit = Fit.of(owner)
            held = fold == k
            for i, strength in enumerate(STRENGTHS):
                yield from self.descend(owner, fit, strength, ~held, self.path_rounds)
                losses[i] += float(
                    F.cross_entropy(fit.logits[held], owner.labels[held], reduction="sum")
                )
            yield Report("ridge", k + 1, self.folds)
        return STRENGTHS[losses.index(min(losses))]

    def descend(
        self, owner: LabelOwner, fit: "Fit", strength: float, used: Tensor, rounds: int
    ) -> Talk:
        """Goes on with a fit for some rounds, taught by the rows that are `used` (N,)."""
        blocks = len(owner.parties) + 1
        truth = F.one_hot(owner.labels, owner.classes).float()
        for _ in range(rounds):
            residuals = (fit.logits.softmax(1) - truth) * used[:, None]
            request = Residuals(fit.step, strength, blocks, residuals)
            replies = yield dict.fromkeys(owner.parties, request)
            fit.bias = fit.bias - residuals.sum(0) / (blocks / 2 * used.sum())
            fit.scores = total(replies, owner.device)
            fit.step += 1

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        """Features are centred: a party that is missing counts as average."""
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        if not replies or BIAS not in owner.memory:
            raise UserError(
                f"prediction needs a trained model and at least one of the parties {owner.parties}"
            )
        return (total(replies, owner.device) + owner.memory[BIAS]).softmax(1)


@dataclass
class Fit:
    """Where the owner stands: the sum of the parties' scores of the aligned rows (N, Z) and its
    intercept (Z,)."""

    scores: Tensor
    bias: Tensor
    step: int = 0

    @classmethod
    def of(cls, owner: LabelOwner) -> "Fit":
        zeros = torch.zeros(len(owner.labels), owner.classes, device=owner.device)
        return cls(zeros, zeros[0].clone())

    @property
    def logits(self) -> Tensor:
        return self.scores + self.bias


def total(replies: Replies, device: torch.device) -> Tensor:
    """The sum of the parties' partial scores."""
    return torch.stack([values(reply).to(device) for reply in replies.values()]).sum(0)
