"""The README promises nothing that does not exist: its files, commands and options are there."""

import re
from pathlib import Path

import pytest

from protoevfl.cli import main as cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(set(re.findall(r"`protoevfl ([a-z][^`]*)`", README)))


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_exist(line: str) -> None:
    name, *words = line.split()
    command = cli.load(name)
    known = {flag for option in command.params for flag in option.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_table_is_the_demo_s() -> None:
    from protoevfl.cli import demo as cli_demo

    for text in (*cli_demo.METHODS.values(), *cli_demo.TITLES, f"digit {cli_demo.UNSEEN} in no label"):
        assert text in README
