"""A site's own files in a job: its party, its key, what it keeps, the active party's labels and
predictions."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import torch
from safetensors.torch import load_file

from protoevfl.artifacts.run_dir import open_run
from protoevfl.codec import decode, encode
from protoevfl.deploy import probe
from protoevfl.deploy.aligning import pack_uses
from protoevfl.deploy.checkpoints import REPLY, Checkpoint, CheckpointStore, blob
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.local import Local
from protoevfl.deploy.policy import TEMPLATE
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.deploy.secret import run_seed
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.messages import Embed, Embeddings, Learn, MessageError, SendFeatures, values
from protoevfl.pipeline.predict import Predictions
from protoevfl.pipeline.prepare import rows_of
from protoevfl.privacy.ledger import Ledger
from protoevfl.rows.alignment import Alignment, _order_digest

NAMES = ("bank", "shop")
PEOPLE = [f"C{i:02d}" for i in range(10)]
LABELS = ["good", "bad", "good", "bad", "good", "bad", "good", "late", None, None]
SHARED = [6, 0, 7, 1, 9]  # rows of both, in the order of the pair; the last one has no label
PARTY = 'file = "rows.csv"\nid = "customer"\nminimum = 1\npredict_file = "new.csv"\n'


def kit(folder: Path, name: str = "bank", party: str = PARTY) -> Kit:
    """A kit with a file of its own."""
    home = folder / name
    home.mkdir()
    rng = np.random.default_rng(0)
    mine = {"customer": PEOPLE, "income": rng.normal(size=10), "age": rng.normal(size=10)}
    pacsv.write_csv(
        pa.table(mine | ({"risk": LABELS} if name == "bank" else {})), home / "rows.csv"
    )
    pacsv.write_csv(
        pa.table({"customer": ["N1", "N2"], "income": [0.1, 0.2], "age": [0.3, 0.4]}),
        home / "new.csv",
    )
    of_bank = 'label = "risk"\ntest = 0.0\n' if name == "bank" and "file" in party else ""
    (home / "party.toml").write_text(party + of_bank)
    (home / "policy.toml").write_text(TEMPLATE.format(active="bank"))
    return Kit(home, Identity("p", name, "party", name, "hub:1", "bank", NAMES))


def job(run: str = "a", **changes: Any) -> JobSpec:
    return JobSpec(run, NAMES, **{"classes": 3, **changes})


def probe_job(run: str = "a", **changes: Any) -> JobSpec:
    return JobSpec(
        run, NAMES, **{"method": "probe", "settings": {"rows": 2, "width": 3}, **changes}
    )


def prediction(make: Any = job, **changes: Any) -> JobSpec:
    made: JobSpec = make("b", task="predict", base="a", **changes)
    return made


def alignment(name: str, site: Local, rows: list[int]) -> Alignment:
    key, ids = b"k" * 32, site.source().ids()
    values = [ids.values[row] for row in rows]
    return Alignment(name, np.array(rows, np.int64), key, _order_digest(key, values), {}, ids.rules)


def align(bank: Local, shop: Local, rows: list[int]) -> None:
    """Both sides' folders, as alignment leaves them: these rows of both files are the same
    people."""
    side = bank.active
    side.pair("shop").save(alignment("bank", bank, rows))
    shop.pair.save(alignment("shop", shop, rows))
    kept = side.pair("shop").load()
    assert kept is not None
    message = pack_uses(rows_of(side.rows, side.shared, 1, predict=True), kept, side.ids)
    side.pair("shop").keep_uses(message)
    shop.pair.keep_uses(message)


def both(folder: Path, spec: JobSpec) -> tuple[Local, Local]:
    kits = [
        Kit(folder / name, Identity("p", name, "party", name, "hub:1", "bank", NAMES))
        for name in NAMES
    ]
    bank, shop = (Local(k, spec) for k in kits)
    return bank, shop


def trained(folder: Path) -> tuple[Local, Local]:
    """Both parties have learnt something and kept it; the shop's last checkpoint is there too."""
    for name in NAMES:
        kit(folder, name)
    bank, shop = both(folder, job())
    align(bank, shop, SHARED)
    for site in (bank, shop):
        party = site.party()
        party.handle_bytes(encode(SendFeatures()))
        state = {**party.state(), REPLY: blob(b"answer")}
        CheckpointStore(site.folder / "checkpoints").save(Checkpoint(1, state))
        site.keep_party(party.state())
    return bank, shop


# ------------------------------------------------------------ where things are


def test_a_probe_needs_no_file_and_does_not_align(tmp_path: Path) -> None:
    empty = Kit(tmp_path / "shop", Identity("p", "shop", "party", "s", "hub:1", "bank", NAMES))
    empty.folder.mkdir()
    (empty.folder / "policy.toml").write_text(TEMPLATE.format(active="bank"))
    site = Local(empty, probe_job())
    assert not site.own_data
    assert site.aligner() is None
    assert site.party().handle_bytes(encode(Embed("query")))
    with pytest.raises(UserError, match=r"cannot read .*party\.toml"):
        Local(empty, job())


def test_a_prediction_lies_in_its_own_folder_and_learns_from_that_of_its_training(
    tmp_path: Path,
) -> None:
    shop = kit(tmp_path, "shop")
    train, predict = Local(shop, job()), Local(shop, prediction())
    assert (train.folder, train.base_folder) == (shop.folder / "runs/a", shop.folder / "runs/a")
    assert (predict.folder, predict.base_folder) == (shop.folder / "runs/b", shop.folder / "runs/a")
    for site in (train, predict):
        side = site.aligner()
        assert side is not None
        assert side.pair.folder == site.folder / "alignment" / "bank"


def test_the_active_party_asks_and_is_not_asked_to_align(tmp_path: Path) -> None:
    assert Local(kit(tmp_path), job()).aligner() is None


def test_mistakes_in_a_demo_are_one_line(tmp_path: Path) -> None:
    site = Local(kit(tmp_path, party='[demo]\ndatset = "digits"\n'), job())
    assert not site.own_data
    with pytest.raises(UserError, match=r"party\.toml: \[demo\] .*'datset'"):
        site.party()


def test_unknown_settings_of_the_method_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no setting 'head\.epoch'"):
        Local(kit(tmp_path), job(settings={"head.epoch": 3})).method()


# ------------------------------------------------------------ the party


def test_a_party_draws_from_its_own_secret_and_not_from_what_others_know(tmp_path: Path) -> None:
    kits = [kit(tmp_path, name) for name in NAMES]
    ask = encode(Embed("query"))

    def answer(k: Kit, run: str = "a", seed: int = 0) -> bytes:
        return Local(k, probe_job(run, seed=seed)).party().handle_bytes(ask)

    first = [answer(k) for k in kits]
    assert first == [answer(k) for k in kits]  # rebuilt after a crash
    assert first == [answer(k, seed=1) for k in kits]  # the job's seed is the other side's
    assert len({*first, *(answer(k, "b") for k in kits)}) == 4
    (kits[1].folder / "secret.key").unlink()
    assert answer(kits[1]) != first[1]


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
    assert Local(shop, spec).party().handle_bytes(ask) == Local(shop, spec).party().handle_bytes(
        ask
    )
    assert len(Ledger(path=shop.folder / "ledger" / "epsilon.json").entries) == 1


def test_messages_that_do_not_fit_the_job_are_refused(tmp_path: Path) -> None:
    party = Local(kit(tmp_path, "shop"), probe_job(classes=2, max_bytes=2000)).party()

    def learn(classes: int, width: int) -> bytes:
        return encode(
            Learn(0, torch.zeros(classes, width), torch.ones(classes), torch.ones(classes))
        )

    party.handle_bytes(learn(2, 4))
    with pytest.raises(MessageError, match="classes is 3, must be 2"):
        party.handle_bytes(learn(3, 4))
    with pytest.raises(MessageError, match="over the limit of 2,000"):
        party.handle_bytes(learn(2, 400))


def test_the_party_holds_the_common_rows_in_the_order_of_their_uses(tmp_path: Path) -> None:
    for name in NAMES:
        kit(tmp_path, name)
    bank, shop = both(tmp_path, job())
    align(bank, shop, SHARED)
    rows = {name: site.part() for name, site in (("bank", bank), ("shop", shop))}
    ours = rows_of(bank.active.rows, bank.active.shared, 0, predict=True)
    assert set(ours.aligned.tolist()) == {6, 0, 7, 1}
    for part in rows.values():  # the files of these two are alike but for the label
        assert [len(t) for t in (part.table.aligned, part.table.query)] == [
            4,
            2 if part.name == "bank" else 1,
        ]
        assert len(part.table.pool) == 6  # rows to be predicted stay among the party's own
        assert "features" in part.facts
    assert torch.equal(rows["bank"].table.aligned, rows["shop"].table.aligned)
    # C08 is not shared, C09 is
    assert torch.equal(rows["bank"].table.query[1:], rows["shop"].table.query)


# ------------------------------------------------------------ what is kept


def test_a_prediction_without_training_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run a was not trained here"):
        Local(kit(tmp_path, "shop"), prediction()).party()
    with pytest.raises(UserError, match="run a was not finished"):
        Local(kit(tmp_path), prediction()).stored_owner()


def test_each_party_keeps_its_own_folder_of_the_run(tmp_path: Path) -> None:
    bank, shop = trained(tmp_path)
    for site, index in ((bank, 0), (shop, 1)):
        run = open_run(site.folder)
        assert (list(run.parties), run.names, run.owner) == ([site.kit.name], NAMES, None)
        stored = run.need_party(site.kit.name)
        assert (stored.index, stored.id_columns) == (index, ("customer",))
        assert (stored.alignment is None) == (index == 0)


def test_new_rows_are_answered_from_the_end_of_training_without_its_file(tmp_path: Path) -> None:
    before = trained(tmp_path)
    for site in before:
        (site.kit.folder / "rows.csv").unlink()
    bank, shop = both(tmp_path, prediction())
    align(bank, shop, [1])
    answers = {
        site.kit.name: decode(site.party().handle_bytes(encode(Embed("query"))))
        for site in (bank, shop)
    }
    # the bank has both, the shop one
    assert [len(values(answers[name])) for name in NAMES] == [2, 1]
    stored = shop.stored_party()
    expected = stored.embed([shop.source().encoded(np.array([1]))])  # type: ignore[union-attr]
    assert torch.equal(values(answers["shop"]), expected)


def test_columns_no_longer_leave_once_the_policy_forbids_them(tmp_path: Path) -> None:
    """The training run was asked for columns; its predictions would send those of new rows."""
    trained(tmp_path)
    policy = tmp_path / "shop" / "policy.toml"
    policy.write_text(policy.read_text().replace('"SendFeatures", ', ""))
    bank, shop = both(tmp_path, prediction())
    align(bank, shop, [1])
    with pytest.raises(LimitError, match="columns as they are"):
        shop.party().handle_bytes(encode(Embed("query")))
    bank.party().handle_bytes(encode(Embed("query")))  # what it asks itself crosses nothing


def test_a_party_that_was_away_at_the_end_keeps_its_folder_when_it_is_next_asked(
    tmp_path: Path,
) -> None:
    _, shop = trained(tmp_path)
    kept = open_run(shop.folder).need_party("shop").state
    shutil.rmtree(shop.folder / "shop")
    again = Local(shop.kit, prediction()).stored_party()
    assert set(again.state) == set(kept)
    assert all(torch.equal(again.state[name], tensor) for name, tensor in kept.items())
    assert list(open_run(shop.folder).parties) == ["shop"]


# ------------------------------------------------------------ the noise


def test_a_run_and_its_predictions_have_noise_of_their_own(tmp_path: Path) -> None:
    shop = kit(tmp_path, "shop")
    first = Local(shop, job())._noise().key
    assert Local(shop, job())._noise().key == first
    # of its training: the same row gets the same noise
    assert Local(shop, prediction())._noise().key == first
    others = [
        Local(shop, job("c")),
        Local(shop, job(privacy={"clip": 2.0})),
        Local(kit(tmp_path), job()),
    ]
    assert len({first, *(site._noise().key for site in others)}) == 4


# ------------------------------------------------------------ the active party


def test_labels_of_shared_rows_and_of_all_the_others_are_used(tmp_path: Path) -> None:
    for name in NAMES:
        kit(tmp_path, name)
    bank, shop = both(tmp_path, job())
    align(bank, shop, SHARED)
    owner = bank.owner()
    assert sorted(owner.labels.tolist()) == [0, 1, 1, 2]  # bad, good, late
    assert (owner.classes, owner.unseen, owner.parties) == (3, (), (0, 1))
    assert owner.own is not None
    assert sorted(owner.own.labels.tolist()) == [-1, -1, 0, 0, 0, 1, 1, 1, 1, 2]
    assert owner.own.shared_rows == 4


def test_a_class_that_is_named_and_has_no_row_is_unseen(tmp_path: Path) -> None:
    for name in NAMES:
        kit(tmp_path, name)
    path = tmp_path / "bank" / "party.toml"
    path.write_text(path.read_text() + 'classes = ["bad", "good", "late", "never"]\n')
    bank, shop = both(tmp_path, job(classes=4))
    align(bank, shop, SHARED)
    assert bank.owner().unseen == (3,)


def test_a_wrong_number_of_classes_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"the file has 3 classes \(bad, good, late\), the job says otherwise"
    ):
        Local(kit(tmp_path), job(classes=2)).owner()


def test_no_common_row_with_a_label_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no row that all parties share has a label"):
        Local(kit(tmp_path), job()).owner()


def test_the_owners_guard_is_made_of_the_jobs_defences_and_the_sites_key(tmp_path: Path) -> None:
    site = Local(kit(tmp_path), job(privacy={"prototype_noise": 2.0, "epsilon": 3.0}))
    labels = torch.tensor([0, 1, 2])
    guard = site.owner_guard(labels)
    assert (guard.settings.prototype_noise, guard.settings.epsilon) == (2.0, 3.0)
    assert torch.equal(guard.noise("x", (3,)), site.owner_guard(labels).noise("x", (3,)))
    assert guard.ledger.path == site.kit.folder / "ledger" / "epsilon.json"
    assert (guard.ledger.run, guard.ledger.names) == ("a", NAMES)


def test_the_owner_of_a_probe_asks_every_party(tmp_path: Path) -> None:
    bank = kit(tmp_path)
    owner = Local(bank, probe_job()).owner()
    assert owner.parties == (0, 1)
    assert owner.key == probe.owner(2, run_seed(bank.folder, "a")).key


# ------------------------------------------------------------ predictions


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_predictions_name_the_person_the_class_every_probability_and_who_had_the_row(
    tmp_path: Path,
) -> None:
    site = Local(kit(tmp_path), job())
    p = torch.tensor([[0.125, 0.25, 0.625], [0.5, 0.25, 0.25]])
    ids = pa.table({"customer": ["C09", "C08"]})
    present = torch.tensor([[True, True], [True, False]])
    site.write_predictions(
        Predictions(["C09", "C08"], ids, p, present, ("bad", "good", "late"), NAMES, {}, {})
    )
    assert read_csv(site.folder / "predictions.csv") == [
        ["customer", "class", "p_bad", "p_good", "p_late", "parties"],
        ["C09", "late", "0.125", "0.25", "0.625", "bank+shop"],
        ["C08", "bad", "0.5", "0.25", "0.25", "bank"],
    ]
    assert torch.equal(load_file(site.folder / "predictions.safetensors")["probabilities"], p)
    assert (site.folder / "predictions.csv").stat().st_mode & 0o077 == 0
