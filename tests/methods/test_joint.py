"""The joint model of tables: never worse than alone by more than noise, better where a partner
knows something."""

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from protoevfl.federation.owner import Further, LabelOwner, OwnRows
from protoevfl.methods import joint, own_model
from protoevfl.methods.joint import (
    Joint,
    class_shift,
    fit_joint,
    log_loss,
    predict_joint,
    score_test,
    softmax,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SEEDS = range(4)


@pytest.fixture(autouse=True)
def _few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarser path and fewer folds: the properties do not rest on them."""
    monkeypatch.setattr(joint, "LAMBDAS", np.logspace(1.5, -0.5, 3))
    monkeypatch.setattr(joint, "FOLDS", 5)
    monkeypatch.setattr(joint, "REPEATS", 1)


def world(rows: int, seed: int, classes: int = 2) -> tuple[Floats, Floats, Ints]:
    """(own log-probabilities, a partner's features that tell as much again, classes): both
    calibrated."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    onehot = np.eye(classes)[labels]
    # p(own | z) ~ exp(own_z): log p(z | own) = own_z + constant
    own = onehot + rng.normal(size=(rows, classes))
    features = 1.5 * onehot + rng.normal(size=(rows, classes))
    return own - np.log(np.exp(own).sum(1, keepdims=True)), features, labels


def mean_loss(p: Floats, labels: Ints) -> float:
    return float(log_loss(np.log(p), labels).mean())


def bad_partner(kind: str, seed: int, rows: int = 150) -> tuple[Joint, Floats, Floats, Ints]:
    own, features, labels = world(rows, seed)
    rng = np.random.default_rng(seed + 100)
    bad = rng.normal(size=(rows, 6)) if kind == "noise" else features[rng.permutation(rows)]
    return fit_joint(own, bad, labels), own, bad, labels


@pytest.mark.parametrize("kind", ["noise", "shuffled"])
def test_a_partner_that_knows_nothing_changes_next_to_nothing(kind: str) -> None:
    """On 2,000 new rows; a partner that is believed by chance costs little, and most are not
    believed at all."""
    gates, costs = [], []
    for seed in SEEDS:
        model, *_ = bad_partner(kind, seed)
        own, features, labels = world(2000, seed + 50)
        if kind == "noise":
            features = np.random.default_rng(seed).normal(size=(2000, 6))
        else:
            features = np.random.default_rng(seed).permutation(features)
        p = model.predict(own, features)
        gates.append(model.gate)
        costs.append(mean_loss(p, labels) - mean_loss(softmax(own), labels))
    assert np.mean(gates) < 0.4
    assert max(costs) < 0.05  # a useful partner gains 0.2


def test_where_the_gate_is_shut_the_own_model_answers_as_it_is() -> None:
    shut = [found for seed in range(8) if (found := bad_partner("noise", seed))[0].gate == 0]
    assert len(shut) >= 2
    for model, own, features, _ in shut:
        np.testing.assert_allclose(
            model.predict(own, features), softmax(own + model.own_shift), atol=1e-12
        )
    assert any((model.own_shift == 0).all() for model, *_ in shut)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_score_test_tells_knowledge_from_chance(classes: int) -> None:
    """Probabilities of useless directions are spread over 0 to 1, those of useful ones are tiny."""
    useless = []
    for seed in range(20):
        own, features, labels = world(150, seed, classes)
        assert score_test(own, features, labels) <= 0.01
        noise = np.random.default_rng(seed + 100).normal(size=(150, 5))
        useless.append(score_test(own, noise, labels))
    assert 0.25 < np.mean(useless) < 0.75
    assert sum(p < 0.1 for p in useless) <= 6


def test_what_a_level_or_slope_of_the_own_score_explains_is_no_evidence_for_a_partner() -> None:
    own, _, labels = world(400, 0)
    timid = 0.3 * own  # a slope away from the truth
    repeated = own[:, :1]  # a partner that says what the own model says
    assert score_test(timid, repeated, labels) > 0.01


def test_a_class_rate_that_differs_is_no_gain_of_the_others() -> None:
    gates = []
    for seed in range(8):
        own, _, labels = world(150, seed)
        noise = np.random.default_rng(seed + 100).normal(size=(150, 6))
        gates.append(fit_joint(own + np.array([0.0, 1.0]), noise, labels).gate)
    assert np.mean(gates) < 0.4


@pytest.mark.parametrize("classes", [2, 3])
def test_a_useful_partner_makes_new_rows_likelier(classes: int) -> None:
    for seed in SEEDS:
        model = fit_joint(*world(200, seed, classes))
        own, features, labels = world(2000, seed + 50, classes)
        p = model.predict(own, features)
        assert model.gate == 1
        np.testing.assert_allclose(p.sum(1), 1)
        assert mean_loss(p, labels) < mean_loss(softmax(own), labels) - 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_mean_probabilities_of_the_shared_rows_are_the_own_models(classes: int) -> None:
    own, features, labels = world(200, 3, classes)
    model = fit_joint(own, features, labels)
    assert model.gate > 0
    alone = softmax(own + model.own_shift).mean(0)
    np.testing.assert_allclose(model.predict(own, features).mean(0), alone, atol=1e-3)


def test_rates_follow_the_shared_rows_only_where_these_contradict_the_own_model() -> None:
    own, features, labels = world(300, 0)
    assert (fit_joint(own, features, labels).own_shift == 0).all()
    biased = own + np.array([0.0, 3.0])  # says class 1 far too often
    model = fit_joint(biased, features, labels)
    np.testing.assert_allclose(
        softmax(biased + model.own_shift).mean(0)[1], labels.mean(), atol=0.01
    )


def test_class_shift_reaches_the_wanted_rates() -> None:
    logits = np.random.default_rng(0).normal(size=(300, 4)) * 3
    wanted = np.array([0.1, 0.2, 0.3, 0.4])
    shift = class_shift(logits, wanted)
    np.testing.assert_allclose(softmax(logits + shift).mean(0), wanted, atol=1e-6)
    assert abs(shift.sum()) < 1e-9


def test_the_order_of_columns_and_parties_does_not_matter() -> None:
    own, features, labels = world(150, 1)
    rng = np.random.default_rng(5)
    features = np.concatenate([features, rng.normal(size=(150, 4))], 1)
    query = np.concatenate([world(60, 2)[1], rng.normal(size=(60, 4))], 1)
    asked = world(60, 2)[0]
    order = rng.permutation(6)
    p = fit_joint(own, features, labels).predict(asked, query)
    other = fit_joint(own, features[:, order], labels).predict(asked, query[:, order])
    np.testing.assert_allclose(other, p, atol=5e-3)


def test_constant_features_are_no_evidence() -> None:
    own, _, labels = world(100, 0)
    p = fit_joint(own, np.zeros((100, 3)), labels).predict(own, np.zeros((100, 3)))
    assert np.isfinite(p).all()
    assert abs(p - softmax(own)).max() < 0.25  # at most the own model's slope and level moved


def test_a_long_batch_is_cut_up_and_an_empty_one_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_joint(*world(100, 0))
    own, features, _ = world(50, 1)
    whole = model.predict(own, features)
    monkeypatch.setattr(joint, "CHUNK", 7)
    np.testing.assert_allclose(model.predict(own, features), whole, atol=1e-12)
    assert model.predict(own[:0], features[:0]).shape == (0, 2)


# ---------------------------------------------------------------- with an owner

CLASSES, ROWS, PARTIES, WIDTH = 2, 120, 3, 2


def owner_with(
    monkeypatch: pytest.MonkeyPatch, further: Further | None = None
) -> tuple[LabelOwner, torch.Tensor, Ints]:
    """(owner after training, query features (M, n, d), truth); its own model's scores are given,
    not fitted."""
    own, features, labels = world(ROWS, 0)
    asked, query, truth = world(400, 9)
    extra = 0 if further is None else len(further.labels)
    scores = np.concatenate([own, world(extra, 4)[0]])
    monkeypatch.setattr(joint, "own_scores", lambda owner, rows: torch.from_numpy(asked).float())
    owner = LabelOwner(torch.from_numpy(labels), CLASSES, tuple(range(PARTIES)), 3, further=further)
    owner.own = OwnRows(
        torch.zeros(ROWS + extra, 1), torch.zeros(ROWS + extra), torch.zeros(400, 1), ROWS + extra
    )

    def blocks(x: Floats) -> torch.Tensor:  # party 1 knows something, party 2 nothing
        noise = np.random.default_rng(len(x)).normal(size=x.shape)
        return torch.from_numpy(np.stack([np.zeros_like(x), x, noise])).float()

    owner.memory |= {
        f"{own_model.PREFIX}shared": torch.from_numpy(scores).float(),
        "embeddings": blocks(features),
    }
    return owner, blocks(query), truth


def test_every_subset_gets_probabilities_and_the_active_party_alone_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, query, truth = owner_with(monkeypatch)
    loss = {}
    for size in range(1, PARTIES + 1):
        for present in combinations(range(PARTIES), size):
            here = torch.tensor([m in present for m in range(PARTIES)])
            p = predict_joint(owner, query, here)
            torch.testing.assert_close(p.sum(1), torch.ones(400))
            loss[present] = mean_loss(p.double().numpy(), truth)
    alone = softmax(world(400, 9)[0])
    np.testing.assert_allclose(loss[0,], mean_loss(alone, truth), atol=1e-5)
    assert loss[0, 1] < loss[0,] - 0.1
    assert loss[0, 1, 2] < loss[0,] - 0.1
    assert loss[0, 2] < loss[0,] + 0.05
    # without the active party: the labels of the shared rows alone
    assert loss[1,] < np.log(2) - 0.1


def test_a_model_is_fitted_once_per_set_of_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, query, _ = owner_with(monkeypatch)
    here = torch.ones(PARTIES, dtype=torch.bool)
    first = predict_joint(owner, query, here)
    monkeypatch.setattr(joint, "fit_joint", None)
    assert torch.equal(predict_joint(owner, query, here), first)


def test_further_rows_teach_those_who_hold_them_and_only_with_a_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20 further rows: 10 of party 1, 10 of party 2, every other one without a label."""
    labels = torch.from_numpy(world(20, 4)[2])
    labels[::2] = -1
    shared = torch.zeros(PARTIES, 20, dtype=torch.bool)
    shared[0], shared[1, :10], shared[2, 10:] = True, True, True
    owner, query, _ = owner_with(monkeypatch, Further(labels, shared))
    sent = torch.from_numpy(world(20, 4)[1]).float()
    owner.memory["further"] = sent * shared[..., None]
    taught: list[tuple[Floats, Floats, Ints]] = []

    def spy(own: Floats, features: Floats, labels: Ints, seed: int, mix: float) -> Joint:
        taught.append((own, features, labels))
        return fit_joint(own[:ROWS], features[:ROWS], labels[:ROWS])

    monkeypatch.setattr(joint, "fit_joint", spy)
    predict_joint(owner, query, torch.tensor([True, True, False]))
    predict_joint(owner, query, torch.tensor([True, True, True]))
    (own, features, known), (_, both, _) = taught
    assert features.shape == (ROWS + 5, WIDTH)
    np.testing.assert_array_equal(known[ROWS:], labels[1:10:2])
    np.testing.assert_allclose(features[ROWS:], sent[1:10:2])
    np.testing.assert_allclose(own[ROWS:], owner.memory["own.shared"][ROWS + 1 : ROWS + 10 : 2])
    assert both.shape == (ROWS + 10, 2 * WIDTH)
    assert (both[ROWS : ROWS + 5, WIDTH:] == 0).all()  # party 2 has none of these
    assert (both[ROWS + 5 :, :WIDTH] == 0).all()
