"""Three companies' files to try everything on: a bank with the label, an insurer, a telephone
company.

`write_example` deals the columns of a made-up table out to three files with partly overlapping
customers, in three formats and with three spellings of the same ids, and writes the
`protoevfl.toml` that goes with them. `new/` holds customers that no
training file has, with the truth beside them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

SHARE = 0.75  # of the customers that each company knows
NEW = 0.2  # of the customers that nobody trained on
LABEL = "default"
SEED = 0
_COLUMNS = {
    "bank": ["income", "age", "branch", "customer_since", "overdraft"],
    "insurer": ["premium", "claims", "region", "bonus"],
    "telco": ["minutes", "late_payments", "tariff", "roaming"],
}
_FILES = {"bank": "bank.parquet", "insurer": "insurer.csv", "telco": "telco.csv.gz"}


def write_example(out_dir: Path | str, rows: int = 3000) -> Path:
    """Write the three files, `new/` and protoevfl.toml; returns the path of protoevfl.toml."""
    table = _customers(rows)
    out = Path(out_dir)
    (out / "new").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    people = rng.permutation(table.num_rows)
    unknown, known = np.split(people, [int(NEW * len(people))])
    strangers = pa.array(np.sort(unknown))
    for party, names in _COLUMNS.items():
        label = [LABEL] if party == "bank" else []
        own = pa.array(rng.permutation(known[rng.random(len(known)) < SHARE]))
        _write(out / _FILES[party], table.select(["customer_id", *names, *label]).take(own))
        _write(out / "new" / _FILES[party], table.select(["customer_id", *names]).take(strangers))
    _write(out / "new" / "truth.csv", table.select(["customer_id", LABEL]).take(strangers))
    path = out / "protoevfl.toml"
    question = "which of the bank's customers will default?"
    text = configuration(question, _FILES, "customer_id", ("bank", LABEL))
    path.write_text(text, encoding="utf-8")
    return path


def _customers(rows: int) -> Any:
    """Three hidden traits (means, care, strain) show in every company's columns, and make the
    label."""
    rng = np.random.default_rng([SEED, 7])
    means, care, strain = rng.normal(size=(3, rows))

    def noise(scale: float) -> Any:
        return rng.normal(0, scale, rows)

    risk = 1.4 * strain - 1.0 * care - 0.8 * means + noise(0.7) - 1.3
    columns: dict[str, Any] = {
        "customer_id": 100_000 + rng.permutation(10 * rows)[:rows],
        "income": np.exp(10 + 0.5 * means + noise(0.3)).round(),
        "age": np.clip(45 + 9 * care + noise(9), 18, 95).round().astype(int),
        "branch": rng.choice(["north", "south", "east", "west"], rows),
        "customer_since": np.datetime64("2015-01-01")
        + (400 * care + noise(500)).astype("timedelta64[D]"),
        "overdraft": pa.array(strain + noise(1) > 1),
        "premium": pa.array(
            np.exp(6 + 0.4 * means + noise(0.4)).round(2), mask=rng.random(rows) < 0.05
        ),
        "claims": rng.poisson(np.exp(0.6 * strain - 0.5)),
        "region": rng.choice(["city", "country", "coast"], rows, p=[0.6, 0.3, 0.1]),
        "bonus": np.clip(5 + 2.5 * care + noise(1.5), 0, 12).round().astype(int),
        "minutes": np.exp(5 + 0.3 * means + noise(0.6)).round(1),
        "late_payments": rng.poisson(np.exp(0.7 * strain - 0.4 * care - 0.5)),
        "tariff": np.where(means + noise(1) > 0.5, "premium", "basic"),
        "roaming": pa.array(np.exp(1 + means + noise(1)).round(2), mask=rng.random(rows) < 0.1),
    }
    return pa.table({**columns, LABEL: np.where(risk > 0, "yes", "no")})


def _write(path: Path, table: Any) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    if "telco" in path.name:  # the same customer numbers, as another system would export them
        spelt = pa.array([f"{value}.0" for value in table["customer_id"].to_pylist()])
        table = table.set_column(0, "customer_id", spelt)
    with pa.output_stream(str(path), compression="detect") as sink:
        pacsv.write_csv(table, sink, pacsv.WriteOptions(quoting_style="needed"))


def configuration(
    question: str, files: Mapping[str, str], id_column: str, label: tuple[str, str], more: str = ""
) -> str:
    """The text of a protoevfl.toml.

    question   the comment on top
    files      {party: file}
    label      the party that has it, and its column
    more       lines that set something else
    """
    parties = "\n".join(
        f'\n[[party]]\nname = "{name}"\nfile = "{file}"\nid = "{id_column}"\nfeatures = "all"'
        for name, file in files.items()
    )
    return (
        f"# Three companies, one question: {question}\n"
        f'version = 1\noutput = "run"\nseed = 0\n{more}\n'
        f'[label]\nparty = "{label[0]}"\ncolumn = "{label[1]}"\n{parties}\n'
    )
