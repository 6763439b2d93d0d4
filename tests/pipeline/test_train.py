"""Training in one process: every method can be kept, guards stand at the border, the same seed
gives the same run."""

from pathlib import Path

import pytest
import torch

from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.federation.owner import rare_classes
from protoevfl.method import Report
from protoevfl.methods import METHODS
from protoevfl.observer import Observer
from protoevfl.pipeline.train import Trained, majority, measure, train
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.ids import IdRules
from protoevfl.rows.survey import Number
from protoevfl.settings.config import LabelConfig
from protoevfl.settings.method_choice import BENCH_ONLY, CENTRAL, method_facts
from protoevfl.settings.presets import build
from tests import tiny

SHORT = {
    "epochs": 1,
    "warm.epochs": 1,
    "moco.epochs": 1,
    "pre.epochs": 1,
    "head.epochs": 2,
    "batch": 8,
    "pool_batch": 8,
}


def quick(
    name: str = "proto_evfl", privacy: PrivacySettings | None = None, **more: object
) -> Trained:
    known = method_facts(build(name, "default", "table"))["settings"]
    method = build(
        name, "default", "table", {k: v for k, v in {**SHORT, **more}.items() if k in known}
    )
    tables = [tiny.column_table(party=m) for m in range(3)]
    return train(method, tables, tiny.labels(0, tiny.ALIGNED), tiny.CLASSES, privacy=privacy)


def kept(trained: Trained) -> StoredOwner:
    test = tiny.labels(1000, tiny.QUERY)
    return trained.stored_owner(
        ["a", "b", "c"], ["x", "y", "z"], LabelConfig("a", "label"), test, {"note": 1}
    )


@pytest.mark.parametrize("name", sorted(set(METHODS) - {*CENTRAL, *BENCH_ONLY}))
def test_every_method_is_kept_and_predicts_with_any_subset(name: str, tmp_path: Path) -> None:
    trained = quick(name)
    owner = kept(trained)
    folder = tmp_path / "owner"
    owner.save(folder)
    again = StoredOwner.load(folder)
    everyone = again.subset(again.test, (0, 1, 2))
    assert torch.allclose(everyone, owner.subset(owner.test, (0, 1, 2)))
    assert again.metrics["rows"] == tiny.QUERY
    for some in ((0,), (2,), (0, 1), (1, 2)):
        p = again.subset(again.test, some)
        assert p.shape == (tiny.QUERY, tiny.CLASSES)
        assert torch.allclose(p.sum(1), torch.ones(tiny.QUERY), atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {*CENTRAL, *BENCH_ONLY}))
def test_a_kept_party_embeds_as_the_trained_one(name: str, tmp_path: Path) -> None:
    trained = quick(name)
    for m, party in enumerate(trained.parties):
        table = tiny.column_table(party=m)
        encoder = TableEncoder([Number(f"c{i}", 0.0, 1.0, 0.0, None, False) for i in range(5)], {})
        kept = StoredParty(
            "p",
            m,
            ("id",),
            IdRules(),
            "refuse",
            encoder,
            trained.method,
            PrivacySettings(),
            "float32",
            party.state(),
        )
        kept.save(tmp_path / f"{m}")
        again = StoredParty.load(tmp_path / f"{m}")
        if m in trained.query and (name != "local" or m == 0):
            assert torch.allclose(again.embed([table.query]), trained.query[m], atol=1e-5)
            assert torch.allclose(
                again.embed([table.query[:1], table.query[1:]]), trained.query[m], atol=1e-5
            )


def test_reports_and_the_parties_own_epochs_are_heard() -> None:
    method = build("proto_evfl", "default", "table", {"warm.epochs": 2, "head.epochs": 1})
    heard: list[Report] = []
    epochs: list[str] = []

    class Ear(Observer):
        def report(self, report: Report, run: int = 0) -> None:
            heard.append(report)

        def progress(self, what: str, done: int, total: int) -> None:
            epochs.append(what)

    tables = [tiny.column_table(party=m) for m in range(2)]
    train(method, tables, tiny.labels(0, tiny.ALIGNED), tiny.CLASSES, observer=Ear())
    assert {"warm-up", "head"} <= {r.phase for r in heard}
    assert any(what.startswith("party 2: ") for what in epochs)


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, two = quick(), quick()
    assert torch.equal(one.query[1], two.query[1])


def test_what_arrives_is_clipped_and_the_label_party_s_own_rows_are_not() -> None:
    trained = quick(privacy=PrivacySettings(clip=0.5))
    norms = {m: float(f.norm(dim=1).max()) for m, f in trained.query.items()}
    assert norms[0] > 0.5
    assert max(norms[1], norms[2]) <= 0.5 + 1e-5
    owner = kept(trained)
    louder = {m: f * 100 if m else f for m, f in owner.test.embeddings.items()}
    everyone = torch.ones(3, tiny.QUERY, dtype=torch.bool)
    assert (
        float(
            owner.probabilities(louder, everyone)
            .sub(owner.subset(owner.test, (0, 1, 2)))
            .abs()
            .max()
        )
        < 1
    )


def test_metrics_name_subsets_and_the_commonest_class() -> None:
    owner = kept(quick())
    found = measure(owner, owner.test)
    assert set(found["subsets"]) == {"a", "b", "c", "a+b", "a+c", "b+c", "a+b+c"}
    assert found["subsets"]["a+b+c"]["accuracy"] == found["test"]["accuracy"]
    assert majority(owner, owner.test.labels) == found["majority"]


def test_rare_classes_have_few_rows_where_others_have_many() -> None:
    labels = torch.tensor([0] * 100 + [1] * 100 + [2] * 5)
    assert rare_classes(labels, 4) == (2,)  # class 3 has none: unseen, not rare
    assert rare_classes(torch.tensor([0, 1, 2] * 4), 3) == ()
