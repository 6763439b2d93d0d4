"""The estimate of `check`: what is counted is exact, what is measured scales."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from protoevfl.pipeline import estimate as module
from protoevfl.pipeline.estimate import BASE, COPIES, Estimate, Size, estimate
from protoevfl.settings.method_choice import method_facts
from protoevfl.settings.presets import build

SIZE = Size((10,), None, pool=5_000, aligned=400, query=100)


def told(
    monkeypatch: pytest.MonkeyPatch, sizes: list[Size], epochs: bool = False, busy: float = 1.0
) -> Estimate:
    """The estimate where a run costs 3 + pool / 100 + aligned / 10 seconds, 3 + aligned / 10 bytes,
    times its epochs' share where they count; the clock goes `busy` times as fast."""

    def cost(
        facts: object,
        sizes: list[Size],
        classes: int,
        pools: list[int],
        aligned: int,
        shorter: int,
        device: str,
        every: bool,
        privacy: object,
    ) -> module._Cost:
        part = shorter if epochs else 1
        processor = (3 + sum(pools) / 100 + aligned / 10) / part
        traffic = (3 + aligned / 10) / part
        seconds = busy * processor
        return module._Cost(processor, seconds, seconds, traffic, sum(pools), aligned, epochs)

    monkeypatch.setattr(module, "_trial", cost)
    return estimate({}, sizes, 2, reading=7.0)


def test_rows_are_counted_at_four_bytes_a_number_and_one_a_pixel() -> None:
    assert SIZE.bytes() == 10 * 5_500 * 4
    assert Size((1, 28, 14), None, 10, 5, 5).bytes() == 28 * 14 * 20


def test_memory_is_the_rows_of_all_parties_and_the_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, [SIZE, SIZE]).memory == BASE + COPIES * 2 * SIZE.bytes()


@pytest.mark.parametrize("epochs", [False, True])
@pytest.mark.parametrize("busy", [1.0, 9.0])
def test_a_cost_that_is_linear_in_rows_and_epochs_is_found_exactly(
    monkeypatch: pytest.MonkeyPatch, epochs: bool, busy: float
) -> None:
    found = told(monkeypatch, [SIZE, SIZE], epochs, busy)
    loading = 0.0
    assert found.traffic == pytest.approx(3 + 400 / 10, abs=1)
    assert found.seconds == pytest.approx(
        loading + 7 + busy * (3 + 10_000 / 100 + 400 / 10), rel=1e-6
    )


def test_a_party_without_rows_of_its_own_trains_on_the_aligned_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing, same = (Size((10,), None, pool=pool, aligned=400, query=9) for pool in (0, 400))
    found, other = (told(monkeypatch, [size, size]) for size in (nothing, same))
    assert found.seconds == other.seconds


def test_no_trial_has_more_rows_than_there_are_but_for_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def cost(*given: Any) -> module._Cost:
        tried.append((given[3], given[4]))
        return module._Cost(1.0, 1.0, 1.0, 1.0, sum(given[3]), given[4], False)

    monkeypatch.setattr(module, "_trial", cost)
    estimate({}, [SIZE, Size((10,), None, pool=100, aligned=30, query=5)], 2)
    least = module.LEAST
    assert tried == [
        ([least, least], least),
        ([module.POOL, 100], 30),
        ([module.LARGER * module.POOL, 100], 30),
    ]


def test_a_longer_run_that_took_less_has_no_epochs() -> None:
    few = module._Cost(1.0, 1.0, 1.0, 1.0, 100, 10, True)
    assert module._all_epochs(few, replace(few, processor=0.9)) == 1.0
    assert module._all_epochs(few, replace(few, processor=2.0)) == 8.0
    assert module._per_row(few, replace(few, processor=0.9, pool=400), "pool") == 0.0
    assert module._per_row(few, replace(few, processor=2.0), "pool") == 0.0
    assert module._per_row(few, replace(few, processor=4.0, pool=400), "pool") == 0.01


@pytest.mark.parametrize("every_label", [True, False])
def test_the_method_really_runs(every_label: bool) -> None:
    method = build("proto_evfl", "default", "adult", {"warm.epochs": 8, "head.members": 1})
    spans = tuple((i, i + 1) for i in range(3))
    size = Size((3,), spans, pool=60, aligned=40, query=10, numbers=(0, 1, 2))
    cost = module._trial(method_facts(method), [size, size], 2, [60, 60], 40, 8, "cpu", every_label)
    assert cost.processor > 0
    assert cost.seconds > cost.taken > 0  # test rows were predicted once for all three subsets
    # one embedding of a shared row crosses at least
    assert cost.traffic > 40
    assert cost.stepwise != every_label  # with every label a table needs no epochs


def test_random_rows_have_the_party_s_shape_and_kind() -> None:
    table = module._random(SIZE, 1, 7, 3, 2)
    assert (table.pool.shape, table.aligned.shape, table.pool.dtype) == (
        (7, 10),
        (3, 10),
        torch.float32,
    )
    image = module._random(Size((1, 8, 8), None, 1, 1, 1), 0, 7, 3, 2)
    assert image.pool.dtype == torch.uint8


@pytest.mark.parametrize(
    ("name", "value", "less"),
    [
        ("warm.epochs", 40, 5),
        ("epochs", 3, 1),
        ("warm.epochs", 0, 0),
        ("rounds.count", 4, 4),
        ("head.epochs_per_class", 6.0, 0.75),
        ("head.lr", 0.1, 0.1),
    ],
)
def test_only_epochs_are_made_fewer(name: str, value: float, less: float) -> None:
    assert module._less(name, value, 8) == less
