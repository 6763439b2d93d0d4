"""What the rows to be predicted show: groups that nobody covers, their names, and self-training."""

import pytest
import torch
from torch import Tensor

from protoevfl.federation.owner import LabelOwner
from protoevfl.head import HeadNet, probabilities, train_head
from protoevfl.methods import batch
from protoevfl.methods.guesses import Found
from protoevfl.methods.unseen import UnseenSettings
from tests.methods.three_classes import QUICK, D, M, Z, owner, rows

ALL = torch.ones(M, dtype=torch.bool)


def predict(
    me: LabelOwner, f: Tensor, query: Tensor, here: Tensor = ALL, self_training: float = 0.0
) -> Tensor:
    return predicted(me, f, query, UnseenSettings(self_training=self_training), here)


def predicted(
    me: LabelOwner,
    f: Tensor,
    query: Tensor,
    settings: UnseenSettings,
    here: Tensor = ALL,
    width: int = D,
) -> Tensor:
    both = batch.batch_of(me, f, query, here, width, settings)
    return batch.predict_batch(me, both, here, settings)


def test_a_batch_teaches_the_unseen_class_and_no_row_teaches_itself() -> None:
    f, labels = rows([20, 20, 0], 5)
    query, truth = rows([150, 150, 100], 6)
    p = predict(owner(labels, unseen=(2,)), f, query)
    assert p.shape == (400, Z)
    torch.testing.assert_close(p.sum(1), torch.ones(400))
    assert (p.argmax(1) == truth).float().mean() > 0.9


def test_a_rare_class_is_half_what_the_uncovered_rows_say_and_half_what_its_labels_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f, labels = rows([20, 20, 3], 5, noise=1.0)
    query, _ = rows([100, 100, 100], 6, noise=1.0)
    said, ask = [], batch.ridge.predict

    def spy(model: batch.ridge.Ridge, x: Tensor) -> Tensor:
        said.append(ask(model, x))
        return said[-1]

    monkeypatch.setattr(batch.ridge, "as_sure", lambda p, confidence: p)
    by_labels = predict(owner(labels), f, query)
    monkeypatch.setattr(batch.ridge, "predict", spy)
    p = predict(owner(labels, rare=(2,)), f, query)
    uncovered = torch.cat(said[:2])  # the folds one after the other
    torch.testing.assert_close(2 * p.sum(0) - by_labels.sum(0), uncovered.sum(0))
    assert by_labels[:, 2].mean() < p[:, 2].mean() < uncovered[:, 2].mean()


def test_two_unseen_classes_get_two_groups() -> None:
    f, labels = rows([20, 0, 0], 7)
    query, truth = rows([150, 100, 100], 8)
    p = predict(owner(labels, unseen=(1, 2)), f, query)
    guess = p.argmax(1)
    straight, crossed = (
        (guess == truth).float().mean(),
        (guess == torch.tensor([0, 2, 1])[truth]).float().mean(),
    )
    assert max(straight, crossed) > 0.85


def test_one_example_of_each_unseen_class_names_the_groups() -> None:
    f, labels = rows([20, 0, 0], 7)
    query, truth = rows([150, 100, 100], 8)
    for first, second in ((1, 2), (2, 1)):
        told = {
            first: int((truth == first).nonzero()[3]),
            second: int((truth == second).nonzero()[5]),
        }
        me = owner(labels, unseen=(first, second), examples=told)
        p = predict(me, f, query)
        assert (p.argmax(1) == truth).float().mean() > 0.85


def named(me: LabelOwner, swap: bool, seed: int = 12) -> list[int]:
    """The true class of the group that each unseen class takes; groups come in either order."""
    aligned, _ = seven_classes([12] * 5 + [0, 0], seed)
    query, truth = seven_classes([0] * 5 + [40, 60], seed + 1)
    groups = torch.eye(7)[truth]
    if swap:
        groups = groups[:, [0, 1, 2, 3, 4, 6, 5]]
    everything = torch.arange(100)
    guess = Found(everything, groups, torch.tensor(1.0))
    order = batch.name_order(me, guess, aligned, query, everything)
    assert order[:5].tolist() == [0, 1, 2, 3, 4]
    return [int(truth[groups[:, order[z]].argmax()]) for z in (5, 6)]


ATTRIBUTES = torch.tensor(
    [
        [1.0, 0, 0, 5],
        [0, 1, 0, 5],
        [0, 0, 1, 5],
        [1, 1, 0, 5],
        [0, 1, 1, 5],
        [1, 0, 1, 5],
        [2, 0, 0, 5],
    ]
)


def seven_classes(counts: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Joint embeddings (n, 8): a random linear map of the attributes of the class, and noise."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(7), torch.tensor(counts))
    shape = 3 * torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    return ATTRIBUTES[labels] @ shape + 0.5 * torch.randn(len(labels), 8, generator=source), labels


def seven(**more: object) -> LabelOwner:
    labels = torch.arange(5).repeat_interleave(12)
    return LabelOwner(labels, 7, (0, 1), key=7, unseen=(5, 6), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("swap", [False, True])
def test_attributes_name_the_groups_and_swapped_attributes_swap_the_names(swap: bool) -> None:
    for seed in range(5):
        assert named(seven(attributes=ATTRIBUTES), swap, 10 * seed) == [5, 6]
        assert named(seven(attributes=ATTRIBUTES[[0, 1, 2, 3, 4, 6, 5]]), swap, 10 * seed) == [6, 5]


def test_the_unit_of_an_attribute_and_a_constant_one_do_not_matter() -> None:
    scaled = ATTRIBUTES * torch.tensor([1e4, 1e-3, 1.0, 1.0]) + torch.tensor([0.0, 7.0, -3.0, 0.0])
    assert named(seven(attributes=scaled), True) == [5, 6]


@pytest.mark.parametrize("swap", [False, True])
def test_an_example_wins_over_attributes(swap: bool) -> None:
    wrong = ATTRIBUTES[[0, 1, 2, 3, 4, 6, 5]]
    for told in ({5: 3}, {6: 70}, {5: 3, 6: 70}):  # rows 0 to 39 are of class 5
        assert named(seven(attributes=wrong, examples=told), swap) == [5, 6]
    assert named(seven(attributes=ATTRIBUTES, examples={5: 70}), swap) == [6, 5]


def test_without_side_information_groups_stay_in_their_order() -> None:
    assert named(seven(), False) == [5, 6]
    assert named(seven(), True) == [6, 5]


def test_single_rows_are_predicted_by_what_a_batch_of_the_same_parties_taught() -> None:
    f, labels = rows([20, 20, 0], 5)
    query, _ = rows([150, 150, 100], 6)
    later, truth = rows([20, 20, 20], 9)
    me = owner(labels, unseen=(2,))
    assert not batch.learnt_before(me, ALL)
    predict(me, f, query)
    some = ALL.clone()
    some[0] = False
    assert batch.learnt_before(me, ALL)
    assert not batch.learnt_before(me, some)
    parts = [batch.predict_by_earlier_batch(me, row, ALL, D) for row in later.split(1, dim=1)]
    p = torch.cat(parts)
    assert (p.argmax(1) == truth).float().mean() > 0.9
    # one by one and together are the same
    torch.testing.assert_close(p, batch.predict_by_earlier_batch(me, later, ALL, D))


def test_self_training_learns_from_the_batch_what_few_labels_do_not_say() -> None:
    """One labelled row a class in much noise; 300 rows to be predicted show where the classes lie:
    4 points."""
    accuracy = []
    for seed in range(6):
        f, labels = rows([1, 1, 1], seed, noise=2.0)
        query, truth = rows([100, 100, 100], seed + 50, noise=2.0)
        me = owner(labels)
        me.head = train_head(me.keys("head", QUICK.members), f, labels, Z, QUICK)
        assert isinstance(me.head, HeadNet)
        guesses = [
            probabilities(me.head, query),
            predict(me, f, query),
            predict(me, f, query, self_training=1.0),
        ]
        accuracy.append(torch.stack([(p.argmax(1) == truth).float().mean() for p in guesses]))
    head, without, with_it = torch.stack(accuracy).mean(0)
    assert with_it > without + 0.02
    assert with_it > head + 0.02


def test_what_one_party_sees_alone_does_not_hide_what_both_see() -> None:
    """Each party has a large variation of its own; the class is in what the two have in common, few
    rows hide it."""
    source, hits = torch.Generator().manual_seed(0), []
    truth = torch.arange(600) % Z
    common = 2 * torch.eye(Z)[truth] + 0.3 * torch.randn(600, Z, generator=source)
    f = torch.cat([common.expand(M, -1, -1), 8 * torch.randn(M, 600, 40, generator=source)], -1)
    # 43 dimensions: too few rows to tell, and enough
    for some in (torch.arange(20, 42), torch.arange(20, 600)):
        p = predicted(owner(truth[:20]), f[:, :20], f[:, some], UnseenSettings(), width=Z + 40)
        hits.append((p.argmax(1) == truth[some]).float().mean())
    assert hits[1] > hits[0] + 0.2


def test_rows_of_a_fold_teach_only_the_other_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    f, labels = rows([10, 10, 10], 1)
    query, _ = rows([100, 100, 100], 2)
    me, calls, fit = owner(labels), [], batch.ridge.fit

    def spy(x: Tensor, y: Tensor, weight: Tensor, spread: Tensor) -> batch.ridge.Ridge:
        calls.append(x)
        return fit(x, y, weight, spread)

    def points(f: Tensor) -> Tensor:
        return f.movedim(0, 1).flatten(1)

    class AsSent:
        def points(self, f: Tensor, width: int) -> Tensor:
            return points(f)

    monkeypatch.setattr(batch.ridge, "fit", spy)
    monkeypatch.setattr(batch, "space", lambda f, width: AsSent())
    before = predict(me, f, query, self_training=1.0)
    assert len(calls) == 2 * (1 + UnseenSettings().turns)
    # (n,)
    halves = [torch.cdist(points(query), x[len(labels) :]).amin(1) < 1e-2 for x in calls[-2:]]
    assert (halves[0] ^ halves[1]).all()
    assert halves[0].sum() == 150
    moved = query.clone()
    moved[:, 17] += 3.0
    changed = (before - predict(me, f, moved, self_training=1.0)).abs().amax(1) > 1e-6
    assert changed[halves[0] != halves[0][17]].any()


@pytest.mark.parametrize(("turns", "width"), [(0, 1.0), (2, 0.5), (5, 3.0)])
def test_turns_and_kernel_width_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, turns: int, width: float
) -> None:
    f, labels = rows([10, 10, 10], 1)
    query, _ = rows([100, 100, 100], 2)
    widths, fit = [], batch.ridge.fit

    def spy(x: Tensor, y: Tensor, weight: Tensor, spread: Tensor) -> batch.ridge.Ridge:
        widths.append(float(spread / batch.ridge.spread(x[: len(labels)])))
        return fit(x, y, weight, spread)

    monkeypatch.setattr(batch.ridge, "fit", spy)
    settings = UnseenSettings(self_training=1.0, turns=turns, kernel_width=width)
    predicted(owner(labels), f, query, settings)
    assert widths == pytest.approx([width] * 2 * (1 + turns))


def test_a_class_without_labels_stays_without_rows() -> None:
    f, labels = rows([20, 20, 0], 5)
    query, truth = rows([100, 100, 100], 6)
    guess = predict(owner(labels), f, query, self_training=1.0).argmax(1)
    assert not (guess == 2).any()
    assert (guess[truth < 2] == truth[truth < 2]).float().mean() > 0.9


def test_a_party_that_is_missing_does_not_matter() -> None:
    f, labels = rows([20, 20, 20], 5)
    query, truth = rows([100, 100, 100], 6)
    for more in ({}, {"rare": (2,)}):
        me, here = owner(labels, **more), torch.tensor([True, False])
        p = predict(me, f, query, here, 1.0)
        assert (p.argmax(1) == truth).float().mean() > 0.9
        other = query.clone()
        other[1] = torch.nan
        assert torch.equal(p, predict(me, f, other, here, 1.0))


def test_more_rows_than_can_teach_at_once_are_sampled() -> None:
    f, labels = rows([300, 300, 0], 5)
    query, truth = rows([200, 200, 200], 6)
    few = UnseenSettings(self_training=0.3, batch_rows=80)
    p = predicted(owner(labels, unseen=(2,)), f, query, few)
    assert (p.argmax(1) == truth).float().mean() > 0.9
