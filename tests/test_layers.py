"""Imports go one way, read from the syntax tree; optional packages inside functions only; nothing
unsafe is called.

A new module or folder of the package gets its place in LAYERS: it may import what stands above it,
nothing else.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import protoevfl

ROOT = Path(protoevfl.__file__).parent
LAYERS: list[set[str]] = [
    {"errors"},
    {"core", "messages", "progress", "distributed", "rules"},
    {"codec", "validation"},
    {"rows", "models", "method", "fit", "privacy"},
    {"head", "observer"},
    {"tracking", "federation"},
    {"methods"},
    {"settings"},
    {"artifacts"},
    {"bench", "pipeline"},
    {"audit", "deploy", "estimator"},
    {"report", "serve"},
    {"reproduction"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
OPTIONAL = {
    "ot",
    "private_set_intersection",
    "dp_accounting",
    "nvflare",
    "cryptography",
    "psutil",
    "polars",
    "mlflow",
    "tensorboard",
    "pydantic",
    "pandas",
    "IPython",
    "jinja2",
    "gmpy2",
    "fastapi",
    "uvicorn",
    "starlette",
}
FILES = sorted(ROOT.rglob("*.py"))
EVERY = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(module, whether inside a function) of every import that happens when the program runs."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the layer"
            within = node.module == "protoevfl"
            yield from (
                (f"{node.module}.{a.name}" if within else str(node.module), inside)
                for a in node.names
            )
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def own(path: Path) -> set[str]:
    """Parts of this package that a file imports."""
    found = {
        m.split(".")[1]
        for m, _ in imports(ast.parse(path.read_text()))
        if m.startswith("protoevfl.")
    }
    return found - {"__version__"}


@EVERY
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        assert not own(path)
        return
    assert part in RANK, f"say in LAYERS where {part} belongs"
    wrong = {name for name in own(path) - {part} if RANK.get(name, 99) >= RANK[part]}
    assert not wrong, f"{part} must not import {sorted(wrong)}"


@EVERY
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    for module, inside in imports(ast.parse(path.read_text())):
        name = module.split(".")[0]
        # the questions of the service are models of pydantic; only its own process imports them
        of_service = name == "pydantic" and part_of(path) == "serve"
        assert inside or of_service or name not in OPTIONAL, (
            f"import {name} inside the function that uses it"
        )
        if name == "nvflare":
            assert path.relative_to(ROOT).as_posix() in (
                "federation/engines/nvflare.py",
                "federation/engines/nvflare_launch.py",
                "federation/engines/nvflare_line.py",
                "federation/engines/nvflare_place.py",
            )


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) == "privacy"], ids=str)
def test_privacy_sees_no_party_and_no_data(path: Path) -> None:
    assert own(path) <= {"core", "messages", "errors", "rules", "validation", "privacy"}


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) == "core"], ids=str)
def test_core_stands_on_torch_alone(path: Path) -> None:
    outside = {m.split(".")[0] for m, inside in imports(ast.parse(path.read_text())) if not inside}
    assert not outside & {"numpy", "scipy", "sklearn", "pyarrow", "safetensors"}


UNSAFE = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "torch.save",
    "yaml.load",
    "yaml.unsafe_load",
}


@EVERY
def test_nothing_that_runs_foreign_code(path: Path) -> None:
    tree = ast.parse(path.read_text())
    modules = {module.split(".")[0] for module, _ in imports(tree)}
    assert not modules & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not called & UNSAFE


def test_the_checks_can_fail() -> None:
    tree = ast.parse(
        "import ot\nif TYPE_CHECKING:\n    import a\ndef f():\n    from protoevfl import fit\n    "
        "import b.c"
    )
    assert sorted(imports(tree)) == [("b.c", True), ("ot", False), ("protoevfl.fit", True)]
