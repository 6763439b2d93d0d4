"""What left before is there again for the same rows, whatever process, run or set of rows sent it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from protoevfl.deploy import sent
from protoevfl.deploy.sent import Sent
from protoevfl.errors import UserError

KEYS = np.array([50, 10, 40, 20, 30, 60] * 5, dtype=np.int64) + np.repeat(range(5), 6) * 100


NEW = torch.zeros(len(KEYS), 1)


def values(width: int = 2) -> torch.Tensor:
    return torch.arange(len(KEYS) * width).reshape(-1, width).float()


def test_a_new_process_and_another_run_find_it_in_the_order_of_their_rows(tmp_path: Path) -> None:
    Sent(tmp_path).add(KEYS, values())
    order = np.random.default_rng(0).permutation(len(KEYS))
    asked = np.append(KEYS[order], 7777)  # one row that never left
    ((places, earlier),) = Sent(tmp_path).before(asked, torch.zeros(len(asked), 2))
    assert len(earlier) == 1
    for place, line in zip(places, earlier[0], strict=True):
        (row,) = np.flatnonzero(asked[place] == KEYS)
        assert torch.equal(line, values()[row])


def test_the_same_is_kept_once_and_not_held_against_itself(tmp_path: Path) -> None:
    store = Sent(tmp_path)
    for _ in range(2):
        store.add(KEYS, values())
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    order = torch.randperm(len(KEYS))
    assert not list(store.before(KEYS[order.numpy()], values()[order]))
    assert list(store.before(KEYS, values() + 1))


def test_each_set_of_rows_comes_with_every_send_that_covers_it(tmp_path: Path) -> None:
    store = Sent(tmp_path)
    store.add(KEYS, values(2))
    store.add(KEYS[:25], values(3)[:25])
    widths = {
        len(places): sorted(e.shape[1] for e in earlier)
        for places, earlier in store.before(KEYS, NEW)
    }
    assert widths == {25: [2, 3], 30: [2]}
    assert not list(store.before(KEYS[:5], NEW[:5]))  # too few to measure anything on


def test_another_process_may_add_at_the_same_time(tmp_path: Path) -> None:
    one, other = Sent(tmp_path), Sent(tmp_path)
    one.add(KEYS, values())
    other.add(KEYS, values() + 1)
    ((_, earlier),) = one.before(KEYS, NEW)
    assert len(earlier) == 2


def test_the_store_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "KEPT_SENDS", 3)
    monkeypatch.setattr(sent, "KEPT_ROWS", 22)
    store = Sent(tmp_path)
    for number in range(5):
        store.add(KEYS, values() + number)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    ((places, earlier),) = store.before(KEYS, NEW)
    assert len(earlier) == 3
    assert sorted(KEYS[places]) == sorted(KEYS)[:22]  # the same rows in any set of rows


def test_without_a_damaged_file_nothing_is_judged(tmp_path: Path) -> None:
    Sent(tmp_path).add(KEYS, values())
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="restore it from a copy"):
        list(Sent(tmp_path).before(KEYS, NEW))
