"""The documents: the site builds, links lead somewhere, and what any page tells you to type works
or at least exists.

Commands stand in `sh` blocks and are checked on every page: the command and its options, make
targets, scripts, files. Two pages are also typed in from top to bottom, and every `python` block
runs.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protoevfl.cli.main import COMMANDS, load, main
from protoevfl.progress import OUTPUT

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LONGEST = 250  # lines of a page
TYPED_IN = ("quickstart.md", "own-data.md")
EVERY = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
ADDED = """
from protoevfl.bench.run import RunConfig, run
from protoevfl.methods import METHODS
from protoevfl.rows import sources

METHODS["random_features"] = "__main__:RandomFeatures"
sources.LOADERS["breast_cancer"] = breast_cancer
cell = RunConfig(dataset="breast_cancer", method="random_features", aligned=60, overrides={"head.epochs": 2})
(record,) = run(cell, [0], device="cpu")
assert record["metrics"]["accuracy"] > 0.6, record["metrics"]
"""
AFTERWARDS = {"extending.md": ADDED}  # tries what the page has defined


def blocks(page: Path, language: str) -> Iterator[str]:
    """The fenced blocks of a page in one language, also those within lists."""
    fence = rf"^( *)```{language}\n(.*?)^\1```"
    for _, text in re.findall(fence, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        yield textwrap.dedent(text)


def commands(page: Path) -> list[list[str]]:
    """The words of every command of the `sh` blocks, comments left out; a backslash at its end goes
    on with the next line."""
    texts = [block.replace("\\\n", " ") for block in blocks(page, "sh")]
    lines = [line for text in texts for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def parse(words: list[str]) -> None:
    """Reads the arguments of a `protoevfl` command as it would itself, without running it."""
    command = load(words[0])
    rest = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    values, left_over, _ = command.make_parser(command.context_class(command)).parse_args(
        list(rest)
    )
    assert not left_over, left_over
    missing = [
        option.name
        for option in command.params
        if option.required and values.get(option.name) is None
    ]
    assert not missing, missing


def check(words: list[str]) -> None:
    """Refuses a line of a shell whose program, script, target, file or option does not exist."""
    try:
        find_all(words)
    except Exception as error:
        raise AssertionError(f"{shlex.join(words)}: {error!r}") from error


def find_all(words: list[str]) -> None:
    """Looks for everything a line names."""
    match words:
        case ["protoevfl", *rest]:
            parse(rest)
        case ["torchrun", *rest]:
            parse(rest[rest.index("protoevfl") + 1 :])
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["python", script, *rest]:
            text = (ROOT / script).read_text()
            assert [
                word for word in rest if word.startswith("--") and f'"{word}"' not in text
            ] == []
        case ["pytest", *rest]:
            assert [
                word for word in rest if word.startswith("tests") and not (ROOT / word).exists()
            ] == []
        case _:
            assert words == ["source", ".venv/bin/activate"]


@EVERY
def test_every_line_of_a_shell_exists(page: Path) -> None:
    for words in commands(page):
        check(words)


NONSENSE = [
    "protoevfl trian x",
    "protoevfl bench --sead 0",
    "protoevfl train",
    "protoevfl deploy begin",
    "make tea",
    "python benchmarks/nothing.py",
    "python benchmarks/run.py --onyl naive",
    "pytest tests/nothing",
    "rm -r x",
]


@pytest.mark.parametrize("line", NONSENSE)
def test_the_check_can_fail(line: str) -> None:
    with pytest.raises(AssertionError):
        check(line.split())


@EVERY
def test_commands_within_the_text_and_their_options_exist(page: Path) -> None:
    for line in re.findall(r"`protoevfl ([a-z][^`]*)`", page.read_text(encoding="utf-8")):
        name, *words = line.split()
        command = load(name)
        if words and hasattr(command, "commands"):
            command = (
                command.commands[words[0]] if words[0].isalpha() and words[0].islower() else command
            )
        known = {flag for option in command.params for flag in option.opts} | {"--help"}
        assert {word.strip("[]") for word in words if word.startswith(("--", "[--"))} <= known, line


@EVERY
def test_named_files_and_modules_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = (ROOT, SOURCE / "protoevfl")
    files = re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", text)
    assert [
        f for f in files if "random_features" not in f and not any((p / f).exists() for p in places)
    ] == []
    for name in re.findall(r"\bprotoevfl(?:\.[a-z_]\w*)+", text):
        parts = name.split(".")
        if parts[-1] == "toml" or "random_features" in parts:
            continue
        assert any((SOURCE / parts[0] / (parts[1] + end)).exists() for end in ("", ".py")), name


@EVERY
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST


@EVERY
def test_settings_shown_can_be_read(page: Path) -> None:
    for text in blocks(page, "toml"):
        tomllib.loads(text)
    for text in blocks(page, "json"):
        json.loads(text)


@pytest.mark.parametrize("name", TYPED_IN)
def test_a_page_typed_in_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(OUTPUT, "quiet", False)
    typed = [words[1:] for words in commands(DOCS / name) if words[0] == "protoevfl"]
    assert len(typed) > 5
    for arguments in typed:
        if arguments[:2] == ["init", "--example"]:
            arguments = [*arguments, "--rows", "900"]
        assert main(arguments) == 0, f"protoevfl {shlex.join(arguments)}"
    assert (tmp_path / "shop" / "run" / "run.json").is_file()


def test_every_own_data_command_is_documented() -> None:
    shown = {
        words[1] for name in TYPED_IN for words in commands(DOCS / name) if words[0] == "protoevfl"
    }
    assert shown >= {name for name, (module, _) in COMMANDS.items() if module == "own_data"}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if list(blocks(p, "python"))], ids=lambda page: page.name
)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    code = "\n".join([*blocks(page, "python"), AFTERWARDS.get(page.name, "")])
    ast.parse(code)
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert page.name != "api.md" or "['bad' 'good']" in done.stdout


def test_the_notebook_runs_and_holds_no_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells one after the other in one namespace, as a kernel would run them."""
    pytest.importorskip("pandas")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["figures"]["gain"]["difference"] > 0
    assert "Joining" in names["model"]._repr_html_()


def test_the_shortest_configuration_is_one(tmp_path: Path) -> None:
    from protoevfl.settings.config import load

    (text,) = blocks(DOCS / "own-data.md", "toml")
    (tmp_path / "protoevfl.toml").write_text(text)
    for name in ("bank.parquet", "insurer.csv"):
        (tmp_path / name).write_text("x")
    assert [p.name for p in load(tmp_path / "protoevfl.toml").parties] == ["bank", "insurer"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
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
                there = f'id="{anchor}"' in pages.get(file, file.read_text())
                assert there, f"{page.relative_to(site)}: {link}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in ("index.html", "notes/tables.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="https?:', text)
        assert not re.findall(
            r'<link[^>]+href="https?:[^>]+(?:stylesheet|preload|preconnect)', text
        )


def test_the_search_knows_every_page(site: Path) -> None:
    """The index is there as a script as well: pages opened from a folder cannot read the JSON."""
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert page.relative_to(DOCS).with_suffix(".html").as_posix() in index


def test_items_of_a_list_do_not_run_into_the_text_before_them(site: Path) -> None:
    """Without an empty line in front, an item after an indented paragraph becomes part of it."""
    for page in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.DOTALL):
            swallowed = re.search(r"\n(?:[2-9]\.|-) .{0,60}", paragraph)
            assert not swallowed, f"{page.relative_to(site)}: {swallowed}"
