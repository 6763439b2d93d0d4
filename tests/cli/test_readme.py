"""The README promises nothing that does not exist; its commands are checked in
tests/test_docs.py."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_linked_files_exist() -> None:
    others = [(ROOT / name).read_text() for name in ("CONTRIBUTING.md", "CHANGELOG.md")]
    links = re.findall(r"\]\(([^)#]+)\)", "".join([README, *others]))
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_table_is_the_demo_s() -> None:
    from protoevfl.cli import demo as cli_demo

    for text in (
        *cli_demo.METHODS.values(),
        *cli_demo.TITLES,
        f"digit {cli_demo.UNSEEN} in no label",
    ):
        assert text in README
