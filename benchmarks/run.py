"""All benchmarks on this machine: `python benchmarks/run.py [--only naive,floor] [--tiny] [--out F]
[--docs F]`.

Results are JSON lines with the machine they were measured on, written as they come; the tables of
PAGES are rewritten from the newest lines of each device, between their marks. `--render` only
rewrites the tables, `--docs` without a page only measures. On a GPU that is lent by the minute:
`--only floor,growth,stacking --seconds 140 --docs`.
"""

import argparse
import json
import math
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
PAGES = [ROOT / "docs" / page for page in ("performance.md", "notes/speed.md", "notes/growth.md")]
RENDER: dict[str, Callable[[Sequence[Line]], str]] = {
    "naive": naive.render, "stacking": stacking.render, "floor": floor.render,
    "growth": growth.render, "time_to_accuracy": time_to_accuracy.render,
}  # fmt: skip


def measure(name: str, device: str, threads: int, tiny: bool) -> Iterator[Line]:
    """The lines of one benchmark, small enough for minutes on two cores, or `tiny` for seconds."""
    if name == "naive":
        return naive.measure(device, *((600, 64, (0,), 1) if tiny else ()))
    if name == "stacking":
        sizes = ((1, 2), (1, 2), device, 16) if tiny else (stacking.PARTIES, stacking.SEEDS, device)
        return stacking.measure(("images", "tables"), *sizes)
    if name == "floor":
        members = (1, 4, 20, 64) if device == "cuda" else (1, 4, 20)
        return floor.measure((1, 2), device, 16, 2, 64) if tiny else floor.measure(members, device)
    if name == "growth":
        sizes = {"pool": (100, 200)} if tiny else growth.SIZES
        return growth.measure(sizes, threads, device)
    options = {"methods": ("vanilla",), "overrides": {"epochs": 1}} if tiny else {}
    return time_to_accuracy.measure("digits", device, **options)  # type: ignore[arg-type]


def newest(path: Path) -> dict[str, list[Line]]:
    """The last set of lines of each benchmark: by its name on a CPU, by `NAME cuda` on a GPU."""
    last_lines: dict[str, list[Line]] = {}
    lines = (
        [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )
    for name in RENDER:
        for device, mark in (("cpu", name), ("cuda", f"{name} cuda")):
            on_device = [
                x for x in lines if x["bench"] == name and x["machine"].get("on", "cpu") == device
            ]
            last_lines[mark] = [x for x in on_device if x["batch_of"] == on_device[-1]["batch_of"]]
    return last_lines


def refresh(page: Path, last_lines: dict[str, list[Line]]) -> None:
    """Writes each benchmark's table between `<!-- MARK -->` and `<!-- /MARK -->`."""
    text = page.read_text(encoding="utf-8")
    for mark, lines in last_lines.items():
        if lines:
            table = RENDER[lines[0]["bench"]](lines)
            body = f"<!-- {mark} -->\n{table}\n\n{in_words(lines[-1]['machine'])}\n<!-- /{mark} -->"
            text = re.sub(
                rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, b=body: b, text, flags=re.DOTALL
            )
    page.write_text(text, encoding="utf-8")


def in_words(machine: Line) -> str:
    """The machine in a sentence."""
    return (
        f"*{machine['device']} of {machine['cores']} core(s), torch {machine['torch']}, Python "
        f"{machine['python']}, {machine['date']}, load {machine['load']:.1f} when it ended.*"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(RENDER))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--tiny", action="store_true", help="seconds instead of minutes; figures mean nothing"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing, rewrite the tables")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="no point is begun later than this"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "performance.jsonl")
    parser.add_argument(
        "--docs", nargs="*", type=Path, default=PAGES, help="the pages; none: leaves them alone"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if not given.render:
        measure_all(given)
    for page in given.docs:
        refresh(page, newest(given.out))


def measure_all(given: argparse.Namespace) -> None:
    """Every line goes to the file and the screen when it is there, so that stopping loses
    nothing."""
    start = time.perf_counter()
    for name in given.only.split(","):
        batch_of = time.time()
        for line in measure(name, given.device, given.threads, given.tiny):
            write(
                given.out,
                [{**line, "batch_of": batch_of, "machine": describe(given.device, given.threads)}],
            )
            passed = time.perf_counter() - start
            print(f"{passed:6.1f} s {json.dumps(line)}", flush=True)
            if passed > given.seconds:
                print(f"{name}: time is over, the rest is left out", flush=True)
                return


if __name__ == "__main__":
    main()
