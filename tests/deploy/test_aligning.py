"""Alignment as the parties of a deployment do it: same rows, same order, proven; a crash in the middle is noticed."""

from pathlib import Path

import pytest

pytest.importorskip("private_set_intersection")

from protoevfl.deploy.aligning import QUERY, SETUP, TRAIN, Aligned, PassiveSide, lead_alignment
from protoevfl.deploy.own_file import OwnFile
from protoevfl.errors import UserError
from protoevfl.rows.example import write_example

FILES = {"bank": "bank.parquet", "insurer": "insurer.csv", "telco": "telco.csv.gz"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("example")
    write_example(made, rows=400)
    return made


def own(folder: Path, name: str) -> OwnFile:
    facts = {"file": FILES[name], "id": "customer_id", "predict_file": f"new/{FILES[name]}"}
    return OwnFile.read(facts | ({"label": "default"} if name == "bank" else {}), folder)


def sides(folder: Path, tmp_path: Path) -> dict[str, PassiveSide]:
    names = ("insurer", "telco")
    return {n: PassiveSide(n, lambda n=n: own(folder, n), Aligned(tmp_path / n)) for n in names}  # type: ignore[misc]


def test_all_parties_hold_the_same_people_in_the_same_order(folder: Path, tmp_path: Path) -> None:
    parties, bank = sides(folder, tmp_path), own(folder, "bank")
    ids = bank.labelled_ids(True)
    mine = Aligned(tmp_path / "bank")
    found = lead_alignment("bank", list(parties), TRAIN, ids, 10, lambda n, s, m: parties[n].handle_bytes(s, m))
    mine.save(TRAIN, found)
    assert {mine.digest, *(p.digest for p in parties.values())} == {mine.digest}
    people = []
    for name, result in {"bank": mine, **{n: p.results for n, p in parties.items()}}.items():
        every = own(folder, name).ids()
        at = dict(zip(every.rows.tolist(), every.values, strict=True))
        people.append([at[row] for row in result.rows(TRAIN, every).tolist()])
    common = set.intersection(*(set(own(folder, n).ids().values) for n in FILES))
    assert people[0] == people[1] == people[2]
    assert set(people[0]) == common


def test_the_table_keeps_the_common_order_and_the_pool_apart(folder: Path) -> None:
    file = own(folder, "insurer")
    every = file.ids().rows
    table = file.table("insurer", every[:20][::-1].copy(), every[20:25], False, seed=0)
    again = file.table("insurer", every[:20], every[20:25], False, seed=0)
    assert table.aligned.shape[0] == 20
    assert table.query.shape[0] == 5
    assert table.pool.shape[0] == len(every) - 25
    assert (table.aligned.flip(0) == again.aligned).all()
    new = file.table("insurer", every[:20], file.ids(file.predict).rows[:3], True, seed=0)
    assert new.query.shape == (3, *table.shape)


def test_messages_out_of_order_are_refused(folder: Path, tmp_path: Path) -> None:
    party = sides(folder, tmp_path)["telco"]
    for step in (12, 13, 22, 31, 14, 0):
        with pytest.raises(UserError):
            party.handle_bytes(step, b"")
    party.handle_bytes(10 * QUERY + SETUP, b"")
    with pytest.raises(UserError):
        party.handle_bytes(10 * QUERY + SETUP + 1, b"not a request")
    assert party.digest == ""


def test_a_file_that_changed_after_alignment_is_refused(folder: Path, tmp_path: Path) -> None:
    parties, bank = sides(folder, tmp_path), own(folder, "bank")
    ids = bank.labelled_ids(True)
    found = lead_alignment("bank", ["telco"], TRAIN, ids, 10, lambda n, s, m: parties[n].handle_bytes(s, m))
    mine = Aligned(tmp_path / "bank")
    mine.save(TRAIN, found)
    with pytest.raises(UserError, match="no longer those that were aligned"):
        mine.rows(TRAIN, own(folder, "insurer").ids())


@pytest.mark.parametrize(
    "change", [{"fiel": "x"}, {"features": ["customer_id"]}, {"features": ["none"]}, {"minimum": 0}]
)
def test_mistakes_in_party_toml_are_one_line(folder: Path, change: dict[str, object]) -> None:
    with pytest.raises(UserError):
        OwnFile.read({"file": "bank.parquet", "id": "customer_id", **change}, folder)
