"""A picture: a matplotlib figure with its file name and caption; saved as SVG and PNG, or as SVG
inside a page.

Text stays text in the SVG (it can be searched, and the page's font is used). Inside a page every id
gets the picture's name in front, so that two pictures cannot take each other's clip paths.
"""

import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

COLOURS = {
    "proto_evfl": "#c0392b",
    "proto_evfl one_way": "#e67e22",
    "proto_evfl paper": "#8e6f5a",
    "vanilla": "#2c6fbb",
    "fedhssl": "#2e8b57",
    "ss_vfl_c": "#7d4fb0",
    "ss_vfl_i": "#b08fd8",
    "local": "#777777",
    "laser": "#00a0a0",
    "one_shot": "#c2a200",
    "fedcvt": "#d16ba5",
    "upper_bound": "#222222",
    "vertical_logistic": "#5b8c00",
    "pooled_boosting": "#a0522d",
}
MARKERS = "osD^vPX*<>hp"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "protoevfl",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
FASHION = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
NAMES = {
    "fashion_mnist": FASHION,
    "modelnet10": (
        "bathtub",
        "bed",
        "chair",
        "desk",
        "dresser",
        "monitor",
        "night stand",
        "sofa",
        "table",
        "toilet",
    ),
    "adult": ("<=50K", ">50K"),
    "credit": ("pays", "defaults"),
}


@dataclass(frozen=True)
class Picture:
    slug: str
    caption: str
    figure: Figure

    @cached_property
    def raw(self) -> str:
        """The figure as an SVG file; the layout is solved once."""
        if self.figure.get_layout_engine() is not None:
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
        out = io.StringIO()
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": self.slug}):
            self.figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()


def colour(method: str, position: int = 0) -> str:
    return COLOURS.get(method, f"C{position % 10}")


def marker(position: int) -> str:
    return MARKERS[position % len(MARKERS)]


def class_names(dataset: str, classes: int) -> list[str]:
    """Numbers with the names of the data set, where they are known."""
    known = NAMES.get(dataset, ())
    return [f"{z} {known[z]}" if len(known) == classes else str(z) for z in range(classes)]


def panels(
    count: int, width: float = 4.4, height: float = 3.4, across: int = 2
) -> tuple[Figure, list[Any]]:
    """A figure with `count` axes, two in a row; wide enough to read on a phone."""
    columns = min(across, max(count, 1))
    rows = -(-max(count, 1) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[max(count, 1) :]:
        spare.set_visible(False)
    return figure, axes[: max(count, 1)]


def svg(picture: Picture) -> str:
    """The figure as an <svg> element for a page, with a title for screen readers."""
    text = picture.raw
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{picture.slug}-", text)
    opening, _, rest = text.partition(">")
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)  # the viewBox stays: the page decides
    caption = picture.caption.replace("&", "&amp;").replace("<", "&lt;")
    return f'{opening} role="img"><title>{caption}</title>{rest}'


def save(picture: Picture, folder: Path, png: bool = True) -> list[Path]:
    """slug.svg and slug.png in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{picture.slug}.{kind}" for kind in ("svg", "png")]
    paths[0].write_text(picture.raw, encoding="utf-8")
    if not png:
        return paths[:1]
    with matplotlib.rc_context(STYLE):
        picture.figure.savefig(paths[1], format="png", dpi=110)
    return paths
