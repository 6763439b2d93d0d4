"""No code-executing reader anywhere in the package: pickle, torch.load, yaml.load, eval and their
relatives."""

import ast
from pathlib import Path

import pytest

import protoevfl

ROOT = Path(protoevfl.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
NAMES = {"eval", "exec", "compile", "__import__"}
CALLS = {"torch.load", "yaml.load", "numpy.load", "np.load", "pandas.read_pickle", "pd.read_pickle"}


def offences(source: str) -> list[str]:
    """Every forbidden import and call in a piece of source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            safe = any(
                k.arg == "allow_pickle" and ast.unparse(k.value) == "False" for k in node.keywords
            )
            if name in NAMES or (
                name in CALLS and not (safe and name.endswith(("np.load", "numpy.load")))
            ):
                found.append(name)
            if any(
                k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords
            ):
                found.append(f"{name}(allow_pickle=...)")
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_code_executing_reader(path: Path) -> None:
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "torch.load(f)", "yaml.load(f)", "eval(x)", "import yaml",
     "np.load(f)", "np.load(f, allow_pickle=True)", "from joblib import load"],
)  # fmt: skip
def test_the_check_itself_can_fail(source: str) -> None:
    assert offences(source)


def test_harmless_source_passes() -> None:
    assert (
        offences(
            "import re\nre.compile('x')\nnet.eval()\nnp.load(f, allow_pickle=False)\njson.loads(s)"
        )
        == []
    )
