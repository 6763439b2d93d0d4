"""The reference pages of settings: up to date, with every key and every setting, none over 250
lines."""

from pathlib import Path

import pytest

from protoevfl.methods import METHODS
from protoevfl.report.settings_page import FILES, OURS, pages
from protoevfl.rules import annotations
from protoevfl.settings.method_choice import method_facts
from protoevfl.settings.presets import build

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_those_that_the_code_makes(name: str) -> None:
    """If not: python -m protoevfl.report.settings_page docs/reference"""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name]
    assert PAGES[name].count("\n") <= 250


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_file_is_there(name: str) -> None:
    part = PAGES["settings.md"].split(f"\n## {name}\n")[1].split("\n## ")[0]
    for key in annotations(FILES[name][0]).keys() - {"path"}:
        assert f"| `{key}" in part


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_a_method_is_found_by_following_the_links(method: str) -> None:
    page = PAGES["method-settings.md" if method == OURS else "baseline-settings.md"]
    sections = {part.split("\n")[0].lower(): part for part in page.split("\n## ")}

    def names(title: str) -> set[str]:
        found: set[str] = set()
        for line in sections[title].splitlines():
            link = line.partition("(#")[2].partition(")")[0]
            name = line.split("`")[1] if line.startswith("| `") else ""
            if link:
                found |= {name.removesuffix("*") + inner for inner in names(link)}
            elif name:
                found.add(name)
        return found

    assert names(method) == set(method_facts(build(method))["settings"])


def test_meanings_are_the_comments_beside_the_fields() -> None:
    assert (
        "| `minimum` | a whole number from 1 to 2147483647 | `50` | refuse to go on with"
        in PAGES["settings.md"]
    )
    assert (
        "| `temperature` | a number or none | `0.2` | of the plans;" in PAGES["method-settings.md"]
    )
