"""Sixty-odd messy files (tests/pipeline/messy_cases.py), each trained beside its clean twin.

    python benchmarks/messy_files.py [--out TABLE.md]

A line per file: the AUC of the messy file, of its twin, the difference in points, or the line with
which it is refused. Every file must be within one point or refused; what is guessed or left out is
said by `check`.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.pipeline.messy import Case, configure  # noqa: E402
from tests.pipeline.messy_cases import CASES  # noqa: E402

from protoevfl.errors import UserError  # noqa: E402
from protoevfl.pipeline.simulate import train_files  # noqa: E402
from protoevfl.settings.config import MethodConfig  # noqa: E402

POINT = 0.01


def auc(folder: Path, case: Case, clean: bool) -> float:
    """Of a model trained on the file as it is."""
    method = MethodConfig("vanilla", overrides={"epochs": 20})
    config = replace(configure(folder, case, clean), method=method)
    return float(train_files(config).metrics["test"]["auc"])


def line(name: str, case: Case, twins: dict[bytes, float]) -> tuple[str, bool]:
    """A row of the table, and whether the file is within one point of its twin or refused."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            messy = auc(Path(folder) / "messy", case, clean=False)
        except UserError as error:
            return f"| {name} | refused | | | {error} |", case.kind == "refused"
        configure(Path(folder) / "clean", case, clean=True)
        content = (Path(folder) / "clean" / "bank.csv").read_bytes()
        if content not in twins:
            twins[content] = auc(Path(folder) / "clean", case, clean=True)
    difference = messy - twins[content]
    numbers = f"{100 * messy:.2f} | {100 * twins[content]:.2f} | {100 * difference:+.2f}"
    good = abs(difference) <= POINT and case.kind != "refused"
    return f"| {name} | {case.kind} | {numbers} | |".replace("| |", "|"), good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    lines = ["| file | | AUC % | of its twin | points |", "|---|---|---|---|---|"]
    twins: dict[bytes, float] = {}
    bad = []
    for name, case in CASES.items():
        text, good = line(name, case, twins)
        lines.append(text)
        print(text, flush=True)
        if not good:
            bad.append(name)
    summary = f"{len(CASES)} files, {len(bad)} neither within one point nor refused: {bad}"
    print(summary)
    if out is not None:
        out.write_text("\n".join([*lines, "", summary, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
