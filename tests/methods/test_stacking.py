"""The joint model of images: two honest scores multiplied, a gate, self-training, rows that only
some parties have."""

import pytest
import torch
from torch import Tensor

from protoevfl.core import ridge
from protoevfl.federation.owner import Further, LabelOwner, OwnRows
from protoevfl.methods import stacking
from protoevfl.methods.stacking import Evidence, predict_stacked, stack
from protoevfl.methods.unseen import UnseenSettings

M, Z, D = 3, 3, 6  # parties, classes, width of an embedding
SETTINGS = UnseenSettings(self_training=1.0, turns=2)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels_of(rows: int, seed: int) -> Tensor:
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed)) % Z


def scores(labels: Tensor, seed: int, strength: float = 1.0) -> Tensor:
    """Calibrated log-probabilities (n, Z): p(x | z) ~ exp(strength x_z) of rows around strength *
    onehot."""
    onehot = torch.nn.functional.one_hot(labels, Z)
    return (strength * (strength * onehot + drawn(seed, len(labels), Z))).log_softmax(1)


def embeddings(labels: Tensor, seed: int, useful: bool = True) -> Tensor:
    """(M, n, D): every party sees the class in directions of its own."""
    means = drawn(77, M, Z, D)[:, labels]
    return 1.5 * useful * means + drawn(seed, M, len(labels), D)


def owner_of(labels: Tensor, own_shared: Tensor, further: Further | None = None) -> LabelOwner:
    owner = LabelOwner(labels, Z, tuple(range(M)), 4, further=further)
    rows = torch.zeros(len(labels), 1, 8, 8)
    owner.own = OwnRows(rows, labels, rows, len(labels))
    owner.memory["own.shared"] = own_shared
    return owner


class World:
    """120 shared rows, 300 rows to be predicted; the own model's scores are given, not fitted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, useful: bool, seed: int = 0) -> None:
        labels = labels_of(120, seed)
        self.truth = labels_of(300, seed + 1)
        self.own = scores(self.truth, seed + 2)
        self.f = embeddings(labels, seed + 3, useful)
        self.query = embeddings(self.truth, seed + 4, useful)
        self.owner = owner_of(labels, scores(labels, seed + 5))
        monkeypatch.setattr(stacking, "own_scores", lambda owner, rows: self.own)

    def predict(self, present: tuple[int, ...], settings: UnseenSettings = SETTINGS) -> Tensor:
        here = torch.tensor([m in present for m in range(M)])
        return predict_stacked(self.owner, self.f, self.query, here, D, settings)

    def loss(self, p: Tensor) -> float:
        return float(torch.nn.functional.nll_loss(p.clamp(min=1e-12).log(), self.truth))


class TestStack:
    def test_without_rows_that_speak_the_weights_stay_at_one_and_zero(self) -> None:
        labels = labels_of(90, 0)
        flat = torch.full((90, Z), 1 / Z).log()
        found = stack([flat, flat], labels)
        torch.testing.assert_close(found.weights, torch.tensor([1.0, 0.0]), atol=1e-4, rtol=0)
        torch.testing.assert_close(found.level, torch.zeros(Z), atol=1e-4, rtol=0)

    def test_shrinkage_without_end_gives_the_own_model_and_none_the_calibrated_weights(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        labels = labels_of(4000, 0)
        both = [scores(labels, 1), scores(labels, 2)]
        monkeypatch.setattr(stacking, "SHRINK", 1e9)
        torch.testing.assert_close(
            stack(both, labels).weights, torch.tensor([1.0, 0.0]), atol=1e-3, rtol=0
        )
        monkeypatch.setattr(stacking, "SHRINK", 0.0)
        # independent and calibrated: both count fully
        assert (stack(both, labels).weights - 1).abs().max() < 0.2

    def test_evidence_without_meaning_hardly_counts_and_a_score_twice_as_sure_is_halved(
        self,
    ) -> None:
        labels = labels_of(4000, 0)
        noise = scores(labels_of(4000, 9), 2)
        assert abs(float(stack([scores(labels, 1), noise], labels).weights[1])) < 0.1
        assert abs(float(stack([2 * scores(labels, 1)], labels).weights[0]) - 0.5) < 0.1

    def test_the_likelihood_is_that_of_the_rows(self) -> None:
        labels = labels_of(200, 0)
        own = scores(labels, 1)
        found = stack([own], labels)
        expected = torch.nn.functional.cross_entropy(
            found.weights[0] * own + found.level, labels, reduction="sum"
        )
        assert abs(found.likelihood + float(expected)) < 0.01
        own_alone = -float(torch.nn.functional.nll_loss(own, labels, reduction="sum"))
        assert found.likelihood >= own_alone - 0.01


def test_left_out_rows_in_closed_form_are_those_of_refitting() -> None:
    """Rows count as in the whole fit (classes equally); without its own row the regression is
    solved again."""
    labels = labels_of(30, 0)
    y = torch.nn.functional.one_hot(labels, Z).double()
    x = drawn(1, 30, 4).double() + 2 * torch.eye(4).double()[labels]
    weight = torch.cat([torch.ones(20), torch.full((10,), 0.25)]).double()
    query = drawn(2, 7, 4).double()
    width = ridge.spread(x)
    evidence = Evidence(x, y, weight, query, width, torch.zeros(7), [])
    shared, asked = evidence.first(20)
    counts = ridge.equal_classes(y, weight)

    def solved(rows: Tensor, at: Tensor) -> Tensor:
        root = counts[rows].sqrt()[:, None]
        system = root * ridge.kernel(x[rows], x[rows], width) * root.T + ridge.PENALTY * torch.eye(
            len(rows)
        )
        dual = root * torch.linalg.solve(system, root * (y[rows] - 1 / Z))
        return (ridge.SCALE * ridge.kernel(at, x[rows], width) @ dual).log_softmax(1)

    everything = torch.arange(30)
    torch.testing.assert_close(asked, solved(everything, query))
    slow = torch.cat([solved(everything[everything != i], x[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(shared, slow)


class TestPrediction:
    def test_useful_partners_raise_the_likelihood_and_more_of_them_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World(monkeypatch, useful=True)
        alone, one, all_of_them = (
            world.loss(world.predict(present)) for present in ((0,), (0, 1), (0, 1, 2))
        )
        torch.testing.assert_close(world.predict((0,)), world.own.exp())
        assert one < alone - 0.1
        assert all_of_them < alone - 0.2

    @pytest.mark.parametrize("seed", range(3))
    def test_useless_partners_are_shut_out(
        self, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        """The answer is the own model's, with slope and levels as the shared rows have them."""
        world = World(monkeypatch, useful=False, seed=20 * seed)
        fitted = stack([world.owner.memory["own.shared"]], world.owner.labels)
        expected = (fitted.weights[0] * world.own + fitted.level).softmax(1)
        torch.testing.assert_close(world.predict((0, 1, 2)), expected)

    def test_the_gate_is_what_shuts_them_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(monkeypatch, useful=True)
        joined = world.predict((0, 1, 2))
        monkeypatch.setattr(stacking, "GAIN", 1e6)
        assert world.loss(world.predict((0, 1, 2))) > world.loss(joined) + 0.1

    def test_one_other_party_is_stacked_without_self_training(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World(monkeypatch, useful=True)
        off = UnseenSettings(self_training=0.0)
        torch.testing.assert_close(world.predict((0, 1)), world.predict((0, 1), off))
        assert not torch.allclose(
            world.predict((0, 1, 2)), world.predict((0, 1, 2), off), atol=1e-3
        )

    def test_probabilities_sum_to_one_and_self_training_keeps_the_confidence(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World(monkeypatch, useful=True)
        trained, stacked = (
            world.predict((0, 1, 2)),
            world.predict((0, 1, 2), UnseenSettings(self_training=0.0)),
        )
        for p in (trained, stacked):
            torch.testing.assert_close(p.sum(1), torch.ones(300))
        torch.testing.assert_close(
            trained.amax(1).mean(), stacked.amax(1).mean(), atol=1e-3, rtol=0
        )


def test_evidence_on_classes_the_others_never_saw_leaves_the_own_belief_as_it_is() -> None:
    own, evidence = scores(labels_of(50, 0), 1), scores(labels_of(50, 0), 2)
    shown = torch.tensor([True, True, False])
    p = (own + stacking.neutral(evidence, own, shown)).softmax(1)
    torch.testing.assert_close(p[:, 2], own.exp()[:, 2])
    torch.testing.assert_close(p[:, :2].log().diff(), (own + evidence)[:, :2].diff())
    assert torch.equal(stacking.neutral(evidence, own, torch.ones(Z, dtype=torch.bool)), evidence)


def test_a_class_that_only_unshared_rows_show_is_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, useful=True)
    seen = world.owner.labels != 2
    world.owner = owner_of(world.owner.labels[seen], world.owner.memory["own.shared"][seen])
    world.f = world.f[:, seen]
    last = world.truth == 2
    alone = (world.own.argmax(1) == world.truth)[last].float().mean()
    joint = (world.predict((0, 1, 2)).argmax(1) == world.truth)[last].float().mean()
    assert joint > alone - 0.15


class TestFurtherRows:
    def test_missing_blocks_that_follow_from_the_others_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stacking, "IMPUTATION_RIDGE", 1e-7)
        first = drawn(0, 200, D)
        units = torch.stack([first, first @ drawn(1, D, D) + 0.5, first @ drawn(2, D, D)])
        sent = units[:, 150:].clone()
        pattern = torch.tensor([True, False, True])
        sent[1] = 0
        found = stacking._regressed(units[:, :150], sent, pattern)
        torch.testing.assert_close(found, units[:, 150:], atol=1e-3, rtol=0)

    def test_where_nothing_follows_the_mean_is_taken_and_what_was_sent_stays(self) -> None:
        units = drawn(0, 2, 4000, 4) + 3
        sent = drawn(1, 2, 10, 4) + 3
        found = stacking._regressed(units, sent, torch.tensor([True, False]))
        assert torch.equal(found[0], sent[0])
        assert (found[1] - units[1].mean(0)).abs().max() < 0.3

    def further(self) -> tuple[LabelOwner, Tensor]:
        """12 further rows: 0-3 of party 1, 4-7 of party 2, 8-11 of nobody else; every fourth has no
        label."""
        shared = torch.zeros(M, 12, dtype=torch.bool)
        shared[0], shared[1, :4], shared[2, 4:8] = True, True, True
        labels = torch.arange(12) % Z
        labels[::4] = -1
        owner = owner_of(labels_of(60, 0), torch.zeros(72, Z), Further(labels, shared))
        sent = drawn(5, M, 12, D) * shared[..., None]
        owner.memory["further"] = sent
        return owner, stacking._units(drawn(6, 2, 60, D), D)

    def test_rows_with_a_label_that_another_party_has_teach(self) -> None:
        owner, units = self.further()
        blocks, labels = stacking._imputed(owner, units, [1, 2], D)
        assert blocks.shape == (2, 6, D)
        assert sorted(labels.tolist()) == sorted([1, 2, 0, 2, 0, 1])

    def test_a_party_that_was_away_when_they_were_asked_for_is_not_believed(self) -> None:
        owner, units = self.further()
        owner.memory["further"][1] = 0
        _, labels = stacking._imputed(owner, units, [1, 2], D)
        assert sorted(labels.tolist()) == sorted([2, 0, 1])

    def test_rows_of_absent_parties_are_left_out(self) -> None:
        owner, units = self.further()
        blocks, _ = stacking._imputed(owner, units[:1], [2], D)
        assert blocks.shape == (1, 3, D)
        owner.memory["further"][:] = 0
        blocks, labels = stacking._imputed(owner, units, [1, 2], D)
        assert blocks.shape == (2, 0, D)
        assert not len(labels)
