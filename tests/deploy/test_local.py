"""A site's own files in a job: its party, its key, the active party's labels and what is written about its rows."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import torch
from safetensors.torch import load_file

from protoevfl.deploy import probe
from protoevfl.deploy.aligning import QUERY, TRAIN
from protoevfl.deploy.checkpoints import Checkpoint, CheckpointStore, blob
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.local import Local
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.messages import Embed, Embeddings, Learn, MessageError, decode, encode
from protoevfl.privacy.ledger import Ledger
from protoevfl.rows.alignment import Alignment, order_digest

NAMES = ("bank", "shop")
PEOPLE = [f"C{i:02d}" for i in range(10)]
LABELS = ["good", "bad", "good", "bad", "good", "bad", "good", "late", None, None]
PARTY = 'file = "rows.csv"\nid = "customer"\nminimum = 1\npredict_file = "new.csv"\n'


def kit(folder: Path, name: str = "bank", party: str = PARTY) -> Kit:
    """A kit with a file of its own."""
    home = folder / name
    home.mkdir()
    rng = np.random.default_rng(0)
    mine = {"customer": PEOPLE, "income": rng.normal(size=10), "age": rng.normal(size=10)}
    pacsv.write_csv(pa.table(mine | ({"risk": LABELS} if name == "bank" else {})), home / "rows.csv")
    pacsv.write_csv(pa.table({"customer": ["N1", "N2"], "income": [0.1, 0.2], "age": [0.3, 0.4]}), home / "new.csv")
    (home / "party.toml").write_text(party + ('label = "risk"\n' if name == "bank" and "file" in party else ""))
    return Kit(home, Identity("p", name, "party", name, "hub:1", "bank", NAMES))


def job(run: str = "a", **changes: Any) -> JobSpec:
    return JobSpec(run, NAMES, **{"classes": 3, **changes})


def probe_job(run: str = "a", **changes: Any) -> JobSpec:
    return JobSpec(run, NAMES, **{"method": "probe", "settings": {"rows": 2, "width": 3}, **changes})


def prediction(make: Any = job, **changes: Any) -> JobSpec:
    made: JobSpec = make("b", task="predict", base="a", **changes)
    return made


@dataclass
class Common:
    """Rows in the common order, as alignment leaves them."""

    site: Local

    def keep(self, phase: int, rows: list[int], new: bool = False) -> None:
        file, key = self.site.file(), b"k" * 32
        ids = file.ids(file.predict if new else None)
        values = [ids.values[row] for row in rows]
        numbers = np.array(rows, np.int64)
        found = Alignment(self.site.kit.name, numbers, key, order_digest(key, values), {}, ids.rules)
        self.site.alignments()[1].save(phase, found)


# ------------------------------------------------------------ where things are


def test_a_probe_needs_no_file_and_does_not_align(tmp_path: Path) -> None:
    empty = Kit(tmp_path / "shop", Identity("p", "shop", "party", "s", "hub:1", "bank", NAMES))
    site = Local(empty, probe_job())
    assert not site.own_data
    assert site.aligner() is None
    assert site.queries() == 1
    assert site.party().handle_bytes(encode(Embed("query")))
    with pytest.raises(UserError, match=r"cannot read .*party\.toml"):
        Local(empty, job())


def test_a_prediction_lies_in_its_own_folder_and_learns_from_that_of_its_training(tmp_path: Path) -> None:
    bank = kit(tmp_path)
    train, predict = Local(bank, job()), Local(bank, prediction())
    assert (train.folder, train.base_folder) == (bank.folder / "runs/a", bank.folder / "runs/a")
    assert (predict.folder, predict.base_folder) == (bank.folder / "runs/b", bank.folder / "runs/a")
    assert [a.folder.parent.name for a in predict.alignments()] == ["a", "b"]
    for site in (train, predict):
        side = site.aligner()
        assert side is not None
        assert side.new_rows == (site is predict)
        assert side.results.folder == site.folder / "alignment"


def test_mistakes_in_a_demo_are_one_line(tmp_path: Path) -> None:
    site = Local(kit(tmp_path, party='[demo]\ndatset = "digits"\n'), job())
    assert not site.own_data
    with pytest.raises(UserError, match=r"party\.toml: \[demo\] .*'datset'"):
        site.table()


def test_unknown_settings_of_the_method_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no setting 'head\.epoch'"):
        Local(kit(tmp_path), job(settings={"head.epoch": 3})).method()


# ------------------------------------------------------------ the party


def test_each_site_is_another_party_of_the_same_seed(tmp_path: Path) -> None:
    kits = [kit(tmp_path, name) for name in NAMES]
    ask = encode(Embed("query"))
    answers = [Local(k, probe_job(seed=seed)).party().handle_bytes(ask) for k in kits for seed in (0, 0, 1)]
    assert answers[0] == answers[1]
    assert answers[3] == answers[4]
    assert len(set(answers)) == 4


def test_what_leaves_a_party_is_clipped_and_what_stays_is_not(tmp_path: Path) -> None:
    spec, ask = probe_job(privacy={"clip": 0.01}), encode(Embed("query"))
    parties = {name: Local(kit(tmp_path, name), spec).party() for name in NAMES}
    assert parties["bank"].guard is None  # the active party's own answers do not leave it
    guard = parties["shop"].guard
    assert guard is not None
    assert (guard.party, guard.settings.clip) == (1, 0.01)
    norms = {}
    for name, party in parties.items():
        reply = decode(party.handle_bytes(ask))
        assert isinstance(reply, Embeddings)
        norms[name] = float(reply.values.norm(dim=-1).max())
    assert norms["shop"] <= 0.01 * (1 + 1e-5) < norms["bank"]


def test_the_noise_of_a_party_is_the_same_after_a_crash_and_is_charged_once(tmp_path: Path) -> None:
    spec = probe_job(privacy={"clip": 0.01, "embedding_noise": 1.0})
    shop, ask = kit(tmp_path, "shop"), encode(Embed("query"))
    assert Local(shop, spec).party().handle_bytes(ask) == Local(shop, spec).party().handle_bytes(ask)
    assert len(Ledger(path=shop.folder / "runs" / "a" / "ledger.json").entries) == 1


def test_messages_that_do_not_fit_the_job_are_refused(tmp_path: Path) -> None:
    party = Local(kit(tmp_path, "shop"), probe_job(classes=2, max_bytes=2000)).party()

    def learn(classes: int, width: int) -> bytes:
        return encode(Learn(0, torch.zeros(classes, width), torch.ones(classes), torch.ones(classes)))

    party.handle_bytes(learn(2, 4))
    with pytest.raises(MessageError, match="classes is 3, must be 2"):
        party.handle_bytes(learn(3, 4))
    with pytest.raises(MessageError, match="over the limit of 2,000"):
        party.handle_bytes(learn(2, 400))


def test_a_prediction_without_training_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run a was not trained here"):
        Local(kit(tmp_path, "shop"), prediction(probe_job)).party()


def test_a_prediction_starts_from_the_end_of_training(tmp_path: Path) -> None:
    shop, ask = kit(tmp_path, "shop"), encode(Embed("query"))
    trained = Local(shop, probe_job()).party()
    reply = trained.handle_bytes(ask)
    state = {**trained.state(), "reply!": blob(reply)}
    CheckpointStore(shop.folder / "runs" / "a" / "checkpoints").save(Checkpoint(7, state))
    party = Local(shop, prediction(probe_job)).party()
    assert set(party.state()) == set(trained.state())
    assert party.handle_bytes(ask) == trained.handle_bytes(ask) != reply


def test_the_party_holds_the_common_rows_in_their_order(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job())
    Common(site).keep(TRAIN, [6, 0, 7])
    Common(site).keep(QUERY, [9, 8])
    table, every = site.table(), site.file().table("x", np.arange(8), np.array([8, 9]), False, 0)
    assert torch.equal(table.aligned, every.aligned[[6, 0, 7]])
    assert torch.equal(table.query, every.query[[1, 0]])
    assert len(table.pool) == 5
    assert site.queries() == 2


# ------------------------------------------------------------ the key of the noise


def test_the_key_is_made_once_a_run_and_only_this_user_reads_it(tmp_path: Path) -> None:
    shop = kit(tmp_path, "shop")
    first = Local(shop, job())._secret()
    path = shop.folder / "runs" / "a" / "noise.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(first) == 32
    assert Local(shop, job())._secret() == first == path.read_bytes()
    assert Local(shop, prediction())._secret() == first  # of its training: the same row gets the same noise
    assert Local(shop, job("c"))._secret() != first
    assert Local(kit(tmp_path), job())._secret() != first


# ------------------------------------------------------------ the active party


def test_the_labels_come_in_the_common_order_and_classes_without_a_row_are_unseen(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job())
    Common(site).keep(TRAIN, [4, 1, 3])
    owner = site.owner()
    assert owner.labels.tolist() == [1, 0, 0]  # bad, good, late
    assert (owner.classes, owner.unseen, owner.parties) == (3, (2,), (0, 1))
    Common(site).keep(TRAIN, [7, 4, 1])
    assert site.owner().unseen == ()


def test_a_wrong_number_of_classes_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the file has 3 classes \(bad, good, late\), the job says otherwise"):
        Local(kit(tmp_path), job(classes=2)).owner()


def test_no_common_row_with_a_label_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no aligned labelled rows"):
        Local(kit(tmp_path), job()).owner()


def test_the_owners_guard_is_made_of_the_jobs_defences_and_the_sites_key(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job(privacy={"prototype_noise": 2.0, "epsilon": 3.0}))
    Common(site).keep(TRAIN, [4, 1, 3])
    guard = site.owner_guard(site.owner())
    assert (guard.settings.prototype_noise, guard.settings.epsilon) == (2.0, 3.0)
    assert torch.equal(guard.noise("x", (3,)), site.owner_guard(site.owner()).noise("x", (3,)))
    assert guard.ledger.path == site.folder / "ledger.json"


def test_the_owner_of_a_probe_asks_every_party(tmp_path: Path) -> None:
    owner = Local(kit(tmp_path), probe_job(seed=3)).owner()
    assert owner.parties == (0, 1)
    assert owner.key == probe.owner(2, 3).key != probe.owner(2, 4).key


# ------------------------------------------------------------ predictions


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_predictions_name_the_person_the_class_and_every_probability(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job())
    Common(site).keep(QUERY, [9, 8])
    p = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    site.write_predictions(p)
    assert read_csv(site.folder / "predictions.csv") == [
        ["id", "class", "p_bad", "p_good", "p_late"],
        ["C09", "late", "0.100000", "0.200000", "0.700000"],
        ["C08", "bad", "0.500000", "0.250000", "0.250000"],
    ]
    assert torch.equal(load_file(site.folder / "predictions.safetensors")["probabilities"], p)
    assert (site.folder / "predictions.csv").stat().st_mode & 0o077 == 0


def test_predictions_of_new_rows_bear_the_names_of_the_new_file(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), prediction())
    Common(site).keep(QUERY, [1], new=True)
    site.write_predictions(torch.tensor([[0.0, 1.0, 0.0]]))
    assert [line[:2] for line in read_csv(site.folder / "predictions.csv")[1:]] == [["N2", "good"]]
    assert site.queries() == 1


def test_as_many_rows_as_probabilities_or_no_table_at_all(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job())
    Common(site).keep(QUERY, [9, 8])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        site.write_predictions(torch.ones(3, 3) / 3)
    assert not (site.folder / "predictions.csv").exists()


def test_a_probe_has_no_people_to_name(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), probe_job())
    site.write_predictions(torch.ones(3, 2))
    assert [p.name for p in site.folder.iterdir()] == ["predictions.safetensors"]
