"""A party measures what its replies give away, writes it down, and stops at its bound."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from protoevfl.deploy.account import Account
from protoevfl.deploy.row_ledger import Limits, RowLedger
from protoevfl.deploy.self_audit import SelfAudit
from protoevfl.federation.party import Party
from protoevfl.messages import Done, Embed, Embeddings, ForwardBatch, MixedEmbeddings
from protoevfl.privacy.gives_away import SelfAuditError
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build

NAMES = ("income", "age")


def party(rows: int = 120) -> Party:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))
    table = PartyTable("shop", x, x, x[:0], ((0, 1), (1, 2)), (0, 1))
    return Party(build("proto_evfl", "default", "adult", {}), table, 1)


def self_audit(folder: Path, most: float, run: str = "run-1", rows: int = 120) -> SelfAudit:
    """As a new process of the party would make it."""
    ledger = RowLedger(folder / "ledger", "bank", Limits(200, 200, 2, 1000, 10, 20))
    keys = np.arange(rows, dtype=np.int64)
    account = Account(ledger, run, {"aligned": keys, "query": keys})
    return SelfAudit(NAMES, most, folder / run / "gives_away.jsonl", account)


def sends(audit: SelfAudit, shop: Party, values: Tensor, name: str, rows: str = "aligned") -> None:
    """Check the reply, and let it leave."""
    request, reply = Embed(rows), Embeddings(values)
    audit.check(shop, request, reply, name)
    audit.remember(request, reply)


def noise(seed: int) -> Tensor:
    return torch.randn(120, 1, generator=torch.Generator().manual_seed(seed))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_leaves_is_measured_column_by_column_and_written_down(tmp_path: Path) -> None:
    shop = party()
    audit = self_audit(tmp_path, 1.0)
    income = shop.rows.aligned[0][:, :1]
    audit.check(shop, Embed("aligned"), Embeddings(income.clone()), "1.0")
    audit.check(shop, Embed("aligned"), Done(), "1.1")
    (line,) = lines(audit.path)
    given = line["given away"]
    assert isinstance(given, dict)
    assert given["income"] > 0.9 > 0.5 > given["age"]
    assert line["request"] == "1.0"


def test_above_the_bound_nothing_leaves(tmp_path: Path) -> None:
    shop = party()
    audit = self_audit(tmp_path, 0.5)
    sends(audit, shop, noise(1), "1.0")
    with pytest.raises(SelfAuditError, match="'income'"):
        sends(audit, shop, shop.rows.aligned[0][:, :1], "2.0")


@pytest.mark.parametrize("run", ["run-1", "run-2"])
@pytest.mark.parametrize("rows", ["aligned", "query"])
def test_what_left_before_counts_too_whatever_process_and_run_sent_it(
    tmp_path: Path, run: str, rows: str
) -> None:
    """Two replies that say nothing alone and everything together."""
    shop = party()
    shop.rows.query = shop.rows.aligned
    mask = 5 * noise(1)
    sends(self_audit(tmp_path, 0.6), shop, mask, "1.0")
    restarted = self_audit(tmp_path, 0.6, run)
    masked = shop.rows.aligned[0][:, :1] + mask
    with pytest.raises(SelfAuditError, match="'income'"):
        sends(restarted, shop, masked, "2.0", rows)
    sends(self_audit(tmp_path / "another partner", 0.6), shop, masked, "2.0")


def test_some_of_the_rows_are_held_against_what_left_of_them(tmp_path: Path) -> None:
    """The rows that the earlier run had are a small part of those of the next one."""
    shop, mask = party(1200), 5 * torch.randn(1200, 1, generator=torch.Generator().manual_seed(1))
    few = party(1200)
    few.rows.aligned = shop.rows.aligned[:, :60]
    sends(self_audit(tmp_path, 0.6, rows=60), few, mask[:60], "1.0")
    masked = shop.rows.aligned[0][:, :1] + mask
    with pytest.raises(SelfAuditError, match="'income'"):
        sends(self_audit(tmp_path, 0.6, "run-2", 1200), shop, masked, "2.0")


def test_a_round_that_is_repeated_is_not_held_against_itself(tmp_path: Path) -> None:
    shop = party()
    for _ in range(2):
        sends(self_audit(tmp_path, 0.5), shop, noise(1), "1.0")
    first, again = lines(self_audit(tmp_path, 0.5).path)
    assert first == again


def test_a_reply_about_some_rows_is_measured_on_these(tmp_path: Path) -> None:
    shop = party()
    rows = torch.arange(119, 59, -1)
    reply = Embeddings(shop.rows.aligned[0][rows][:, :1])
    audit = self_audit(tmp_path, 0.5)
    with pytest.raises(SelfAuditError, match="'income'"):
        audit.check(shop, ForwardBatch(0, rows), reply, "1.0")
    audit.check(shop, ForwardBatch(0, rows), Embeddings(noise(1)[:60]), "1.0")


def test_what_cannot_be_measured_does_not_leave_under_a_bound(tmp_path: Path) -> None:
    few = party(8)
    reply = Embeddings(torch.zeros(8, 1))
    self_audit(tmp_path, 1.0, rows=8).check(few, Embed("aligned"), reply, "1.0")
    with pytest.raises(SelfAuditError, match="too few"):
        self_audit(tmp_path, 0.5, rows=8).check(few, Embed("aligned"), reply, "1.0")
    mixed = MixedEmbeddings(torch.zeros(8, 1), torch.zeros(8, 1))
    self_audit(tmp_path, 1.0).check(few, Embed("aligned"), mixed, "1.1")
    with pytest.raises(SelfAuditError, match="cannot be measured"):
        self_audit(tmp_path, 0.5).check(few, Embed("aligned"), mixed, "1.1")
