"""Pictures: well-formed files, ids that cannot meet, class names where they are known."""

import re
from pathlib import Path
from xml.etree import ElementTree

from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store
from protoevfl.reproduction.pages import figures
from protoevfl.reproduction.pages.pictures import Picture, class_names, panels, save, svg
from tests.reproduction import fake


def test_figures_are_well_formed_and_repeatable(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["gradient_norm"]
    store = Store(fake.records(experiment.cells))
    first, second = figures.draw(experiment, store), figures.draw(experiment, store)
    assert [p.slug for p in first] == ["gradient-norm-gradients"]
    assert first[0].raw == second[0].raw
    ElementTree.fromstring(first[0].raw)
    inside = svg(first[0])
    assert "T^-0.4" in inside  # the fitted slope is named
    assert [p.suffix for p in save(first[0], tmp_path)] == [".svg", ".png"]


def test_two_pictures_on_a_page_share_no_id_and_captions_are_escaped() -> None:
    one, other = (svg(Picture(slug, "a < b & c", panels(1)[0])) for slug in ("one", "other"))
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "<title>a &lt; b &amp; c</title>" in one


def test_spare_panels_are_hidden() -> None:
    figure, axes = panels(3)
    assert len(axes) == 3
    assert [ax.get_visible() for ax in figure.axes] == [True, True, True, False]


def test_classes_have_names_where_their_number_fits() -> None:
    assert class_names("adult", 2) == ["0 <=50K", "1 >50K"]
    assert class_names("adult", 3) == ["0", "1", "2"]
