"""The active party's own model: honest scores of rows it learnt from, every label used, kept as
plain tensors."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner, OwnRows
from protoevfl.methods import boosting, forest, own_trees
from protoevfl.methods.own_model import (
    OwnModelSettings,
    folds,
    has_own_model,
    own_scores,
    train_own_model,
)
from protoevfl.methods.own_trees import FLOOR

SHARED = 40
FEW_TREES = ({"learning_rate": 0.3, "max_iter": 10}, {"learning_rate": 0.1, "max_iter": 5})
TINY = OwnModelSettings(members=3, steps=30, batch=64, width=16)


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trees, "BOOSTING", FEW_TREES)


def data(count: int, seed: int, classes: int = 3, shift: float = 2.0) -> tuple[Tensor, Tensor]:
    """Rows (n, 4) around a mean per class, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randperm(count, generator=generator) % classes
    x = torch.randn(count, 4, generator=generator)
    x[:, 0] += shift * (y == 1)
    x[:, 1] += shift * (y == 2)
    return x, y


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, 12, 12) with a bright half, left or right by their class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randperm(count, generator=generator) % 2
    x = 60 * torch.rand(count, 1, 12, 12, generator=generator)
    x[y == 0, ..., :6] += 150
    x[y == 1, ..., 6:] += 150
    return x.to(torch.uint8), y


def owner_of(
    x: Tensor, y: Tensor, query: Tensor, classes: int = 3, shared: int = SHARED
) -> LabelOwner:
    labels = y[:shared].clamp(min=0)
    return LabelOwner(labels, classes, (0, 1), 5, own=OwnRows(x, y, query, shared))


def trained(count: int = 300, classes: int = 3) -> tuple[LabelOwner, Tensor, Tensor]:
    x, y = data(count, 0, classes)
    query, truth = data(400, 1, classes)
    owner = owner_of(x, y, query, classes)
    train_own_model(owner, OwnModelSettings())
    return owner, y, truth


def test_folds_are_even_class_by_class() -> None:
    labels = torch.tensor([0] * 23 + [1] * 10 + [2])
    fold = folds(labels, 3, 5, torch.tensor([3]))
    for z in range(3):
        counts = torch.bincount(fold[labels == z], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert not torch.equal(fold, folds(labels, 3, 5, torch.tensor([4])))


def test_the_member_that_scores_a_shared_row_has_not_learnt_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By construction: every row is recognised by its values in what each fit was given."""
    learnt_from: list[set[float]] = []

    def spied(fit):  # type: ignore[no-untyped-def]
        def spy(x, y, *others, **settings):  # type: ignore[no-untyped-def]
            model = fit(x, y, *others, **settings)
            model.names = set(x[:, 0].tolist())
            learnt_from.append(model.names)
            ask = model.predict_proba

            def predict(rows):  # type: ignore[no-untyped-def]
                assert model.names.isdisjoint(rows[:, 0].tolist())
                return ask(rows)

            model.predict_proba = predict
            return model

        return spy

    monkeypatch.setattr(boosting, "fit_boosting", spied(boosting.fit_boosting))
    monkeypatch.setattr(forest, "fit_forest", spied(forest.fit_forest))
    owner, y, _ = trained()
    assert owner.own is not None
    assert len(learnt_from) == 15  # five members of each of three kinds
    for value in owner.own.rows[:, 0].tolist():
        assert sum(value in names for names in learnt_from) == 12
    assert owner.memory["own.shared"].shape == (SHARED, 3)
    held_out = owner.memory["own.shared"].argmax(1) == y[:SHARED]
    assert held_out.float().mean() > 0.5  # chance is a third


def test_labels_without_meaning_are_not_found_again() -> None:
    """A model that had seen the rows it scores would remember them."""
    x, _ = data(300, 0)
    noise = torch.randperm(300, generator=torch.Generator().manual_seed(9)) % 3
    owner = owner_of(x, noise, x, shared=300)
    train_own_model(owner, OwnModelSettings())
    honest = (owner.memory["own.shared"].argmax(1) == noise).float().mean()
    seen = (own_scores(owner, x).argmax(1) == noise).float().mean()
    assert honest < 0.45
    assert seen > 0.6


def test_new_rows_are_scored_better_than_by_chance_and_probabilities_sum_to_one() -> None:
    owner, _, truth = trained()
    assert owner.own is not None
    log_p = own_scores(owner, owner.own.query)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(400))
    assert log_p.exp().min() >= FLOOR / 2
    assert F.nll_loss(log_p, truth) < 0.8 * torch.tensor(3.0).log()
    assert has_own_model(owner)


@pytest.mark.parametrize("kind", ["table", "images"])
def test_the_kept_tensors_alone_give_the_same_scores(tmp_path: Path, kind: str) -> None:
    (x, y), (query, _) = (
        (data(200, 0, 2), data(50, 1, 2)) if kind == "table" else (images(60, 0), images(20, 1))
    )
    owner = owner_of(x, y, query, 2)
    train_own_model(owner, TINY)
    save_file(
        {name: t.contiguous() for name, t in owner.memory.items()}, tmp_path / "memory.safetensors"
    )
    again = replace(
        owner_of(x, y, query, 2), memory=load_file(tmp_path / "memory.safetensors"), own=None
    )
    assert torch.equal(own_scores(again, query), own_scores(owner, query))


def test_rows_without_a_label_teach_nothing_and_are_still_scored() -> None:
    x, y = data(300, 0)
    unknown = torch.arange(300) % 4 == 3
    some = y.masked_fill(unknown, -1)
    owner = owner_of(x, some, x[:5])
    train_own_model(owner, OwnModelSettings())
    changed = x.clone()
    changed[unknown] += 100.0  # what unlabelled rows hold must not matter for the others
    other = owner_of(changed, some, x[:5])
    train_own_model(other, OwnModelSettings())
    known = ~unknown[:SHARED]
    assert torch.equal(own_scores(owner, x[:5]), own_scores(other, x[:5]))
    assert torch.equal(owner.memory["own.shared"][known], other.memory["own.shared"][known])
    torch.testing.assert_close(
        owner.memory["own.shared"][~known], own_scores(owner, x[:SHARED][~known])
    )


def test_a_class_that_only_unshared_rows_show_is_recognised() -> None:
    x, y = data(400, 0)
    order = torch.cat(
        [(y != 2).nonzero()[:SHARED, 0], (y == 2).nonzero()[:, 0], (y != 2).nonzero()[SHARED:, 0]]
    )
    x, y = x[order], y[order]
    query, truth = data(300, 1)
    owner = owner_of(x, y, query)
    assert 2 not in owner.labels
    train_own_model(owner, OwnModelSettings())
    guess = own_scores(owner, query).argmax(1)
    assert (guess[truth == 2] == 2).float().mean() > 0.5


def test_a_class_with_a_single_label_leaves_a_fold_without_it() -> None:
    x, y = data(60, 0, 2)
    y[:] = 0
    y[7] = 1
    owner = owner_of(x, y, x, 2)
    train_own_model(owner, OwnModelSettings())
    assert owner.memory["own.shared"].isfinite().all()
    assert own_scores(owner, x).isfinite().all()


def test_too_few_labels_for_the_folds_are_refused() -> None:
    x, y = data(12, 0)
    with pytest.raises(UserError, match="at least 5 labelled rows of one class"):
        train_own_model(owner_of(x, y, x, shared=6), OwnModelSettings())


class TestImages:
    def test_a_few_steps_tell_bright_halves_apart(self) -> None:
        x, y = images(90, 0)
        query, truth = images(40, 1)
        owner = owner_of(x, y, query, 2)
        train_own_model(owner, TINY)
        assert (own_scores(owner, query).argmax(1) == truth).float().mean() > 0.9
        assert (owner.memory["own.shared"].argmax(1) == y[:SHARED]).float().mean() > 0.8

    def test_a_shared_row_is_never_drawn_by_the_member_that_scores_it(self) -> None:
        """Each member's network remembers nothing of its fold: shared rows with a wrong label keep
        their true score."""
        x, y = images(90, 0)
        wrong = y.clone()
        wrong[:4] = 1 - y[:4]
        owner = owner_of(x, wrong, x, 2)
        train_own_model(owner, TINY)
        assert (owner.memory["own.shared"][:4].argmax(1) == y[:4]).all()

    def test_frequent_classes_are_not_favoured(self) -> None:
        """Pictures without any sign of their class: nine in ten are of class 0, and still both are
        as likely."""
        generator = torch.Generator().manual_seed(0)
        x = (255 * torch.rand(200, 1, 12, 12, generator=generator)).to(torch.uint8)
        y = (torch.arange(200) % 10 == 0).long()
        owner = owner_of(x, y, x, 2, shared=20)
        train_own_model(owner, replace(TINY, lr=1e-2))
        blank = (255 * torch.rand(200, 1, 12, 12, generator=generator)).to(torch.uint8)
        assert 0.3 < float(own_scores(owner, blank).exp()[:, 1].mean()) < 0.7
