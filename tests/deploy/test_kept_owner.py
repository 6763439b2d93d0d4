"""A model that was kept predicts what the trained one did; a damaged one is as good as none."""

from pathlib import Path

import pytest
import torch

from protoevfl.deploy import kept_owner
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.party import Party
from tests.tiny import finish, image_table, owner, party_keys, quick

NAMES = ["proto_evfl", "fedcvt", "laser", "vanilla"]  # one of each kind of head


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_model_predicts_the_same(tmp_path: Path, name: str) -> None:
    method, mine = quick(name), owner(0, 2)
    engine = InProcess({a: Party(method, image_table(*a), key) for a, key in party_keys(1, 2).items()})
    finish([method.train(mine)], engine)
    (before,) = finish([method.predict(mine, (0, 1))], engine)
    kept_owner.keep(tmp_path, mine)
    fresh = owner(0, 2)
    assert kept_owner.take_up(tmp_path, fresh)
    (after,) = finish([method.predict(fresh, (0, 1))], engine)
    assert torch.equal(before, after)


def test_nothing_kept_and_a_damaged_model_are_told_apart_from_a_good_one(tmp_path: Path) -> None:
    assert not kept_owner.take_up(tmp_path, owner(0, 2))
    mine = owner(0, 2)
    mine.memory["x"] = torch.ones(3)
    kept_owner.keep(tmp_path, mine)
    (path,) = (tmp_path / "owner").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert not kept_owner.take_up(tmp_path, owner(0, 2))
