"""Gradient attacks on a split model: near perfect, since a row's gradient points along its
class."""

import torch
import torch.nn.functional as F

from protoevfl.messages import BackwardBatch, Done, Embeddings, ForwardBatch, Message
from protoevfl.privacy.attacks.gradients import gradient_attacks
from protoevfl.privacy.scores import score
from protoevfl.privacy.view import know, views

from ..world import CLASSES, ROWS, embeddings


def split_run(seed: int, logits: bool) -> tuple[list[tuple[int, Message, Message]], torch.Tensor]:
    """Ten epochs of a linear head (or none: the embedding is the logit vector) on fixed,
    uninformative embeddings."""
    g = torch.Generator().manual_seed(seed)
    labels = embeddings(seed)[1]
    z = torch.randn(ROWS, CLASSES if logits else 12, generator=g)
    w = torch.eye(CLASSES) if logits else torch.randn(12, CLASSES, generator=g)
    said: list[tuple[int, Message, Message]] = []
    for step in range(20):
        rows = torch.arange(50) + 50 * (step % 2)
        part = z[rows].requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(part @ w, labels[rows]), part)
        said += [
            (1, ForwardBatch(step, rows), Embeddings(z[rows])),
            (1, BackwardBatch(step, rows, gradient), Done()),
        ]
    return said, labels


def rates(logits: bool, k: int) -> dict[str, float]:
    said, labels = split_run(0, logits)
    known = know(labels, k, CLASSES, 0)
    guesses = gradient_attacks(views(said, ROWS, CLASSES)[1], known)
    return {name: score(g, labels, known, CLASSES).accuracy for name, g in guesses.items()}


def test_sign_of_the_logit_gradient_is_the_label() -> None:
    assert rates(logits=True, k=0)["gradient sign, first epoch"] == 1.0


def test_clustering_and_direction_without_logits() -> None:
    found = rates(logits=False, k=1)
    assert found["gradient clustering, all epochs"] > 0.9
    assert found["gradient direction, all epochs"] > 0.8
    assert "gradient sign, all epochs" not in found


def test_nothing_to_attack_without_gradients() -> None:
    said, labels = split_run(0, logits=False)
    quiet = [m for m in said if not isinstance(m[1], BackwardBatch)]
    assert gradient_attacks(views(quiet, ROWS, CLASSES)[1], know(labels, 1, CLASSES, 0)) == {}
