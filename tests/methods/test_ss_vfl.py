"""SS-VFL: self-supervision crosses nothing; -I uploads once, -C is split learning."""

import torch

from tests.methods.play import ALIGNED, any_subset, play, played, same_numbers

FROZEN = {"moco.epochs": 1, "moco.batch": 32, "head.epochs": 2, "head.members": 2}
TUNED = {"moco.epochs": 1, "moco.batch": 32, "epochs": 2, "models": 2, "batch": 20}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("ss_vfl_i", FROZEN)
    same_numbers("ss_vfl_c", TUNED)


def test_any_subset_predicts() -> None:
    any_subset("ss_vfl_i", FROZEN)
    any_subset("ss_vfl_c", TUNED)


def test_frozen_uploads_once_and_nothing_derived_from_labels_goes_down() -> None:
    run = played("ss_vfl_i", FROZEN)
    assert run.crossed() == {("down", "WarmUp"), ("up", "Embeddings")}
    assert run.metered.rounds[0] == 1
    for party in (1, 2, 3):
        assert run.bytes(party, "up", "Embeddings") == ALIGNED * 84 * 4
        assert run.bytes(party, "down", "WarmUp") == 0


def test_tuned_crosses_what_split_learning_does() -> None:
    run = played("ss_vfl_c", TUNED)
    assert run.crossed() == {
        ("down", "Prepare"),
        ("up", "Done"),
        ("down", "ForwardBatch"),
        ("up", "Embeddings"),
        ("down", "BackwardBatch"),
    }
    assert run.bytes(1, "down", "Prepare") == 0
    assert run.bytes(1, "up", "Embeddings") == TUNED["epochs"] * TUNED["models"] * ALIGNED * 84 * 4


def test_the_head_has_no_gate_and_adaptor() -> None:
    head = played("ss_vfl_i", FROZEN).worlds[0].owner.head
    assert head is not None
    assert {name.split(".")[0] for name, _ in head.named_parameters()} == {"layers"}


def test_each_model_of_the_ensemble_is_trained_by_itself() -> None:
    """Two models of a party start apart and stay apart; the first is the same whatever stands
    beside it."""
    both = play("ss_vfl_c", {**TUNED, "epochs": 0})
    one = play("ss_vfl_c", {**TUNED, "epochs": 0, "models": 1})
    weight = both.engine.cohorts[0][1].net.net.fc1.weight  # type: ignore[union-attr]
    alone = one.engine.cohorts[0][1].net.net.fc1.weight  # type: ignore[union-attr]
    assert not torch.allclose(weight[0], weight[1])
    torch.testing.assert_close(weight[::2], alone, atol=1e-4, rtol=0)
