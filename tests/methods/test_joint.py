"""The joint model of tables: never worse than alone by more than noise, better where a partner
knows something."""

from collections.abc import Sequence
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
    softmax,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SEEDS = range(4)


@pytest.fixture(autouse=True)
def _few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarser path: the properties do not rest on it."""
    monkeypatch.setattr(joint, "LAMBDAS", np.logspace(2.3, -0.7, 4))


def world(rows: int, seed: int, classes: int = 2) -> tuple[Floats, Floats, Ints]:
    """(own log-probabilities, features (1, rows, Z) of a partner that tell as much again, classes):
    both calibrated."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    onehot = np.eye(classes)[labels]
    # p(own | z) ~ exp(own_z): log p(z | own) = own_z + constant
    own = onehot + rng.normal(size=(rows, classes))
    features = 1.5 * onehot + rng.normal(size=(rows, classes))
    return own - np.log(np.exp(own).sum(1, keepdims=True)), features[None], labels


def mean_loss(p: Floats, labels: Ints) -> float:
    return float(log_loss(np.log(p), labels).mean())


def useless(kind: str, features: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed + 100)
    if kind == "noise":
        return rng.normal(size=(1, features.shape[1], 6))
    return rng.permutation(features, axis=1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["noise", "shuffled"])
def test_a_partner_that_knows_nothing_changes_next_to_nothing(kind: str, classes: int) -> None:
    """On 2,000 new rows; the belief in the own model rises above what it was beforehand."""
    alone, costs = [], []
    for seed in SEEDS:
        own, features, labels = world(150, seed, classes)
        model = fit_joint(own, useless(kind, features, seed), labels)
        own, features, labels = world(2000, seed + 50, classes)
        p = model.predict(own, useless(kind, features, seed + 50))
        alone.append(model.alone)
        costs.append(mean_loss(p, labels) - mean_loss(softmax(own), labels))
    assert np.mean(alone) > joint.ALONE
    assert max(costs) < 0.05  # a useful partner gains 0.2


def test_a_useless_partner_beside_a_useful_one_costs_little() -> None:
    """The others are weighed one by one, not all or none."""
    for seed in SEEDS:
        own, features, labels = world(150, seed)
        noise = np.random.default_rng(seed + 100).normal(size=features.shape)
        both = fit_joint(own, np.concatenate([features, noise]), labels)
        useful = max(both.views, key=lambda view: float(np.abs(view.weights).sum()))
        assert useful.kernel.factors[0] == 1
        asked, query, truth = world(2000, seed + 50)
        noise = np.random.default_rng(seed + 200).normal(size=query.shape)
        loss = mean_loss(both.predict(asked, np.concatenate([query, noise])), truth)
        one = mean_loss(fit_joint(own, features, labels).predict(asked, query), truth)
        assert loss < one + 0.03


def test_what_a_level_or_slope_of_the_own_score_explains_is_no_evidence_for_a_partner() -> None:
    own, _, labels = world(400, 0)
    timid = 0.8 * own  # a slope away from the truth
    repeated = own[None, :, :1]  # a partner that says what the own model says
    assert fit_joint(timid, repeated, labels).alone > joint.ALONE


def test_a_class_rate_that_differs_is_no_gain_of_the_others() -> None:
    alone = []
    for seed in range(8):
        own, features, labels = world(150, seed)
        noise = useless("noise", features, seed)
        alone.append(fit_joint(own + np.array([0.0, 1.0]), noise, labels).alone)
    assert np.mean(alone) > joint.ALONE


def test_the_evidence_of_a_hypothesis_is_the_probability_of_the_labels() -> None:
    """One row, one direction, two classes: Laplace's approximation against numerical integration."""
    own = np.log(np.array([[0.6, 0.4]]))
    x = np.array([[0.5]])
    nothing = np.zeros((1, 2))  # the slope acts on nothing
    fit = joint._fit(own, nothing, x, np.array([1]), 2.0)
    grid = np.linspace(-8, 8, 4001)
    # what level and direction add to the log-odds of class 1: the difference of two normals each
    spread = np.sqrt(2 * (joint.LEVEL**2 + 0.5**2 / 2.0))
    density = np.exp(-((grid / spread) ** 2) / 2) / spread / np.sqrt(2 * np.pi)
    odds = grid + own[0, 1] - own[0, 0]
    exact = float((density / (1 + np.exp(-odds))).sum() * (grid[1] - grid[0]))
    assert abs(fit.evidence - np.log(exact)) < 0.02


@pytest.mark.parametrize("partners", [1, 2, 3, 5])
def test_every_partner_is_believed_alone_with_all_and_left_out(partners: int) -> None:
    sets = [tuple(np.flatnonzero(factors.ravel() == 1)) for factors in joint._sets(partners)]
    assert len(set(sets)) == len(sets)
    assert sets[0] == tuple(range(partners))
    assert all((m,) in sets for m in range(partners))
    assert partners == 1 or all(
        tuple(k for k in range(partners) if k != m) in sets for m in range(partners)
    )
    assert len(sets) <= 1 + 2 * partners


@pytest.mark.parametrize("classes", [2, 3])
def test_a_useful_partner_makes_new_rows_likelier(classes: int) -> None:
    for seed in SEEDS:
        model = fit_joint(*world(200, seed, classes))
        own, features, labels = world(2000, seed + 50, classes)
        p = model.predict(own, features)
        assert model.alone < 0.01
        np.testing.assert_allclose(p.sum(1), 1)
        assert mean_loss(p, labels) < mean_loss(softmax(own), labels) - 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_mean_probabilities_of_the_shared_rows_are_the_own_models(classes: int) -> None:
    own, features, labels = world(200, 3, classes)
    model = fit_joint(own, features, labels)
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
    features = np.concatenate([features, rng.normal(size=(2, 150, 2))])
    query = np.concatenate([world(60, 2)[1], rng.normal(size=(2, 60, 2))])
    asked = world(60, 2)[0]
    order = np.array([2, 0, 1])
    p = fit_joint(own, features, labels).predict(asked, query)
    turned, asking = (x[order][..., ::-1] for x in (features, query))
    other = fit_joint(own, turned, labels).predict(asked, asking)
    np.testing.assert_allclose(other, p, atol=5e-3)


def test_constant_features_are_no_evidence() -> None:
    own, _, labels = world(100, 0)
    p = fit_joint(own, np.zeros((2, 100, 3)), labels).predict(own, np.zeros((2, 100, 3)))
    assert np.isfinite(p).all()
    assert abs(p - softmax(own)).max() < 0.25  # at most the own model's slope and level moved


def test_a_long_batch_is_cut_up_and_an_empty_one_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_joint(*world(100, 0))
    own, features, _ = world(50, 1)
    whole = model.predict(own, features)
    monkeypatch.setattr(joint, "CHUNK", 7)
    np.testing.assert_allclose(model.predict(own, features), whole, atol=1e-12)
    assert model.predict(own[:0], features[:, :0]).shape == (0, 2)


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
        return torch.from_numpy(np.concatenate([np.zeros_like(x), x, noise])).float()

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

    def spy(own: Floats, features: Sequence[Floats], labels: Ints, mix: float) -> Joint:
        taught.append((own, np.stack(features), labels))
        return fit_joint(own[:ROWS], [sent[:ROWS] for sent in features], labels[:ROWS])

    monkeypatch.setattr(joint, "fit_joint", spy)
    predict_joint(owner, query, torch.tensor([True, True, False]))
    predict_joint(owner, query, torch.tensor([True, True, True]))
    (own, features, known), (_, both, _) = taught
    assert features.shape == (1, ROWS + 5, WIDTH)
    np.testing.assert_array_equal(known[ROWS:], labels[1:10:2])
    np.testing.assert_allclose(features[0, ROWS:], sent[0, 1:10:2])
    np.testing.assert_allclose(own[ROWS:], owner.memory["own.shared"][ROWS + 1 : ROWS + 10 : 2])
    assert both.shape == (2, ROWS + 10, WIDTH)
    assert (both[1, ROWS : ROWS + 5] == 0).all()  # party 2 has none of these
    assert (both[0, ROWS + 5 :] == 0).all()
