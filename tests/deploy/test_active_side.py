"""The active party's side: pairs are aligned once, changes are told to those whom they concern,
rows are predicted."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("private_set_intersection")

from protoevfl.deploy.active_side import ActiveSide
from protoevfl.deploy.aligning import USES, Gate, Pair, PassiveSide
from protoevfl.deploy.own_file import OwnFile
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.validation import read_toml
from tests.faults.companies import NAMES, write_files


@dataclass
class Companies:
    """Files of three companies; `asked` are the steps that each was asked."""

    folder: Path
    asked: list[tuple[str, int]] = field(default_factory=list)

    def file(self, name: str) -> OwnFile:
        return OwnFile.read(read_toml(self.folder / name / "party.toml"), name, self.folder / name)

    def active(self) -> ActiveSide:
        return ActiveSide(
            JobSpec("a", NAMES), self.file("bank"), self.folder / "bank" / "alignment"
        )

    def pair(self, name: str) -> Pair:
        return Pair(self.folder / name / "alignment")

    def align(self) -> ActiveSide:
        side = self.active()
        gate = Gate(lambda: None, lambda ids: None, 999)
        passive = {
            n: PassiveSide(n, lambda n=n: self.file(n), self.pair(n), gate) for n in NAMES[1:]
        }  # type: ignore[misc]

        def ask(name: str, step: int, message: bytes) -> bytes:
            self.asked.append((name, step))
            return passive[name].handle_bytes(step, message)

        side.align({name: self.pair(name).digest for name in NAMES[1:]}, ask)
        return side


@pytest.fixture
def companies(tmp_path: Path) -> Companies:
    write_files(tmp_path)
    return Companies(tmp_path)


def test_each_company_holds_its_rows_of_the_same_people_for_the_same_uses(
    companies: Companies,
) -> None:
    side = companies.align()
    spelt = {name: dict(zip(ids.rows.tolist(), ids.values, strict=True))
             for name in NAMES for ids in [companies.file(name).ids()]}  # fmt: skip
    rows = {name: companies.pair(name).rows(companies.file(name).ids()) for name in NAMES[1:]}

    def people(name: str, part: str) -> list[str]:
        return [spelt[name][row] for row in getattr(rows[name], part).tolist()]

    train = [spelt["bank"][row] for row in side.rows.train.tolist()]
    assert train == people("shop", "aligned") == people("tele", "aligned")
    kept = [spelt["bank"][row] for row in side.rows.kept_aside.tolist()]
    assert kept == people("shop", "kept_aside") == people("tele", "kept_aside")
    further = [spelt["bank"][row] for row in side.rows.further.tolist()]
    assert sorted(further) == sorted(people("shop", "further") + people("tele", "further"))
    assert all(int(name[1:]) % 7 == 0 for name in people("shop", "asked"))  # they have no label


def test_what_both_sides_hold_already_is_not_asked_again(companies: Companies) -> None:
    companies.align()
    assert companies.asked == [(name, step) for name in NAMES[1:] for step in (1, 2, 3)] + [
        (name, USES) for name in NAMES[1:]
    ]
    companies.asked.clear()
    companies.align()
    assert companies.asked == []


def test_a_pair_that_one_side_lost_is_aligned_again_and_the_other_is_left_alone(
    companies: Companies,
) -> None:
    companies.align()
    companies.asked.clear()
    (companies.folder / "tele" / "alignment" / "alignment.json").unlink()
    companies.align()
    assert companies.asked == [("tele", step) for step in (1, 2, 3, USES)]


def test_another_share_of_test_rows_is_told_without_aligning_again(companies: Companies) -> None:
    companies.align()
    companies.asked.clear()
    path = companies.folder / "bank" / "party.toml"
    path.write_text(path.read_text() + "test = 0.5\n")
    side = companies.align()
    assert companies.asked == [(name, USES) for name in NAMES[1:]]
    assert len(companies.pair("shop").rows(companies.file("shop").ids()).kept_aside) == len(
        side.rows.test
    )


def test_without_test_rows_all_labelled_rows_of_all_parties_train(companies: Companies) -> None:
    path = companies.folder / "bank" / "party.toml"
    path.write_text(path.read_text() + "test = 0\n")
    side = companies.align()
    labels, _ = side.labels
    assert len(side.rows.test) == 0
    assert len(side.world.labels) == int((labels[side.shared.common] >= 0).sum())


def test_the_job_must_know_the_number_of_classes(companies: Companies) -> None:
    side = companies.active()
    side.spec = JobSpec("a", NAMES, classes=3)
    with pytest.raises(
        UserError, match=r"the file has 2 classes \(no, yes\), the job says otherwise"
    ):
        _ = side.labels
