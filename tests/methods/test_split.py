"""Split learning: the gradients are those of end-to-end training, the bytes those of the page."""

import pytest
import torch
import torch.nn.functional as F

from protoevfl.errors import UserError
from protoevfl.methods.split import Vanilla
from protoevfl.models import inputs
from tests.methods.play import ALIGNED, POOL, accuracy, any_subset, play, played, same_numbers

TINY = {"epochs": 2, "models": 2, "batch": 20}
WIDTH = 84


def test_engines_give_the_same_numbers() -> None:
    same_numbers("vanilla", TINY)


def test_any_subset_predicts() -> None:
    any_subset("vanilla", TINY)


def test_what_crosses() -> None:
    run = played("vanilla", TINY)
    assert run.crossed() == {
        ("down", "ForwardBatch"), ("up", "Embeddings"), ("down", "BackwardBatch"), ("up", "Done"),
    }  # fmt: skip
    assert (
        run.shapes("Embeddings", "values")
        == run.shapes("BackwardBatch", "gradients")
        == {(20, 2 * WIDTH)}
    )


def test_bytes_each_way_an_epoch_and_model() -> None:
    run = played("vanilla", TINY)
    figure = TINY["epochs"] * TINY["models"] * ALIGNED * WIDTH * 4
    numbers = TINY["epochs"] * (ALIGNED * 8 + 2 * 8)  # row numbers and step of each batch
    for party in (1, 2, 3):
        assert run.bytes(party, "up", "Embeddings") == figure
        assert run.bytes(party, "down", "BackwardBatch") == figure + numbers
        assert run.bytes(party, "down", "ForwardBatch") == numbers
    assert run.metered.rounds[0] == 2 * TINY["epochs"] * 2


def test_one_step_is_the_step_of_end_to_end_training() -> None:
    """One batch of all rows, no mixup and dropout: the parties receive dL/dz of the joint
    network."""
    plain = {
        "epochs": 1,
        "models": 1,
        "batch": ALIGNED,
        "mixup": 0.0,
        "dropout": 0.0,
        "lr": 0.0,
        "head_lr": 0.0,
        "weight_decay": 0.0,
    }
    run = play("vanilla", plain, "loop")
    world, method = run.worlds[0], run.method
    rows = next(request.rows for _, _, request, _ in run.transcript)
    nets = [run.engine.parties[0, m].net for m in world.owner.parties]
    z = [
        net.train()(inputs(t.aligned[rows])[None])[0]
        for net, t in zip(nets, world.tables, strict=True)
    ]
    for part in z:
        part.retain_grad()
    logits = world.owner.head(torch.stack(z)[None])[0]
    F.cross_entropy(logits, world.owner.labels[rows]).backward()
    sent = {
        party: request
        for r, party, request, _ in run.transcript
        if r == 0 and hasattr(request, "gradients")
    }
    assert isinstance(method, Vanilla)
    for party, part in enumerate(z):
        torch.testing.assert_close(sent[party].gradients, part.grad, atol=1e-6, rtol=1e-4)


def test_views_are_the_same_in_both_passes() -> None:
    """With a rate of zero nothing moves, so the embeddings of the forward pass must come back in
    the backward pass."""
    run = play("vanilla", {"epochs": 1, "models": 1, "augment": 0.5, "lr": 0.0}, "loop")
    party = run.engine.parties[0, 1]
    request, reply = next(
        (q, a) for r, p, q, a in run.transcript if (r, p) == (0, 1) and hasattr(a, "values")
    )
    again = run.method.forward(party, request.rows[None], request.step, track=True)[0]
    torch.testing.assert_close(again, reply.values)
    other = run.method.forward(party, request.rows[None], request.step + 1, track=False)[0]
    assert not torch.allclose(other, reply.values)


def test_a_rebuilt_party_goes_on_as_if_nothing_had_happened() -> None:
    from protoevfl.bench.world import RunConfig, prepare
    from protoevfl.federation.federation import parties_for
    from protoevfl.settings.presets import build
    from tests.tiny import reports_of

    cell = RunConfig("digits", "vanilla", aligned=ALIGNED, pool=POOL)
    method = build("vanilla", "default", "digits", {**TINY, "decay": True})

    class Rebuilding:
        def __init__(self, engine: object) -> None:
            self.engine = engine

        def exchange(self, requests: dict) -> dict:  # type: ignore[type-arg]
            for party in self.engine.parties.values():  # type: ignore[attr-defined]
                saved = {name: t.clone() for name, t in party.state().items()}
                party.net = method.party_net(tuple(party.rows.pool.shape[2:]), party.keys)
                party.restore(saved)
            return self.engine.exchange(requests)  # type: ignore[attr-defined,no-any-return]

    losses = []
    for wrap in (lambda e: e, Rebuilding):
        world = prepare(cell, 0, "cpu")
        engine = wrap(parties_for(method, [world.simulated], "loop", "cpu"))
        losses.append(
            [report.values["loss"] for _, report in reports_of([method.train(world.owner)], engine)]
        )
    torch.testing.assert_close(losses[0], losses[1])


def test_nobody_present_is_an_error() -> None:
    with pytest.raises(UserError, match="at least one"):
        played("vanilla", TINY).predict((9,))


def test_tables() -> None:
    from protoevfl.rows import sources

    if not sources.available("adult"):
        pytest.skip("needs the Adult data")
    same = [
        play("vanilla", {"epochs": 1}, kind, dataset="adult", pool=60)
        for kind in ("loop", "stacked")
    ]
    for a, b in zip(same[0].predict(), same[1].predict(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=0)


def test_learns() -> None:
    assert accuracy(play("vanilla", {"epochs": 25, "models": 1, "lr": 3e-3})) > 0.5
