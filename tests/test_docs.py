"""The documentation: it builds, its links lead somewhere, and what it tells you to type works."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protoevfl.cli.main import COMMANDS, main
from protoevfl.progress import OUTPUT

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = ("quickstart.md", "own-data.md")


def blocks(page: str, language: str) -> Iterator[str]:
    """The fenced blocks of a page in one language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    yield from re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("protoevfl ")]


@pytest.mark.parametrize("page", RUN)
def test_every_command_works(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(OUTPUT, "quiet", False)
    typed = commands(page)
    assert len(typed) > 5
    for arguments in typed:
        if arguments[:2] == ["init", "--example"]:
            arguments = [*arguments, "--rows", "900"]
        assert main(arguments) == 0, f"protoevfl {shlex.join(arguments)}"
    assert (tmp_path / "shop" / "run" / "run.json").is_file()


def test_every_own_data_command_is_documented() -> None:
    told = {arguments[0] for page in RUN for arguments in commands(page)}
    assert told >= {name for name, entry in COMMANDS.items() if entry.module == "own_data"}


def test_the_python_examples_run(tmp_path: Path) -> None:
    code = "\n".join(blocks("api.md", "python"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "['bad' 'good']" in done.stdout


def test_the_shortest_configuration_is_one(tmp_path: Path) -> None:
    from protoevfl.settings.config import load

    (text,) = blocks("own-data.md", "toml")
    (tmp_path / "protoevfl.toml").write_text(text)
    for name in ("bank.parquet", "insurer.csv"):
        (tmp_path / name).write_text("x")
    assert [p.name for p in load(tmp_path / "protoevfl.toml").parties] == ["bank", "insurer"]


def test_commands_named_on_any_page_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"(?:`|^ *)protoevfl ([a-z]+)\b", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert name in COMMANDS, f"{page.name}: protoevfl {name}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)], cwd=ROOT, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {p: p.read_text(encoding="utf-8") for p in site.rglob("*.html") if p.name != "404.html"}
    assert len(pages) > 10
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                assert not link.startswith("http://")
                continue
            file = (page.parent / target).resolve() if target else page
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), f"{page.relative_to(site)}: {link}"
            if anchor and file.suffix == ".html" and anchor != "__skip":
                assert f'id="{anchor}"' in pages.get(file, file.read_text()), f"{page.relative_to(site)}: {link}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', text)
