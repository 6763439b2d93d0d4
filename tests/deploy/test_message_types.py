"""What a job says it will send is what complete runs of every method were recorded to send."""

from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl.deploy import job_file
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.message_types import deployable, message_types
from protoevfl.deploy.policy import Policy
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.engines.in_process import InProcess
from protoevfl.federation.middleware import Recorded
from protoevfl.federation.owner import LabelOwner, OwnRows
from protoevfl.federation.party import Party
from protoevfl.methods import METHODS
from protoevfl.settings import presets
from protoevfl.settings.method_choice import CENTRAL
from tests.tiny import (
    ALIGNED,
    CLASSES,
    addresses,
    column_table,
    finish,
    image_table,
    party_keys,
    short,
)

LONGER = 3  # turns of every loop
KIT = Kit(Path("kit"), Identity("p", "bank", "party", "Bank", "hub:1", "bank", ("bank", "shop")))


def recorded(name: str, overrides: dict[str, Any]) -> set[tuple[str, str]]:
    """(direction, type) of all that crossed in three runs: on images, all classes with labels or
    one without, and on tables, the label of every row of the active party known."""
    crossed = set()
    for table_of, unseen in ((image_table, ()), (image_table, (2,)), (column_table, ())):
        made, keys = presets.build(name, overrides=overrides), party_keys(1, 2)
        tables = {a: table_of(*a) for a in addresses(1, 2)}
        engine = Recorded(
            InProcess({a: Party(made, tables[a], keys[a]) for a in tables}, wire=True)
        )
        labels = torch.arange(ALIGNED) % (CLASSES - len(unseen))
        owner = LabelOwner(labels, CLASSES, (0, 1), 7, unseen)
        if table_of is column_table:
            owner.own = OwnRows(tables[0, 0].aligned, labels, tables[0, 0].query, ALIGNED)
        finish([made.train(owner)], engine)
        finish([made.predict(owner, owner.parties)], engine)
        for _, party, request, reply in engine.transcript:
            crossed |= (
                {("down", type(request).__name__), ("up", type(reply).__name__)} if party else set()
            )
    return crossed


def as_set(types: tuple[tuple[str, ...], tuple[str, ...]]) -> set[tuple[str, str]]:
    return {("down", name) for name in types[0]} | {("up", name) for name in types[1]}


@pytest.mark.parametrize("name", [n for n in METHODS if n not in CENTRAL])
def test_a_method_declares_what_a_complete_run_sends(name: str) -> None:
    loops = ("epochs", "count", "rounds")
    longer = {
        n: LONGER if n.rsplit(".", 1)[-1].rsplit("_", 1)[-1] in loops else v
        for n, v in short(name).items()
    }
    found = recorded(name, longer)
    assert (name in deployable()) == bool(found)
    if found:
        assert as_set(message_types(name)) == found
        assert as_set(message_types(name, task="predict")) == {
            ("down", "Embed"),
            ("up", "Embeddings"),
        }


def test_settings_change_what_is_sent() -> None:
    down, up = message_types("proto_evfl", "one_way")
    assert "Learn" not in down
    assert "Learned" not in up
    assert message_types("proto_evfl", settings={"rounds.count": 0}) == (down, up)


def test_what_cannot_be_deployed_says_so() -> None:
    for name in ("local", "upper_bound", "magic"):
        with pytest.raises(
            UserError, match=r"cannot be run between companies; these can: probe, .*proto_evfl"
        ):
            message_types(name)


def test_a_job_carries_its_presets_defences(tmp_path: Path) -> None:
    """Private by default here too: what the preset's simulation adds, the deployed run adds."""
    path = tmp_path / "job.toml"
    path.write_text(
        'run = "a"\n[settings]\n"privacy.rank" = 8\n"head.epochs" = 3\n[privacy]\nepsilon = 4.0\n'
    )
    spec = job_file.read_job(path, KIT)
    of_preset = {
        n: v
        for n, v in presets.settings("proto_evfl", "default", "table").items()
        if "privacy." in n
    }
    assert of_preset["privacy.prototype_noise"] > 0
    assert spec.privacy == {
        **{n.removeprefix("privacy."): v for n, v in of_preset.items()},
        "rank": 8,
        "epsilon": 4.0,
    }
    assert spec.settings == {"head.epochs": 3}
    assert "prototype_noise" in spec.review()


def test_the_policy_as_delivered_takes_the_job_as_delivered(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(job_file.TEMPLATE)
    spec = job_file.read_job(tmp_path / "job.toml", KIT)
    assert Policy("bank").objections(spec) == []
    assert "it would send Parameters, Projections" in " ".join(
        Policy("bank", methods=("fedhssl",)).objections(
            job_file.complete(JobSpec("a", ("bank", "shop"), "fedhssl"))
        )
    )
