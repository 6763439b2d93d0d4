"""All benchmarks on this machine: `python benchmarks/run.py [--only naive,floor] [--tiny] [--out F] [--docs F]`.

Results are JSON lines with the machine they were measured on; the tables of docs/performance.md are rewritten from
the newest lines, between their marks. `--render` only rewrites the tables.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

import floor
import growth
import naive
import stacking
import time_to_accuracy
from machine import Line, describe, write

ROOT = Path(__file__).parents[1]
RENDER: dict[str, Callable[[Sequence[Line]], str]] = {
    "naive": naive.render, "stacking": stacking.render, "floor": floor.render,
    "growth": growth.render, "time_to_accuracy": time_to_accuracy.render,
}  # fmt: skip


def measure(name: str, device: str, threads: int, tiny: bool) -> Iterator[Line]:
    """The lines of one benchmark, small enough for minutes on two cores, or `tiny` for seconds."""
    if name == "naive":
        return naive.measure(device, *((600, 64, (0,)) if tiny else ()))
    if name == "stacking":
        sizes = ((1, 2), (1, 2), device, 16, 1) if tiny else (stacking.PARTIES, stacking.SEEDS, device)
        return stacking.measure(("images", "tables"), *sizes)
    if name == "floor":
        return floor.measure((1, 2), device, 16, 2, 64) if tiny else floor.measure((1, 4, 20), device)
    if name == "growth":
        sizes = {"pool": (100, 200)} if tiny else growth.SIZES
        return growth.measure(sizes, threads, device)
    some = {"methods": ("vanilla",), "overrides": {"epochs": 1}} if tiny else {}
    return time_to_accuracy.measure("digits", device, **some)  # type: ignore[arg-type]


def newest(path: Path) -> dict[str, list[Line]]:
    """The last complete set of lines of each benchmark on each device."""
    found: dict[str, list[Line]] = {}
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    for name in RENDER:
        mine = [x for x in lines if x["bench"] == name]
        found[name] = [x for x in mine if x["batch_of"] == mine[-1]["batch_of"]]
    return found


def refresh(page: Path, found: dict[str, list[Line]]) -> None:
    """Writes each benchmark's table between `<!-- NAME -->` and `<!-- /NAME -->`."""
    text = page.read_text(encoding="utf-8")
    for name, lines in found.items():
        if lines:
            body = f"<!-- {name} -->\n{RENDER[name](lines)}\n\n{told(lines[-1]['machine'])}\n<!-- /{name} -->"
            text = re.sub(rf"<!-- {name} -->.*?<!-- /{name} -->", lambda _, b=body: b, text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")


def told(machine: Line) -> str:
    """The machine in a sentence."""
    return (f"*{machine['device']} of {machine['cores']} core(s), torch {machine['torch']}, Python "
            f"{machine['python']}, {machine['date']}, load {machine['load']:.1f} when it ended.*")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(RENDER))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes; figures mean nothing")
    parser.add_argument("--render", action="store_true", help="measure nothing, rewrite the tables")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "performance.jsonl")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name in () if given.render else given.only.split(","):
        batch_of = time.time()
        for line in measure(name, given.device, given.threads, given.tiny):
            write(given.out, [{**line, "batch_of": batch_of, "machine": describe(given.device, given.threads)}])
            print(json.dumps(line), flush=True)
    refresh(given.docs, newest(given.out))


if __name__ == "__main__":
    main()
