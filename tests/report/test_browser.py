"""The page for a decision in headless Chromium: no errors, no sideways scrolling on a phone, text
that can be read in light and dark, nothing blank on paper."""

import json
import re
from pathlib import Path

import pytest

from tests.reproduction.pages.chromium import browse, dom, errors, needs_chromium

pytestmark = needs_chromium

# looks at the page from inside a frame of a phone's width, and tells the outer page
LOOK = """<script>
addEventListener("load", () => {
  const colour = (text) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    let below = element.parentElement ? ground(element.parentElement) : [255, 255, 255, 255];
    const [r, g, b, a] = colour(getComputedStyle(element).backgroundColor);
    return [r, g, b].map((v, i) => v * a / 255 + below[i] * (1 - a / 255));
  };
  const worst = {ratio: 99};
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || node.closest("title, desc")) continue;
    const style = getComputedStyle(node);
    const ink = light(colour(node.closest("svg") ? style.fill : style.color));
    const under = light(ground(node.closest("svg") ? node.closest("svg") : node));
    const ratio = (Math.max(ink, under) + 0.05) / (Math.min(ink, under) + 0.05);
    if (ratio < worst.ratio) Object.assign(worst, {ratio, text: node.textContent.slice(0, 60)});
  }
  const root = document.documentElement;
  parent.postMessage({
    worst, scroll: root.scrollWidth, width: innerWidth, height: root.scrollHeight,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
  }, "*");
});
</script>"""
FRAME = """<!DOCTYPE html><html><head><meta name="color-scheme" content="{scheme}"></head><body>
<iframe src="{address}" style="width:{width}px;height:900px;border:0"></iframe>
<script>addEventListener("message", (e) => document.body.append(
  Object.assign(document.createElement("pre"), {{textContent: JSON.stringify(e.data)}})));
</script></body></html>"""


def looked_at(page: Path, folder: Path, width: int, dark: bool = False) -> dict[str, object]:
    """What a page of this width measures of itself."""
    html = page.read_text(encoding="utf-8")
    html = re.sub(r"<meta http-equiv=.*?>", "", html)  # the page itself allows no script
    inner, outer = folder / "inner.html", folder / "outer.html"
    inner.write_text(html.replace("<head>", "<head>" + LOOK, 1), encoding="utf-8")
    scheme = "dark" if dark else "light"
    outer.write_text(
        FRAME.format(scheme=scheme, address=inner.as_uri(), width=width), encoding="utf-8"
    )
    flags = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    shown = browse(folder / "profile", *flags, "--dump-dom", outer.as_uri())
    (found,) = re.findall(r"<pre>(\{.*?\})</pre>", shown)
    measured: dict[str, object] = json.loads(found.replace("&lt;", "<").replace("&amp;", "&"))
    return measured


def test_it_loads_without_an_error(page: Path, tmp_path: Path) -> None:
    copy = tmp_path / "page.html"
    html = page.read_text(encoding="utf-8")
    # the watching script is the only one, and what else the page may not load stays forbidden
    policy = html.replace("img-src data:", "img-src data:; script-src 'unsafe-inline'")
    copy.write_text(policy, encoding="utf-8")
    assert errors(dom(copy, tmp_path / "profile")) is None
    foreign = policy.replace("<main>", '<main><img src="https://example.org/x.png" alt="">')
    copy.write_text(foreign, encoding="utf-8")
    assert errors(dom(copy, tmp_path / "again"))  # so that the check above can fail


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_it_all_without_scrolling_sideways_in_legible_ink(
    page: Path, tmp_path: Path, dark: bool
) -> None:
    found = looked_at(page, tmp_path, 360, dark)
    assert found["width"] == 360
    assert found["scroll"] == 360
    assert found["dark"] is dark
    assert isinstance(found["worst"], dict)
    assert 4.5 <= found["worst"]["ratio"] < 99, found["worst"]


def test_the_measure_sees_pale_ink_and_wide_things(page: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    html = page.read_text(encoding="utf-8")
    wide = '<p style="color:#999;width:500px">pale</p>'
    bad.write_text(html.replace("<main>", f"<main>{wide}", 1), encoding="utf-8")
    found = looked_at(bad, tmp_path, 360)
    assert isinstance(found["worst"], dict)
    assert found["worst"]["text"] == "pale"
    assert found["worst"]["ratio"] < 4.5
    assert isinstance(found["scroll"], int)
    assert found["scroll"] > 360


def test_it_prints(page: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.pdf"
    browse(tmp_path / "profile", f"--print-to-pdf={target}", page.as_uri())
    printed = target.read_bytes()
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 3 <= pages <= 9
