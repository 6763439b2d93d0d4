"""A party measures what its replies give away, writes it down, and stops at its bound."""

import json
from pathlib import Path

import pytest
import torch

from protoevfl.deploy.self_audit import SelfAudit
from protoevfl.federation.party import Party
from protoevfl.messages import Done, Embed, Embeddings
from protoevfl.privacy.gives_away import SelfAuditError
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build

NAMES = ("income", "age")


def party(rows: int = 120) -> Party:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))
    table = PartyTable("shop", x, x, x[:0], ((0, 1), (1, 2)), (0, 1))
    return Party(build("proto_evfl", "default", "adult", {}), table, 1)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_leaves_is_measured_column_by_column_and_written_down(tmp_path: Path) -> None:
    shop = party()
    audit = SelfAudit(NAMES, 1.0, tmp_path / "run" / "gives_away.jsonl")
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
    audit = SelfAudit(NAMES, 0.5, tmp_path / "gives_away.jsonl")
    noise = torch.randn(120, 1, generator=torch.Generator().manual_seed(1))
    audit.check(shop, Embed("aligned"), Embeddings(noise), "1.0")
    with pytest.raises(SelfAuditError, match="'income'"):
        audit.check(shop, Embed("aligned"), Embeddings(shop.rows.aligned[0][:, :1]), "2.0")


def test_what_left_before_counts_too(tmp_path: Path) -> None:
    """Two replies that say nothing alone and everything together."""
    shop = party()
    audit = SelfAudit(NAMES, 0.6, tmp_path / "gives_away.jsonl")
    mask = 5 * torch.randn(120, 1, generator=torch.Generator().manual_seed(1))
    audit.check(shop, Embed("aligned"), Embeddings(mask), "1.0")
    with pytest.raises(SelfAuditError):
        audit.check(shop, Embed("aligned"), Embeddings(shop.rows.aligned[0][:, :1] + mask), "2.0")


def test_too_few_rows_to_measure_do_not_leave_under_a_bound(tmp_path: Path) -> None:
    few = party(8)
    reply = Embeddings(torch.zeros(8, 1))
    SelfAudit(NAMES, 1.0, tmp_path / "a.jsonl").check(few, Embed("aligned"), reply, "1.0")
    with pytest.raises(SelfAuditError, match="too few"):
        SelfAudit(NAMES, 0.5, tmp_path / "b.jsonl").check(few, Embed("aligned"), reply, "1.0")
