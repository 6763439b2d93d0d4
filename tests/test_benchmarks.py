"""The benchmarks run on tiny sizes, their lines and tables hold together, and what they compare is
the same thing."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from protoevfl.core import random as rnd
from protoevfl.core.augment import augment_images
from protoevfl.models import LeNet

ROOT = Path(__file__).parents[1]
NAMES = ("naive", "stacking", "floor", "growth", "time_to_accuracy")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a benchmark by name, as `python benchmarks/run.py` does."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module


def test_all_of_them_write_lines_with_their_machine_and_the_tables(tmp_path: Path) -> None:
    page, out = tmp_path / "page.md", tmp_path / "lines.jsonl"
    page.write_text(
        "before\n" + "".join(f"<!-- {n} -->\nold\n<!-- /{n} -->\n" for n in NAMES) + "after\n"
    )
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "run.py"),
        "--tiny",
        "--threads",
        "1",
        "--device",
        "cpu",
    ]
    command += ["--out", str(out), "--docs", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert {line["bench"] for line in lines} == set(NAMES)
    assert all(
        {"device", "cores", "load", "torch", "python", "date"} <= line["machine"].keys()
        for line in lines
    )
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    for name in NAMES:
        body = re.findall(rf"<!-- {name} -->(.*?)<!-- /{name} -->", text, re.DOTALL)
        assert len(body) == 1
        assert "| --- |" in body[0]


def test_the_pages_have_a_place_for_every_table(bench: Any) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in bench("run").PAGES)
    for name in NAMES:
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(bench: Any, power: float) -> None:
    sizes = [10, 100, 1000]
    assert bench("machine").exponent(sizes, [3 * n**power for n in sizes]) == pytest.approx(power)


def test_the_naive_network_is_our_network(bench: Any) -> None:
    """Same parameters, hence the same work: with our weights copied in, the same embeddings."""
    plain, keys = bench("naive").lenet(2, 14), torch.tensor([rnd.key("net")])
    ours = LeNet(keys, 2, 14)
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in ours.parameters())
    with torch.no_grad():
        for at, part in ((0, ours.conv1), (4, ours.conv2)):
            plain[at].weight.copy_(part.weight[0])
        for at, part in ((9, ours.fc1), (12, ours.fc2)):
            plain[at].weight.copy_(part.weight[0].T)
    x = torch.rand(1, 8, 2, 14, 14)
    torch.testing.assert_close(plain(x[0]), ours(x)[0], atol=1e-4, rtol=1e-4)


def test_the_naive_views_change_as_much_as_ours(bench: Any) -> None:
    """Mean and spread of what a view does to a picture agree, and nothing is a plain copy."""
    torch.manual_seed(0)
    x = torch.rand(2, 14, 14)
    theirs = torch.stack([bench("naive").view(x) for _ in range(600)])
    ours = augment_images(
        x.expand(1, 600, 2, 14, 14), torch.tensor([rnd.key("v")]), "view", 0, 0.6
    )[0]
    assert abs(float(theirs.mean() - ours.mean())) < 0.02
    assert abs(float(theirs.std(0).mean() - ours.std(0).mean())) < 0.02
    assert float((theirs - x).abs().mean()) > 0.1


def test_the_floor_counts_a_known_step(bench: Any) -> None:
    """Multiply-adds of a LeNet step by hand: forward once, backward twice, no gradient to the input
    rows."""
    batch, floor = 8, bench("floor")
    step = floor.Step(1, batch, 1, "cpu")
    b = 2 * batch
    conv1, conv2 = b * 6 * 14 * 14 * 2 * 25, b * 16 * 7 * 7 * 6 * 25
    linear = b * (144 * 120 + 120 * 84)
    pairs = b * b * 84
    grid = b * 2 * 3 * 14 * 14  # the affine maps of the views
    assert floor.operations(step) == 2 * (2 * conv1 + 3 * conv2 + 3 * linear + 3 * pairs + grid)
    assert floor.traffic(floor.Step(2, batch, 1, "cpu")) == 2 * floor.traffic(step)


def test_a_public_name_is_a_function_or_class_without_an_underscore(bench: Any) -> None:
    size = bench("size")
    text = "def a(): ...\ndef _b(): ...\nclass C:\n    def d(self): ...\nE = 1\n"
    assert size.public_names(text) == ["a", "C"]
    files, lines, names = size.sizes()
    assert files["core/"] > 10
    assert lines["core/"] > names["core/"] > files["core/"]
