"""The estimate of `check`: what is counted is exact, what is measured scales."""

import pytest
import torch

from protoevfl.pipeline import estimate as module
from protoevfl.pipeline.estimate import BASE, COPIES, Estimate, Size, estimate

SIZE = Size((10,), None, pool=5_000, aligned=400, query=100)


def told(monkeypatch: pytest.MonkeyPatch, sizes: list[Size], epochs: bool = False) -> Estimate:
    """The estimate where a run costs 3 + pool / 100 + aligned / 10 bytes, times its epochs' share
    where they count."""

    def cost(
        facts: object,
        sizes: object,
        classes: int,
        pool: int,
        aligned: int,
        shorter: int,
        device: str,
        every: bool,
    ) -> tuple[float, float]:
        once = 3 + pool / 100 + aligned / 10
        return once / shorter, once / (shorter if epochs else 1)

    monkeypatch.setattr(module, "_trial", cost)
    return estimate({}, sizes, 2)


def test_rows_are_counted_at_four_bytes_a_number_and_one_a_pixel() -> None:
    assert SIZE.bytes() == 10 * 5_500 * 4
    assert Size((1, 28, 14), None, 10, 5, 5).bytes() == 28 * 14 * 20


def test_memory_is_the_rows_of_all_parties_and_the_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, [SIZE, SIZE]).memory == BASE + COPIES * 2 * SIZE.bytes()


def test_a_cost_that_is_linear_in_the_rows_is_found_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, truth = told(monkeypatch, [SIZE, SIZE]), 3 + 5_000 / 100 + 400 / 10
    assert found.traffic == pytest.approx(truth, abs=1)
    assert found.seconds == pytest.approx(truth)


def test_bytes_that_grow_with_the_epochs_are_stretched_to_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, [SIZE, SIZE], epochs=True).traffic == pytest.approx(
        3 + 5_000 / 100 + 400 / 10, abs=1
    )


def test_random_rows_have_the_party_s_shape_and_kind() -> None:
    table = module._random(SIZE, 1, 7, 3)
    assert (table.pool.shape, table.aligned.shape, table.pool.dtype) == (
        (7, 10),
        (3, 10),
        torch.float32,
    )
    image = module._random(Size((1, 8, 8), None, 1, 1, 1), 0, 7, 3)
    assert image.pool.dtype == torch.uint8


@pytest.mark.parametrize(
    ("name", "value", "less"),
    [
        ("warm.epochs", 40, 5),
        ("epochs", 3, 1),
        ("warm.epochs", 0, 0),
        ("rounds.count", 4, 4),
        ("head.lr", 0.1, 0.1),
    ],
)
def test_only_epochs_are_made_fewer(name: str, value: float, less: float) -> None:
    assert module._less(name, value, 8) == less
