"""What a message gives away: everything, nothing, and what hides at a small scale."""

import time

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.privacy.gives_away import LEAST_ROWS, columns_of, gives_away

ROWS = 500


@pytest.fixture(scope="module")
def columns() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {
        "job": torch.randint(0, 6, (ROWS,), generator=draw),
        "town": torch.randint(0, 15, (ROWS,), generator=draw),
        "age": torch.randn(ROWS, generator=draw),
        "always": torch.ones(ROWS),
    }


def encoded(columns: dict[str, Tensor]) -> Tensor:
    parts = [F.one_hot(columns[name]).float() for name in ("job", "town")]
    return torch.cat([*parts, columns["age"][:, None]], 1)


def noise(width: int) -> Tensor:
    return torch.randn(ROWS, width, generator=torch.Generator().manual_seed(2))


def test_columns_sent_as_they_are_are_rebuilt_and_quickly(columns: dict[str, Tensor]) -> None:
    sent = torch.cat([encoded(columns), noise(42)], 1)
    assert sent.shape[1] == 64
    start = time.process_time()
    scores = gives_away(columns, sent)
    assert time.process_time() - start < 5  # 0.2 s on an idle core
    assert min(scores["job"], scores["town"], scores["age"]) > 0.95
    assert scores["always"] == 0


def test_numbers_that_have_nothing_to_do_with_the_columns_give_nothing_away(
    columns: dict[str, Tensor],
) -> None:
    assert max(gives_away(columns, noise(8)).values()) < 0.1


def test_more_noise_gives_less_away(columns: dict[str, Tensor]) -> None:
    number = columns["age"][:, None]
    scores = [gives_away(columns, number + s * noise(1))["age"] for s in (0.0, 0.5, 2.0)]
    assert scores[0] > 0.99
    assert scores[0] > scores[1] + 0.1 > scores[2] + 0.2


def test_several_columns_hidden_in_the_digits_of_one_number_are_found(
    columns: dict[str, Tensor],
) -> None:
    hidden = (columns["job"] + 1e-4 * columns["town"]).double()[:, None]
    scores = gives_away(columns, hidden)
    assert min(scores["job"], scores["town"]) > 0.8


def test_a_picture_counts_by_its_pixels() -> None:
    pictures = (255 * torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))).byte()
    columns = columns_of(pictures, None)
    assert gives_away(columns, pictures.flatten(1).float())["picture"] > 0.9
    assert gives_away(columns, torch.zeros(60, 3))["picture"] < 0.1


def test_a_number_with_missing_values_is_a_number_and_not_a_category() -> None:
    rows = torch.tensor([[0.3, 1.0, 0.0, 1.0], [1.2, 0.0, 1.0, 0.0]])
    columns = columns_of(rows, ((0, 2), (2, 4)), (0,), ("pay", "town"))
    assert columns["pay"].tolist() == pytest.approx([0.3, 1.2])
    assert columns["town"].tolist() == [1, 0]
    assert list(columns_of(rows, ((0, 2), (2, 4)), (0,))) == ["column 1", "column 2"]


def test_too_few_rows_show_nothing() -> None:
    few = torch.randn(LEAST_ROWS - 1, 2)
    assert gives_away({"age": few[:, 0]}, few) == {}
