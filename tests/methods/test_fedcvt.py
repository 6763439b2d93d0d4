"""FedCVT: representations of aligned and pool rows go up, gradients at both come down."""

import torch

from tests.methods.play import ALIGNED, any_subset, play, played, same_numbers

TINY = {"epochs": 2, "models": 2, "batch": 20, "pool_batch": 7}
WIDTH = 2 * 84


def test_engines_give_the_same_numbers() -> None:
    same_numbers("fedcvt", TINY)


def test_any_subset_predicts() -> None:
    any_subset("fedcvt", TINY)


def test_what_crosses() -> None:
    run = played("fedcvt", TINY)
    assert run.crossed() == {
        ("down", "ForwardMixed"),
        ("up", "MixedEmbeddings"),
        ("down", "BackwardMixed"),
        ("up", "Done"),
    }
    assert (
        run.shapes("MixedEmbeddings", "pool")
        == run.shapes("BackwardMixed", "pool")
        == {(7, 2 * WIDTH)}
    )


def test_bytes_each_way() -> None:
    run, steps = played("fedcvt", TINY), 2 * TINY["epochs"]
    figure = TINY["models"] * WIDTH * 4 * (TINY["epochs"] * ALIGNED + steps * 7)
    for party in (1, 2, 3):
        assert run.bytes(party, "up", "MixedEmbeddings") == figure
        assert (
            run.bytes(party, "down", "BackwardMixed")
            == figure + TINY["epochs"] * ALIGNED * 8 + steps * 8
        )


def test_two_parties_as_in_the_source() -> None:
    run = play("fedcvt", TINY, parties=2)
    assert all(p.isfinite().all() for present in ((0,), (1,), (0, 1)) for p in run.predict(present))


def test_pool_rows_with_a_label_pull_on_the_extractors() -> None:
    """Thresholds of zero label wherever the heads agree; of more than one, never."""
    runs = [
        play("fedcvt", {**TINY, "thresholds": [bar] * 3, "guess": 0.0, "apart": 0.0})
        for bar in (0.0, 1.1)
    ]
    shares = [float(run.reports[-1].values["pseudo_labelled"]) for run in runs]
    assert shares[0] > 0 == shares[1]
    grads = [
        [
            q.pool.abs().sum()
            for _, p, q, _ in run.transcript
            if p == 1 and type(q).__name__ == "BackwardMixed"
        ]
        for run in runs
    ]
    assert torch.stack(grads[0]).sum() > 0
    assert torch.stack(grads[1]).sum() == 0
