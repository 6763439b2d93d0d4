"""One-shot VFL: three messages per party, pseudo-labels from clustered gradients."""

import torch

from protoevfl.methods.clusters import k_means
from protoevfl.methods.one_shot import partial_gradients
from tests.methods.play import ALIGNED, accuracy, any_subset, play, played, same_numbers
from tests.tiny import keys, owner

TINY = {"epochs": 1, "pool_batch": 15, "batch": 20, "head.epochs": 2, "head.members": 2}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("one_shot", TINY)


def test_any_subset_predicts() -> None:
    any_subset("one_shot", TINY)


def test_three_messages_a_party() -> None:
    run = played("one_shot", TINY)
    assert run.crossed() == {("down", "Embed"), ("up", "Embeddings"), ("down", "PartialGradients")}
    assert run.metered.rounds[0] == 2
    for party in (1, 2, 3):
        assert run.bytes(party, "up", "Embeddings") == 2 * ALIGNED * 84 * 4
        assert run.bytes(party, "down", "PartialGradients") == ALIGNED * 84 * 4 + 8
    assert run.shapes("PartialGradients", "gradients") == {(ALIGNED, 84)}


def test_clustered_gradients_are_the_classes_without_their_names() -> None:
    """The leak that the page states, and the reason why the method works."""
    run = played("one_shot", TINY)
    labels = run.worlds[0].owner.labels
    sent = next(q for r, p, q, _ in run.transcript if (r, p) == (0, 1) and hasattr(q, "gradients"))
    found = k_means(sent.gradients[None], sent.groups, keys(1))[0]
    assert len(set(zip(labels.tolist(), found.tolist(), strict=True))) == 10


def test_gradients_are_those_of_a_linear_head() -> None:
    who = owner(parties=2)
    f = 0.01 * torch.randn(2, len(who.labels), 4)
    got = partial_gradients(who, f)
    flat = got.movedim(0, 1).flatten(1)  # (N, 2d): W (p - e_y)
    same = who.labels[:, None] == who.labels
    distance = torch.cdist(flat, flat)
    assert distance[same].max() < 0.1 * distance[~same].min()


def test_semi_supervised_training_uses_the_pool() -> None:
    """With the pool's part on, weights differ from those with it off."""
    runs = [play("one_shot", {**TINY, "threshold": 0.0, "unlabelled": w}) for w in (0.0, 1.0)]
    nets = [run.engine.cohorts[0][1].net for run in runs]  # type: ignore[union-attr]
    assert not torch.allclose(nets[0].fc1.weight, nets[1].fc1.weight)  # type: ignore[arg-type,union-attr]


def test_learns() -> None:
    run = play(
        "one_shot",
        {
            "epochs": 25,
            "pool_batch": 30,
            "batch": 40,
            "lr": 3e-3,
            "head.members": 1,
            "head.epochs": 40,
        },
    )
    assert accuracy(run) > 0.4
