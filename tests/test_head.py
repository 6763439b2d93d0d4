"""Heads: gates, missing parties, mixup, synthetic rows, rows left out, ensembles; members do not
touch each other."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl import head
from protoevfl.head import Drawn, HeadNet, HeadSettings, HeadTask, train_head, train_heads
from tests.tiny import keys

M, N, D, Z, E = 3, 24, 5, 3, 2
QUICK = HeadSettings(members=E, hidden=8, epochs=4, batch=8)


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embeddings (M, N, d) that tell the class, and labels (N,)."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.arange(N) % Z
    means = 2 * torch.randn(M, Z, D, generator=source)
    return means[:, labels] + torch.randn(M, N, D, generator=source), labels


def net(settings: HeadSettings = QUICK, members: int = E) -> HeadNet:
    """A head with all its weights at random, also those that begin at zero."""
    made = HeadNet(keys(members), M, D, Z, settings)
    for n, p in enumerate(made.parameters()):
        p.data.normal_(generator=torch.Generator().manual_seed(n))
    return made


def batch(rows: int = 6) -> Tensor:
    return torch.randn(E, M, rows, D, generator=torch.Generator().manual_seed(1))


class TestNet:
    def test_formula(self) -> None:
        """Against loops over members, rows and parties."""
        model, f = net(), batch()
        assert model.adaptor is not None
        assert model.gate is not None
        for e in range(E):
            for b in range(f.shape[2]):
                adapted = [f[e, m, b] + f[e, m, b] @ model.adaptor[e, m] for m in range(M)]
                gates = torch.stack([a @ model.gate[e, m] for m, a in enumerate(adapted)]).softmax(
                    0
                )
                x = torch.cat([M * g * a for g, a in zip(gates, adapted, strict=True)])
                for n, layer in enumerate(model.layers):
                    x = (x.relu() if n else x) @ layer.weight[e] + layer.bias[e, 0]
                torch.testing.assert_close(model(f)[e, b], x, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize(
        "present", [None, torch.tensor([True, False, True]), torch.tensor([False, False, True])]
    )
    def test_gates_sum_to_one_over_the_parties_present(self, present: Tensor | None) -> None:
        gates = net().gates(batch(), present)
        assert gates.shape == (E, M, 6)
        torch.testing.assert_close(gates.sum(1), torch.ones(E, 6))
        if present is not None:
            assert not gates[:, ~present].any()

    def test_without_a_gate_parties_count_the_same(self) -> None:
        model = net(HeadSettings(gate=False, hidden=8))
        assert torch.equal(model.gates(batch(), None), torch.full((E, M, 6), 1 / M))
        assert torch.equal(
            model.gates(batch(), torch.tensor([True, False, True]))[:, 1], torch.zeros(E, 6)
        )

    @pytest.mark.parametrize("gate", [True, False])
    @pytest.mark.parametrize("value", [1e30, float("nan"), float("inf")])
    def test_what_a_missing_party_holds_has_no_influence(self, value: float, gate: bool) -> None:
        model, f = net(HeadSettings(hidden=8, gate=gate)), batch()
        rows = torch.rand(M, 6, generator=torch.Generator().manual_seed(3)) < 0.6
        rows[0] = True
        for mask in (torch.tensor([True, False, True]), rows):
            here = head._spread(mask).expand(M, 6)
            spoilt = torch.where(here[None, :, :, None], f, value)
            out = model(spoilt, mask)
            assert torch.equal(out, model(f, mask))
            model.zero_grad()
            out.sum().backward()
            assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())

    def test_begins_as_the_plain_concatenation(self) -> None:
        """Adaptors and gates begin at zero: f^ = f, equal gates."""
        model, f = HeadNet(keys(E), M, D, Z, HeadSettings(hidden=0)), batch()
        expected = torch.baddbmm(
            model.layers[0].bias, f.movedim(1, 2).flatten(2), model.layers[0].weight
        )
        torch.testing.assert_close(model(f), expected)

    def test_dropout_needs_a_step_and_depends_on_it(self) -> None:
        model, f = net(), batch()
        assert torch.equal(model(f), model(f))
        assert torch.equal(model(f, step=3), model(f, step=torch.tensor(3)))
        assert not torch.equal(model(f, step=3), model(f, step=4))
        assert not torch.equal(model(f, step=3), model(f))


class TestMixup:
    def test_is_a_line_between_a_row_and_its_partner(self) -> None:
        f, y = batch(8), F.one_hot(torch.arange(8) % Z, Z).float().expand(E, -1, -1)
        mixed, target = head.mixup(f, y, keys(E), 5, 1.0)
        lam = head.rnd.beta_symmetric(keys(E), "mixup", 5, (1,), 1.0)
        other = head.rnd.permutation(keys(E), "partner", 5, 8)
        for e in range(E):
            for b in range(8):
                weight, partner = lam[e, 0], int(other[e, b])
                torch.testing.assert_close(
                    mixed[e, :, b], weight * f[e, :, b] + (1 - weight) * f[e, :, partner]
                )
                torch.testing.assert_close(
                    target[e, b], weight * y[e, b] + (1 - weight) * y[e, partner]
                )
        torch.testing.assert_close(target.sum(-1), torch.ones(E, 8))

    def test_keeps_the_mean_of_the_batch(self) -> None:
        f, y = batch(8), torch.rand(E, 8, Z)
        mixed, target = head.mixup(f, y, keys(E), 5, 0.4)
        torch.testing.assert_close(mixed.mean(2), f.mean(2), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(target.mean(1), y.mean(1), atol=1e-5, rtol=1e-5)


def test_a_mixed_row_shows_the_parties_that_both_rows_show() -> None:
    present = torch.tensor([[[True, True, False], [False, True, True]]])  # (1, M=2, B=3)
    found = head._present_in_both(present, torch.tensor([[1, 2, 0]]))
    assert found[0, :, 0].tolist() == [True, False]
    assert found[0, :, 1].tolist() == [False, True]
    assert found[0, :, 2].tolist() == [False, True]  # nothing in common: its own


def test_party_dropout_leaves_each_row_a_party() -> None:
    here = head._drop_parties(keys(E), 3, M, 5000, 0.6)
    assert here.any(1).all()
    kept = here.float().mean()
    assert abs(kept - (0.4 + 0.6**M)) < 0.02  # a row that would lose all keeps all
    assert head._drop_parties(keys(E), 3, M, 50, 0.0).all()


class TestDrawn:
    def test_rows_are_drawn_by_weight_and_parts_stay_together(self) -> None:
        f = torch.arange(4.0).expand(M, 4)[..., None].contiguous()  # row n holds n at every party
        source = Drawn(1, 5, f, torch.tensor([1.0, 0.0, 3.0, 0.0]))
        of_one_run = torch.zeros(E, dtype=torch.int64)
        drawn = head._Draws([source], of_one_run).draw(keys(E), 3, 4000)  # (E, M, rows, 1)
        assert torch.equal(drawn[:, 0], drawn[:, 1])
        assert set(drawn.unique().tolist()) == {0.0, 2.0}
        assert abs((drawn == 2).float().mean() - 0.75) < 0.03

    def test_an_unseen_class_is_learned_from_drawn_rows_alone(self) -> None:
        f, labels = data()
        rows = labels != 2
        absent = f[:, ~rows]
        extra = Drawn(2, 12, absent, torch.ones(absent.shape[1]))
        settings = HeadSettings(members=E, hidden=16, epochs=40, batch=16, lr=5e-3)
        for synthetic, seen in (([extra], True), ([], False)):
            model = train_head(keys(E), f[:, rows], labels[rows], Z, settings, synthetic)
            guess = head.probabilities(model, f).argmax(1)
            assert bool((guess[~rows] == 2).float().mean() > 0.8) is seen
            assert (guess[rows] == labels[rows]).float().mean() > 0.8


class TestTraining:
    def test_learns(self) -> None:
        f, labels = data()
        model = train_head(
            keys(E), f, labels, Z, HeadSettings(members=E, hidden=16, epochs=40, batch=16, lr=5e-3)
        )
        assert (head.probabilities(model, f).argmax(1) == labels).float().mean() > 0.9

    def test_twice_the_same(self) -> None:
        f, labels = data()
        first, second = (train_head(keys(E), f, labels, Z, QUICK).state_dict() for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_more_classes_get_more_epochs_where_they_ask_for_more(self) -> None:
        f, labels = data()

        def trained(**more: float) -> torch.Tensor:
            settings = replace(QUICK, **more)  # type: ignore[arg-type]
            return head.probabilities(train_head(keys(E), f, labels, Z, settings), f)

        assert torch.equal(trained(epochs_per_class=2), trained(epochs=2 * Z))
        assert torch.equal(trained(epochs=3 * Z, epochs_per_class=2), trained(epochs=3 * Z))

    def test_members_are_those_trained_alone(self) -> None:
        f, labels = data()
        together = train_head(keys(E), f, labels, Z, QUICK)
        for e in range(E):
            alone = train_head(keys(E)[e : e + 1], f, labels, Z, QUICK)
            for p, q in zip(together.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(p[e : e + 1], q, atol=1e-3, rtol=1e-3)

    @pytest.mark.parametrize("balanced", [False, True])
    def test_heads_of_several_runs_are_those_trained_run_by_run(
        self, balanced: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And they are trained once."""
        settings = replace(QUICK, balanced=balanced, party_dropout=0.2)
        tasks = []
        for run in range(3):
            f, labels = data(run)
            rows = labels != 2
            absent = Drawn(2, 6, f[:, ~rows][:, :8], torch.arange(1.0, 9.0))
            own_keys = keys(3 * E)[run * E : (run + 1) * E]
            tasks.append(HeadTask(own_keys, f[:, :30], labels[:30], Z, settings, [absent]))
        fits: list[str] = []

        def counted(*arguments: Any, **options: Any) -> Tensor:
            fits.append(options["purpose"])
            return plain(*arguments, **options)

        plain = head.fit
        monkeypatch.setattr(head, "fit", counted)
        together = train_heads(tasks)
        assert fits == ["head"]
        for task, one in zip(tasks, together, strict=True):
            alone = train_head(task.keys, task.f, task.labels, Z, settings, task.extras)
            for p, q in zip(one.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(p, q, atol=1e-3, rtol=1e-3)

    def test_goes_on_from_a_given_head(self) -> None:
        f, labels = data()
        first = train_head(keys(E), f, labels, Z, QUICK)
        before = [p.detach().clone() for p in first.parameters()]
        again = train_head(keys(E), f, labels, Z, QUICK, start=first)
        assert again is first
        assert any(not torch.equal(p, q) for p, q in zip(before, again.parameters(), strict=True))

    def test_balanced_counts_a_rare_class_as_much_as_a_common_one(self) -> None:
        source = torch.Generator().manual_seed(0)
        labels = torch.tensor([0] * 60 + [1] * 6)
        f = torch.randn(1, 66, 2, generator=source) + 0.7 * labels[None, :, None]
        recall = {}
        for balanced in (True, False):
            settings = HeadSettings(
                hidden=0, epochs=60, batch=22, lr=1e-2, mixup=0, noise=0, balanced=balanced
            )
            guess = head.probabilities(train_head(keys(1), f, labels, 2, settings), f).argmax(1)
            recall[balanced] = float((guess[labels == 1] == 1).float().mean())
        assert recall[True] > recall[False]

    @pytest.mark.parametrize(
        "part", [{"gate": False}, {"adaptor": False}, {"hidden": 0}, {"party_dropout": 0.5}]
    )
    def test_every_part_can_be_left_out(self, part: dict[str, float]) -> None:
        f, labels = data()
        model = train_head(
            keys(E), f, labels, Z, HeadSettings(**{"epochs": 2, "hidden": 8, "batch": 8} | part)
        )  # type: ignore[arg-type]
        assert head.probabilities(model, f).isfinite().all()


class TestProbabilities:
    def test_are_the_mean_of_the_members(self) -> None:
        model, (f, _) = net(), data()
        each = [model(f.expand(E, -1, -1, -1))[e].softmax(-1) for e in range(E)]
        found = head.probabilities(model, f, batch=7)
        torch.testing.assert_close(found, torch.stack(each).mean(0))
        torch.testing.assert_close(found.sum(1), torch.ones(N))

    def test_of_each_member(self) -> None:
        model, (f, _) = net(), data()
        torch.testing.assert_close(
            head.probabilities(model, f, batch=7), head.probabilities(model, f)
        )

    def test_take_a_mask_of_parties_or_of_parties_and_rows(self) -> None:
        model, (f, _) = net(), data()
        mask = torch.tensor([True, False, True])
        by_row = mask[:, None].expand(M, N)
        torch.testing.assert_close(
            head.probabilities(model, f, mask, 7), head.probabilities(model, f, by_row, 7)
        )

    def test_of_no_rows(self) -> None:
        assert head.probabilities(net(), torch.zeros(M, 0, D)).shape == (0, Z)
