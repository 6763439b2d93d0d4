"""How large the code is: lines and public names by folder, and the modules that training on own files goes
through.

    python benchmarks/size.py [--train]

A public name is a function or class at the top of a module without an underscore. `--train` trains on the
made-up example of three companies (`protoevfl init --example shop`, half a minute) and counts the modules
that were imported and those of which a function was entered.
"""

import argparse
import ast
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import protoevfl

ROOT = Path(protoevfl.__file__).parent
DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def folder_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return f"{parts[0]}/" if len(parts) > 1 else "the package's own files"


def public_names(text: str) -> list[str]:
    body = ast.parse(text).body
    return [n.name for n in body if isinstance(n, DEFINES) and not n.name.startswith("_")]


def sizes() -> tuple[Counter[str], Counter[str], Counter[str]]:
    """(files, lines, public names) by folder."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        files[folder_of(path)] += 1
        lines[folder_of(path)] += len(text.splitlines())
        names[folder_of(path)] += len(public_names(text))
    return files, lines, names


def modules_of_training() -> tuple[set[str], set[str]]:
    """(imported, entered) modules of the package when the example is trained."""
    entered: set[str] = set()

    def enter(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    def ours(paths: set[str]) -> set[str]:
        return {path for path in paths if Path(path).is_relative_to(ROOT)}

    with tempfile.TemporaryDirectory() as folder:
        example = [sys.executable, "-m", "protoevfl", "init", "--example", f"{folder}/shop"]
        subprocess.run(example, check=True)
        sys.setprofile(enter)
        threading.setprofile(enter)
        from protoevfl.cli.main import main

        main(["train", f"{folder}/shop/protoevfl.toml"])
        sys.setprofile(None)
    imported = {getattr(module, "__file__", None) or "" for module in sys.modules.values()}
    return ours(imported), ours(entered)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", action="store_true", help="count the modules of a training")
    options = parser.parse_args()
    files, lines, names = sizes()
    print("| folder | files | lines | public names |\n|---|---|---|---|")
    for folder in sorted(lines):
        print(f"| {folder} | {files[folder]} | {lines[folder]:,} | {names[folder]} |")
    print(f"| all | {files.total()} | {lines.total():,} | {names.total():,} |")
    if options.train:
        imported, entered = modules_of_training()
        print(f"\ntraining on own files: {len(imported)} modules imported, {len(entered)} entered")


if __name__ == "__main__":
    main()
