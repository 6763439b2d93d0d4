"""Sixty-odd files as people send them, each with the plain file that means the same.

A bank's file is written in one messy way; the insurer's is plain. What must become of it:

    same      it is read as its clean twin is: the same encoded rows and labels, hence the same model
    said      the same, or a guess, and `check` says so in a line
    refused   one line that names the column (or the file) and what to do
"""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protoevfl.settings.config import Config, load

Columns = dict[str, list[Any]]
Format = Callable[[Any], str]
LABEL = "churned"
IDS = "customer"


def truth(rows: int = 400, seed: int = 5) -> Columns:
    """What the bank knows: amounts, shares, dates, counts, towns, and who churned."""
    rng = np.random.default_rng(seed)
    income = np.round(rng.lognormal(7.5, 0.8, rows), 2)
    rate = np.round(rng.beta(2, 5, rows), 3)
    balance = np.round(rng.normal(200, 900, rows), 2)
    since = [date(2012, 1, 1) + timedelta(int(d)) for d in rng.integers(0, 4000, rows)]
    age = np.array([(date(2024, 1, 1) - day).days for day in since])
    visits = rng.integers(0, 40, rows)
    town = rng.choice(["Köln", "Ulm", "Zürich"], rows)
    score = np.log(income) - 7.5 + 4 * rate - balance / 900 + (age - 2300) / 1000
    risk = 1 / (1 + np.exp(-1.5 * (score - np.median(score))))
    churned = np.where(rng.random(rows) < risk, "yes", "no")
    return {
        IDS: [str(100_000 + 7 * i) for i in range(rows)],
        "income": income.tolist(),
        "rate": rate.tolist(),
        "balance": balance.tolist(),
        "since": since,
        "visits": visits.tolist(),
        "town": town.tolist(),
        LABEL: churned.tolist(),
    }


def partner(rows: int = 400, seed: int = 5) -> Columns:
    """The insurer's columns about the same people, in another order."""
    rng = np.random.default_rng(seed + 1)
    bank = truth(rows, seed)
    sign = np.array([1.0 if label == "yes" else -1.0 for label in bank[LABEL]])
    order = rng.permutation(rows)
    claims = np.round(rng.normal(0.5 * sign, 1.0), 3)
    return {
        IDS: [bank[IDS][i] for i in order],
        "claims": claims[order].tolist(),
        "premium": np.round(rng.lognormal(4, 0.5, rows), 2).tolist(),
    }


@dataclass(frozen=True)
class Case:
    """One messy file."""

    kind: str  # "same", "said" or "refused"
    write: Callable[[Columns], bytes]  # of the truth, as `change` left it
    change: Callable[[Columns], Columns] = lambda columns: columns  # also of the clean twin
    words: str = ""  # of the line that `check` says
    name: str = "bank.csv"
    party: Mapping[str, Any] = field(default_factory=dict)  # settings of the bank
    twin: Callable[[Columns], Columns] | None = None  # where the clean file has other columns


def plain(value: Any) -> str:
    return "" if value is None else str(value)


def table(
    columns: Columns,
    formats: Mapping[str, Format] | None = None,
    mark: str = ",",
    quoted: Sequence[str] = (),
    end: str = "\n",
) -> str:
    """A CSV file; `quoted` columns stand in quotes."""
    formats = formats or {}
    lines = [mark.join(columns)]
    for cells in zip(*columns.values(), strict=True):
        texts = [formats.get(name, plain)(cell) for name, cell in zip(columns, cells, strict=True)]
        marked = [f'"{t}"' if name in quoted else t for name, t in zip(columns, texts, strict=True)]
        lines.append(mark.join(marked))
    return end.join(lines) + end


def written(encoding: str = "utf-8", mark: str = ",", end: str = "\n", **formats: Format) -> Any:
    """How a case writes its file: columns by their formats; those with the separator in quotes."""

    def write(columns: Columns) -> bytes:
        quoted = [n for n, f in formats.items() if any(mark in f(v) for v in columns[n])]
        return table(columns, formats, mark, quoted, end).encode(encoding)

    return write


def edited(change: Callable[[str], str], **how: Any) -> Any:
    """A file changed as text after it was written."""

    def write(columns: Columns) -> bytes:
        text = written(**how)(columns).decode()
        return change(text).encode()

    return write


def point(value: Any) -> str:
    return "" if value is None else f"{value:,.2f}".replace(",", "")


def comma(value: Any) -> str:
    return plain(value).replace(".", ",")


def grouped(thousands: str, decimal: str, digits: int = 2) -> Format:
    def text(value: Any) -> str:
        if value is None:
            return ""
        english = f"{value:,.{digits}f}"
        return english.replace(",", "T").replace(".", decimal).replace("T", thousands)

    return text


def indian(value: Any) -> str:
    whole, _, cents = f"{value:.2f}".partition(".")
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(0, i - 2) : i] for i in range(len(head), 0, -2)][::-1]
    return ",".join([*pairs, tail]) + f".{cents}"


def dated(pattern: str) -> Format:
    return lambda value: "" if value is None else value.strftime(pattern)


def with_gaps(column: str, every: int = 9) -> Callable[[Columns], Columns]:
    """Some values of a column missing."""
    return lambda columns: {
        **columns,
        column: [None if i % every == 4 else v for i, v in enumerate(columns[column])],
    }


def replaced(column: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[Columns], Columns]:
    return lambda columns: {**columns, column: values(columns[column])}


def added(column: str, values: Callable[[Columns], list[Any]]) -> Callable[[Columns], Columns]:
    """A further column just before the label."""

    def change(columns: Columns) -> Columns:
        label = columns[LABEL]
        rest = {name: value for name, value in columns.items() if name != LABEL}
        return {**rest, column: values(columns), LABEL: label}

    return change


def gap(mark: str, form: Format = plain) -> Format:
    return lambda value: mark if value is None else form(value)


def early(days: list[Any]) -> list[Any]:
    """Dates whose day could be a month."""
    return [day.replace(day=1 + day.day % 12) for day in days]


def thousands(columns: Columns) -> list[Any]:
    return [int(1000 * (1 + i % 700)) + int(v) for i, v in enumerate(columns["visits"])]


def parquet(columns: Columns) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def packed(columns: Columns) -> bytes:
    return gzip.compress(written(mark=";", income=comma)(columns), 1)


def every_other(one: Format, other: Format) -> Format:
    """Two ways of writing in turn."""
    turn = [0]

    def text(value: Any) -> str:
        turn[0] += 1
        return one(value) if turn[0] % 2 else other(value)

    return text


def configure(folder: Path, case: Case, clean: bool = False, rows: int = 400) -> Config:
    """The two companies' files and a configuration of them; `clean`: the twin of the messy file."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = truth(rows)
    changed = case.change(columns)
    if clean:
        twin = changed if case.twin is None else case.twin(columns)
        (folder / "bank.csv").write_bytes(written()(twin))
    else:
        (folder / case.name).write_bytes(case.write(changed))
    (folder / "insurer.csv").write_bytes(written()(partner(rows)))
    facts = {
        "label": {"party": "bank", "column": LABEL},
        "method": {"name": "vanilla"},
        "device": "cpu",
    }
    bank = {"name": "bank", "file": "bank.csv" if clean else case.name, "id": IDS}
    insurer = {"name": "insurer", "file": "insurer.csv", "id": IDS}
    party = {} if clean else case.party
    lines = [f"{name} = {_toml(value)}" for name, value in facts.items()]
    for own in ({**bank, **party}, insurer):
        lines += ["[[party]]", *(f"{name} = {_toml(value)}" for name, value in own.items())]
    (folder / "protoevfl.toml").write_text("\n".join(lines), encoding="utf-8")
    return load(folder / "protoevfl.toml")


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{n} = {_toml(v)}" for n, v in value.items()) + " }"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
