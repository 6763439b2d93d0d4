"""The campaign's file as the table of docs/deployment.md: `python -m tests.faults.figures [--fill
PAGE]`."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path("results/faults.jsonl")
BEGIN, END = "<!-- faults: written by tests/faults/figures.py -->", "<!-- end of faults -->"
HEAD = [
    "| fault | cases | ended well | back to work after, s (median, longest) | run ended after, s "
    "(longest) |",
    "|---|---|---|---|---|",
]
KILLED = {
    "party worker": "kill -9 of a party's job process",
    "party main process": "kill -9 of a party's main process, then `start`",
    "hub": "kill -9 of the hub, then `start`",
}
NAMES = {
    "proxy": "proxy: delays, stalls, slows, cuts, truncates, flips bits",
    "intruder": "who must not get in, what must not be done",
    "hub": "a hub with changed software: drops, repeats, reorders, changes, calls a party itself",
    "damage": "damaged or doubled: checkpoint, journal, kit, job",
    "disk": "full disk, read-only folder; then `resume`",
    "skip": "`skip` with Proto-EVFL: a party away for a while, or to the end",
}


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def name_of(line: dict[str, Any]) -> str:
    """The row of the table that a case belongs to."""
    kind = str(line["kind"])
    if kind == "kill -9":
        return next(text for part, text in KILLED.items() if str(line["what"]).startswith(part))
    return NAMES.get(
        kind, f"{kind} of job process, main process, hub" if kind.startswith("SIGSTOP") else kind
    )


def table(lines: Iterable[dict[str, Any]]) -> str:
    """A row a kind; a case that failed and was repeated after a change counts once and is
    mentioned."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in lines:
        rows.setdefault(name_of(line), {}).setdefault(line["key"], []).append(line)
    first, then = [*KILLED.values()], [*NAMES.values()]
    others = [name for name in rows if name not in first + then]  # SIGSTOP, after the kills
    known = [name for name in [*first, *others, *then] if name in rows]
    return "\n".join([*HEAD, *(_row(name, list(rows[name].values())) for name in known)])


def _row(name: str, cases: list[list[dict[str, Any]]]) -> str:
    last = [tries[-1] for tries in cases]
    good = sum(bool(line["good"]) for line in last)
    again = sum(not tries[0]["good"] and tries[-1]["good"] for tries in cases)
    words = f"{good}" + (f" ({again} of them after a change)" if again else "")
    waits = [line["recovery_s"] for line in last if line["recovery_s"] is not None]
    back = f"{median(waits):.0f}, {max(waits):.0f}" if waits else ""
    return (
        f"| {name} | {len(last)} | {words} | {back} | {max(line['seconds'] for line in last):.0f} |"
    )


def filled(page: str, lines: list[dict[str, Any]]) -> str:
    """The page with the table between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(lines)}\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fill", type=Path)
    page = parser.parse_args().fill
    if page is None:
        print(table(read()))
    else:
        page.write_text(filled(page.read_text(), read()))


if __name__ == "__main__":
    main()
