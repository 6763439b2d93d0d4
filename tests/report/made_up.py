"""A measured run that nobody trained: probabilities drawn at random, better where labels tell."""

from types import SimpleNamespace
from typing import Any, cast

import torch

from protoevfl.artifacts.owner import TestRows
from protoevfl.core import decisions, metrics
from protoevfl.report.measured import Measured


def made_up(
    classes: tuple[str, ...] = ("no", "yes"),
    rows: int = 300,
    joint: float = 2.0,
    alone: float = 1.0,
    has_own_model: bool = True,
    own: torch.Tensor | None = None,
) -> Measured:
    """`joint` and `alone` say how much the probabilities of each model know of the labels."""
    random = torch.Generator().manual_seed(3)
    labels = torch.randint(len(classes), (rows,), generator=random)
    noise = torch.randn(rows, len(classes), generator=random)
    onehot = torch.nn.functional.one_hot(labels, len(classes))
    together, single = ((noise + weight * onehot).softmax(1) for weight in (joint, alone))

    def evaluate(p: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return metrics.evaluate(p, y)

    owner = SimpleNamespace(
        parties=("bank", "insurer"),
        classes=classes,
        unseen=(),
        has_own_model=has_own_model,
        decision="likeliest",
        choose=lambda p: p.argmax(1),
        evaluate=evaluate,
        subset=lambda rows, parties: together if len(parties) > 1 else single,
        labels=labels,
    )
    run = SimpleNamespace(need_owner=lambda: owner, parties={"bank": None}, path=None)
    figures: dict[str, Any] = {
        "rows": rows,
        "test": evaluate(together, labels),
        "majority": {"class": classes[0], "accuracy": 0.5},
    }
    if has_own_model:
        figures["alone"] = evaluate(single, labels)
        figures["gain"] = decisions.gain(together, single, labels)
    embeddings = {0: torch.zeros(rows, 1), 1: torch.zeros(rows, 1)}
    return Measured(cast(Any, run), TestRows(embeddings, labels, own), figures)
