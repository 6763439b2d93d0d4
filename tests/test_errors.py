"""Every error a user can cause is one `UserError` with one clear line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig
from protoevfl.errors import UserError
from protoevfl.federation.owner import LabelOwner
from protoevfl.rows.table import Labels, PartyTable

TWO = torch.zeros(2, 3)


def cell(**what: Any) -> Callable[[], object]:
    return lambda: run(RunConfig(**{"aligned": 60, "pool": 30} | what), [0], device="cpu")


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (cell(dataset="mnist"), "unknown data set 'mnist'; there are"),
        (cell(method="best"), "unknown method 'best'; there are"),
        (cell(preset="best"), "no preset 'best'"),
        (cell(setting="zero_shot", classes=(10,)), "10"),
        (cell(setting="zero_shot", classes=(-1,)), "-1"),
        (cell(setting="zero_shot"), "class"),
        (cell(setting="one_shot"), "one_shot"),
        (cell(aligned=5000), "5,?000"),
        (cell(aligned=0), "aligned"),
        (cell(pool=5000), "5,?000"),
        (cell(pool=-3), "pool"),
        (cell(parties=1), "parties"),
        (cell(parties=9, pool=20), "parties"),
        (cell(profile="even"), "even"),
        (cell(overrides={"epochs": 1}), "no setting 'epochs'"),
        (lambda: run(RunConfig(), [0], device="tpu"), "unknown device 'tpu'"),
        (lambda: run(RunConfig(), [0], device="cpu", engine="fast"), "unknown engine 'fast'"),
        (
            lambda: PartyTable("bank", TWO + torch.nan, TWO, TWO),
            "bank: its pool rows hold a value that is not finite",
        ),
        (lambda: PartyTable("bank", TWO, TWO[:, :2], TWO), "same columns"),
        (lambda: Labels(3, torch.tensor([0, 3]), torch.tensor([0])), "0..2"),
        (lambda: Labels(3, torch.tensor([0, 1]), torch.tensor([0]), unseen=(1,)), "unseen"),
        (lambda: LabelOwner(torch.tensor([7]), 3, (0,), 1), "0..2, found 7"),
    ],
)
def test_one_clear_line(act: Callable[[], object], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    assert 15 < len(text) < 250


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(UserError, match="no CUDA device"):
        run(RunConfig(), [0], device="cuda")


def test_no_seeds_no_records() -> None:
    assert run(RunConfig(), [], device="cpu") == []
