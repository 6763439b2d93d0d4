"""The package imports fast and without torch, its help too; a wheel builds, installs and holds its
data files."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import protoevfl

ROOT = Path(protoevfl.__file__).resolve().parents[2]
CHECKOUT = (ROOT / "pyproject.toml").is_file()
HEAVY = ("torch", "numpy", "sklearn", "scipy", "pyarrow", "matplotlib", "nvflare")


def python(code: str, *path: str) -> str:
    """What a fresh interpreter prints; `path` goes in front of its modules."""
    setup = f"import sys; sys.path[:0] = {list(path)!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=60
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_import_is_fast_and_light() -> None:
    code = (
        "import time; a = time.process_time(); import protoevfl; print(time.process_time() - a)\n"
    )
    code += f"assert not [m for m in {HEAVY} if m in sys.modules]"
    assert min(float(python(code)) for _ in range(2)) < 0.3


HELP = f"""
from protoevfl.cli.main import main
sys.argv = ["protoevfl", *ARGUMENTS]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
assert not [m for m in {HEAVY} if m in sys.modules], sorted(sys.modules)
"""


@pytest.mark.skipif(not (ROOT / "src/protoevfl/cli/main.py").exists(), reason="no command line yet")
@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["demo", "--help"]])
def test_help_imports_no_torch(arguments: list[str]) -> None:
    out = python(HELP.replace("ARGUMENTS", repr(arguments)))
    assert "Usage" in out or "usage" in out


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without network: with the build backend that is installed."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    files = subprocess.run(
        [
            "git",
            "ls-files",
            "-co",
            "--exclude-standard",
            "--",
            "src",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if files.returncode:
        pytest.skip("not a git checkout")
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    (copy / "README.md").touch()
    code = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=120
    )
    assert not done.returncode, done.stderr[-2000:]
    return next(folder.glob("protoevfl-*.whl"))


@pytest.mark.skipif(not CHECKOUT, reason="needs the checkout")
def test_the_wheel_holds_every_source_and_data_file(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    kept = {".py", ".json", ".toml", ".csv", ".html", ".css", ".js", ".typed"}
    wanted = {
        p.relative_to(source).as_posix()
        for p in (source / "protoevfl").rglob("*")
        if p.suffix in kept
    }
    wanted |= {"protoevfl/py.typed"}
    assert not {name for name in wanted - held if "__pycache__" not in name}
    assert not [name for name in held if name.startswith("tests")]


@pytest.mark.skipif(not CHECKOUT, reason="needs the checkout")
def test_the_wheel_installs_and_imports(wheel: Path, tmp_path: Path) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*install, "--target", str(tmp_path), str(wheel)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "No module named pip" in done.stderr:
        pytest.skip("no pip here")
    assert not done.returncode, done.stderr
    code = "import protoevfl; print(protoevfl.__file__, protoevfl.__version__); assert 'torch' not in sys.modules"
    where, version = python(code, str(tmp_path)).split()
    assert Path(where).is_relative_to(tmp_path)
    assert version == protoevfl.__version__
    names = "from protoevfl.settings.presets import presets; print(sorted(presets('vanilla')))"
    assert "default" in python(names, str(tmp_path))
