"""The command itself: fast and lazy, one clear line for bad input, exit codes, log."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer

from protoevfl.cli import main as cli
from protoevfl.errors import UserError
from protoevfl.progress import OUTPUT

FORBIDDEN = (
    "torch",
    "numpy",
    "sklearn",
    "pyarrow",
    "nvflare",
    "protoevfl.bench.run",
    "protoevfl.cli.bench",
)


def test_help_imports_no_torch_and_no_command() -> None:
    code = (
        "import sys; from protoevfl.cli.main import main; code = main(['--help']); "
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules], code, len(sys.modules) < "
        "600)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    # about 320 modules; seconds would depend on the machine
    assert found.stdout.splitlines()[-1] == "[] 0 True"


@pytest.mark.parametrize("command", ["bench", "demo", "data list"])
def test_help_of_a_command_imports_no_torch(command: str) -> None:
    call = f"from protoevfl.cli.main import main; main('{command} --help'.split())"
    code = f"import sys; {call}; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.splitlines()[-1] == "False"
    assert "--quiet" in found.stdout
    assert "--log-file" in found.stdout


def test_the_package_imports_without_torch_and_quickly() -> None:
    """Seconds of the processor, so that a busy machine does not matter; 0.02 of them."""
    code = "import sys, time; t = time.process_time(); import protoevfl; print(time.process_time() - t < 0.3)"
    code += "; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split() == ["True", "False"]


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fly"]) == 2
    assert "No such command 'fly'" in capsys.readouterr().err


def test_every_listed_command_can_be_loaded() -> None:
    for name in cli.COMMANDS:
        command = cli.load(name)
        parts = getattr(command, "commands", {name: command})
        assert parts
        assert all(p.callback is not None for p in parts.values() if not hasattr(p, "commands"))


def _module(monkeypatch: pytest.MonkeyPatch, **content: object) -> None:
    module = types.ModuleType("protoevfl.cli.fake")
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, "protoevfl.cli.fake", module)
    for name in ("one", "two", "group"):
        monkeypatch.setitem(cli.COMMANDS, name, ("fake", "Fake."))


def test_commands_are_functions_commands_of_an_app_or_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(count: int = 1) -> None:
        print("one", count, OUTPUT.quiet)

    def two() -> None:
        print("two", OUTPUT.quiet)

    _module(monkeypatch, one=one)
    assert cli.main(["one", "--count", "3", "--quiet"]) == 0
    app = typer.Typer()
    app.command("one")(one)
    _module(monkeypatch, app=app)  # an app of one command is that command
    assert cli.main(["one"]) == 0
    app.command("two")(two)
    _module(monkeypatch, app=app)
    assert cli.main(["two"]) == 0
    assert cli.main(["group", "two", "-q"]) == 0
    assert capsys.readouterr().out == "one 3 True\none 1 False\ntwo False\ntwo True\n"


def test_a_command_keeps_its_own_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(quiet: bool = False) -> None:
        print(quiet)

    _module(monkeypatch, one=one)
    assert cli.main(["one", "--quiet"]) == 0
    assert capsys.readouterr().out == "True\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("bank.csv has no\ncolumn 'x'"), 2, "error: bank.csv has no column 'x'\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(3), 3, ""),
        (
            OSError(28, "No space left on device", "run/a"),
            2,
            "error: run/a: No space left on device\n",
        ),
        (PermissionError(13, "Permission denied"), 2, "error: Permission denied\n"),
        (
            MemoryError(),
            2,
            "error: there is not enough memory; use fewer rows (`pool`) or a larger machine\n",
        ),
        (typer.Abort(), 130, ""),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def one() -> None:
        raise error

    _module(monkeypatch, one=one)
    assert cli.main(["one"]) == code
    assert capsys.readouterr().err == line


def test_an_unexpected_error_is_shown_in_full_and_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def one() -> None:
        raise RuntimeError("a bug")

    _module(monkeypatch, one=one)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["one", "--log-file", str(tmp_path / "log")])
    assert "Traceback" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "given", [["nope"], ["--nope"], ["bench", "--aligned", "x"], ["bench", "--nope"]]
)
def test_usage_errors_are_one_line(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "Usage" in capsys.readouterr().out
    assert cli.main(["data"]) in (0, 2)
    assert "render-modelnet10" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip().count(".") == 2


def test_log_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--log-level", "loud", "data", "list"]) == 2
    assert "unknown log level 'loud'" in capsys.readouterr().err
    assert cli.main(["data", "list", "--log-file", str(tmp_path / "no" / "log")]) == 2
    assert "cannot write the log file" in capsys.readouterr().err
    log = tmp_path / "log"
    assert (
        cli.main(
            [
                "--log-file",
                str(log),
                "bench",
                "--dataset",
                "nope",
                "--out",
                str(tmp_path / "r.jsonl"),
            ]
        )
        == 2
    )
    assert "unknown data set" in log.read_text()
    assert "unknown data set" in capsys.readouterr().err
