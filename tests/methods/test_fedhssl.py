"""FedHSSL: two exchanges an epoch of pre-training, averaged layers, then split learning."""

import torch

from protoevfl.methods.fedhssl import Net, goals
from protoevfl.methods.hybrid import vector
from tests.methods.play import ALIGNED, any_subset, play, played, same_numbers
from tests.tiny import keys, owner

TINY = {
    "pre.epochs": 2,
    "pre.batch": 32,
    "pre.aligned_batch": 20,
    "pre.width": 16,
    "epochs": 2,
    "models": 2,
    "batch": 20,
}


def test_engines_give_the_same_numbers() -> None:
    same_numbers("fedhssl", TINY)


def test_any_subset_predicts() -> None:
    any_subset("fedhssl", TINY)


def test_what_crosses() -> None:
    run = played("fedhssl", TINY)
    assert run.crossed() == {
        ("down", "Project"),
        ("up", "Projections"),
        ("down", "Guide"),
        ("up", "Parameters"),
        ("down", "Merged"),
        ("up", "Done"),
        ("down", "ForwardBatch"),
        ("up", "Embeddings"),
        ("down", "BackwardBatch"),
    }
    assert run.shapes("Projections", "values") == run.shapes("Guide", "targets") == {(ALIGNED, 16)}


def test_bytes_of_pre_training() -> None:
    run, epochs = played("fedhssl", TINY), TINY["pre.epochs"]
    size = vector(Net((2, 4, 4), keys(1), 16, 1).local.shareable()).shape[1]
    for party in (1, 2, 3):
        assert run.bytes(party, "up", "Projections") == epochs * ALIGNED * 16 * 4
        assert run.bytes(party, "down", "Guide") == epochs * (ALIGNED * 16 * 4 + 8)
        assert run.bytes(party, "up", "Parameters") == epochs * size * 4
        assert run.bytes(party, "down", "Merged") == epochs * (size * 4 + 8)
        assert (
            run.bytes(party, "up", "Embeddings")
            == TINY["epochs"] * TINY["models"] * ALIGNED * 84 * 4
        )
    split = 2 * TINY["epochs"] * 2
    assert run.metered.rounds[0] == 1 + 2 * epochs + split


def test_every_party_gets_the_same_mean_and_only_the_shared_layers() -> None:
    run = play("fedhssl", {**TINY, "epochs": 0})
    sent = [
        r.values
        for run_, _, _, r in run.transcript
        if run_ == 0 and type(r).__name__ == "Parameters"
    ]
    got = [
        q.values for run_, _, q, _ in run.transcript if run_ == 0 and type(q).__name__ == "Merged"
    ]
    torch.testing.assert_close(got[0], torch.stack(sent[:4]).mean(0))
    net = run.engine.cohorts[0][1].net  # type: ignore[union-attr]
    assert isinstance(net, Net)
    shared = vector(net.local.shareable())
    torch.testing.assert_close(shared[1:4], shared[:1].expand(3, -1))
    bottoms = net.local.encoder.conv1.weight  # type: ignore[union-attr]
    assert not torch.allclose(bottoms[0], bottoms[1])  # type: ignore[index]


def test_fine_tuning_starts_from_the_pre_trained_encoders() -> None:
    run = play("fedhssl", {**TINY, "epochs": 0})
    net = run.engine.cohorts[0][1].net  # type: ignore[union-attr]
    assert isinstance(net, Net)
    start = net.tuned.net.local.conv1.weight  # type: ignore[union-attr]
    torch.testing.assert_close(start, net.local.encoder.conv1.weight.repeat_interleave(2, 0))  # type: ignore[union-attr,operator]


def test_passive_parties_predict_the_active_one_and_it_predicts_their_mean() -> None:
    z = {m: torch.randn(6, 3) for m in range(3)}
    got = goals(owner(parties=3), z)
    torch.testing.assert_close(got[0], (z[1] + z[2]) / 2)
    assert got[1] is z[0]
    assert got[2] is z[0]
