"""The ledger: equal to dp-accounting and the closed form, durable, idempotent, and it stops the
run."""

import math
from pathlib import Path

import pytest

from protoevfl.errors import UserError
from protoevfl.privacy import bounds
from protoevfl.privacy.ledger import Ledger, by_dp_accounting


@pytest.mark.parametrize("mus", [[0.35], [0.35] * 5, [0.5, 1 / 3, 2.0], [4.0]])
def test_dp_accounting_and_the_closed_form_agree_within_one_percent(mus: list[float]) -> None:
    pytest.importorskip("dp_accounting")
    closed = bounds.epsilon(math.sqrt(sum(m * m for m in mus)), 1e-5)
    found = by_dp_accounting(mus, 1e-5)
    assert found is not None
    assert math.isclose(found, closed, rel_tol=0.01)


def fill(ledger: Ledger, count: int, party: int = 1) -> None:
    for i in range(count):
        ledger.charge(
            f"release {i}", party=party, direction="down", sigma=4.0, sensitivity=math.sqrt(2)
        )


def test_ledger_equals_the_closed_form() -> None:
    ledger = Ledger()
    fill(ledger, 3)
    closed = bounds.epsilon(bounds.mu(4.0, math.sqrt(2), 3), 1e-5)
    assert math.isclose(ledger.epsilon(1, "down"), closed, rel_tol=0.01)
    assert ledger.epsilon(2, "down") == ledger.epsilon(1, "up") == 0.0


def test_a_coalition_pays_for_all_its_members() -> None:
    ledger = Ledger()
    fill(ledger, 1, party=1)
    fill(ledger, 1, party=2)
    assert ledger.coalition([1, 2]) > ledger.epsilon(1, "down")
    assert math.isclose(ledger.mu([1, 2]), bounds.mu(4.0, math.sqrt(2), 2))


def test_the_run_stops_at_its_budget_and_says_what_to_do() -> None:
    ledger = Ledger(epsilon=2.0)
    fill(ledger, 2)
    with pytest.raises(UserError, match=r"privacy budget reached: party 1.*fewer releases"):
        fill(ledger, 3)
    assert len(ledger.entries) == 2  # what was refused was not sent and costs nothing


def test_the_same_release_again_costs_nothing() -> None:
    ledger = Ledger()
    fill(ledger, 2)
    fill(ledger, 2)
    assert len(ledger.entries) == 2


def test_it_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    fill(Ledger(epsilon=2.0, path=path), 2)
    again = Ledger(epsilon=2.0, path=path)
    assert len(again.entries) == 2
    with pytest.raises(UserError, match="budget"):
        again.charge("another", party=1, direction="down", sigma=4.0, sensitivity=math.sqrt(2))


def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Ledger(path=path)


def test_a_ledger_that_cannot_be_written_stops_the_release(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ledger = Ledger(path=tmp_path / "file" / "ledger.json")
    with pytest.raises(UserError, match="nothing was sent"):
        fill(ledger, 1)


def test_without_noise_the_cost_is_infinite() -> None:
    ledger = Ledger(epsilon=100.0)
    with pytest.raises(UserError, match="inf"):
        ledger.charge("bare", party=1, direction="down", sigma=0.0, sensitivity=1.0)


def test_over_runs_a_partner_is_known_by_name_and_a_total_holds(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "epsilon.json"

    def of(run: str, *names: str) -> Ledger:
        return Ledger(epsilon=2.0, path=path, run=run, names=names, total=2.6)

    first, second = of("r1", "bank", "shop", "tele"), of("r2", "bank", "tele", "shop")
    fill(first, 2, party=1)
    fill(second, 1, party=2)  # the same shop; both have the file open
    assert len(second.entries) == 3
    assert first.epsilon(1, "down") > second.epsilon(2, "down") > 0  # of each run
    assert [line["party"] for line in second.summary()] == [2]
    with pytest.raises(UserError, match=r"party shop, down, .* of 2\.6 over all runs"):
        fill(of("r3", "bank", "shop"), 3, party=1)
    fill(of("r4", "bank", "tele"), 1, party=1)  # another partner has its own account
