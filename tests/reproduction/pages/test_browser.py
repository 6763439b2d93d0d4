"""The page in headless Chromium: no errors, sorting and filtering work, nothing is blank, also on a
phone."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.reproduction.pages.chromium import dom, errors, needs_chromium, screenshot

pytestmark = needs_chromium


def column(html: str, table: str, index: int) -> list[str]:
    """The sort keys of a column, in the order of the rows shown."""
    body = re.search(rf'<table[^>]* id="{table}".*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    assert body
    rows = re.findall(r"<tr( hidden=\"\")?>(.*?)</tr>", body[1], re.DOTALL)
    return [
        re.findall(r'<td[^>]*data-v="([^"]*)"', cells)[index]
        for hidden, cells in rows
        if not hidden
    ]


def head(html: str, table: str) -> list[str]:
    found = re.search(rf'<table[^>]* id="{table}".*?<thead>(.*?)</thead>', html, re.DOTALL)
    assert found
    return re.findall(r"<button[^>]*>(.*?)</button>", found[1])


def test_loads_without_errors(page: Path, tmp_path: Path) -> None:
    html = dom(page, tmp_path / "profile")
    assert errors(html) is None
    assert 'data-ready="yes"' in html


def test_the_collector_sees_errors(page: Path, tmp_path: Path) -> None:
    """The test above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        page.read_text(encoding="utf-8").replace("restore();", "nothing();", 1), encoding="utf-8"
    )
    assert "nothing is not defined" in (errors(dom(bad, tmp_path / "profile")) or "")


def test_sorting(page: Path, tmp_path: Path) -> None:
    plain = dom(page, tmp_path / "p0")
    index = head(plain, "results").index("accuracy %")
    before = [float(v) for v in column(plain, "results", index) if v]
    assert before != sorted(before, reverse=True)
    down = dom(page, tmp_path / "p1", f"#sort=results:{index}:down")
    assert [float(v) for v in column(down, "results", index) if v] == sorted(before, reverse=True)
    assert 'aria-sort="descending"' in down
    # images have none: empty cells stay last either way
    auc = head(plain, "results").index("AUC %")
    for way in ("up", "down"):
        keys = column(
            dom(page, tmp_path / f"auc-{way}", f"#sort=results:{auc}:{way}"), "results", auc
        )
        assert "" in keys
        assert all(keys[: keys.index("")])
        assert not any(keys[keys.index("") :])


def test_clicking_a_header_sorts(page: Path, tmp_path: Path) -> None:
    clicked = tmp_path / "clicked.html"
    script = "<script>document.querySelectorAll('#results th button')[2].click();</script></body>"
    clicked.write_text(
        page.read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8"
    )
    html = dom(clicked, tmp_path / "profile")
    assert 'aria-sort="ascending"' in html
    assert errors(html) is None


def test_filtering(page: Path, tmp_path: Path) -> None:
    html = dom(page, tmp_path / "profile", "#filter=results:adult%20fedhssl")
    assert set(column(html, "results", 0)) == {"adult"}
    assert set(column(html, "results", 1)) == {"fedhssl"}
    assert re.search(r"<output[^>]*>\d+ of \d+ rows</output>", html)


@pytest.mark.parametrize(("width", "height"), [(1280, 9000), (390, 9000)])
def test_nothing_is_blank(page: Path, tmp_path: Path, width: int, height: int) -> None:
    """The page has ink all the way down, and is as wide as the window (tables scroll inside it)."""
    from PIL import Image

    target = tmp_path / "shot.png"
    screenshot(page, tmp_path / "profile", target, width, height)
    pixels = np.asarray(Image.open(target).convert("RGB"), dtype=int)
    assert pixels.shape[1] == width
    inked = (pixels.min(axis=2) < 200).sum(axis=1) > 0
    blank = np.diff(np.flatnonzero(np.concatenate([[True], inked, [True]]))).max()
    assert blank < 400, f"{blank} rows of pixels without anything"


def test_charts_are_not_blank(page: Path, tmp_path: Path) -> None:
    """Each chart alone: several colours, and different from the same page with its drawing taken
    out."""
    from PIL import Image

    html = page.read_text(encoding="utf-8")
    figures = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    assert len(figures) >= 6
    style = re.search(r"<style>.*?</style>", html, re.DOTALL)
    assert style
    one = tmp_path / "charts.html"
    boxes = "".join(f'<div style="height:700px;overflow:hidden">{f}</div>' for f in figures)
    one.write_text(
        f"<!DOCTYPE html><html><head>{style[0]}</head><body>{boxes}</body></html>", encoding="utf-8"
    )
    target = tmp_path / "charts.png"
    screenshot(one, tmp_path / "profile", target, 1000, 700 * len(figures))
    pixels = np.asarray(Image.open(target).convert("RGB"), dtype=int)
    for number in range(len(figures)):
        part = pixels[700 * number : 700 * (number + 1)].reshape(-1, 3)
        coloured = (part.max(axis=1) - part.min(axis=1)) > 60  # neither text nor frame
        assert coloured.mean() > 0.0005, (
            f"chart {number} has no coloured mark: {figures[number][-200:]}"
        )
        assert len(np.unique(part[coloured] // 64, axis=0)) > 1 or coloured.sum() > 500


def test_a_chart_without_marks_is_noticed(page: Path, tmp_path: Path) -> None:
    """The measure above can fail: an empty chart has no coloured pixel."""
    from PIL import Image

    from protoevfl.reproduction.pages.pictures import Picture, panels, svg

    figure, _ = panels(1)
    empty = tmp_path / "empty.html"
    empty.write_text(
        f"<!DOCTYPE html><body><figure>{svg(Picture('empty', 'empty', figure))}</figure>",
        encoding="utf-8",
    )
    screenshot(empty, tmp_path / "profile", tmp_path / "empty.png", 1000, 700)
    pixels = np.asarray(Image.open(tmp_path / "empty.png").convert("RGB"), dtype=int).reshape(-1, 3)
    assert ((pixels.max(axis=1) - pixels.min(axis=1)) > 60).mean() < 0.0005
