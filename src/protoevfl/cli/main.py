"""The command `protoevfl`: a table of sub-commands, each imported when it is called.

`protoevfl --help` imports neither torch nor any sub-command: the table holds their one-line
descriptions. Exit codes: 0 done, 2 bad input (one clear line on stderr), 130 stopped by Ctrl-C
(what was kept is said by the command), 1 anything else.
"""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from protoevfl.errors import UserError
from protoevfl.progress import OUTPUT, is_secondary_rank

LEVELS = ("debug", "info", "warning", "error")
QUIET = "No bars, no comments; results and errors only."
LOG_FILE = "Append a log to this file."
LOG_LEVEL = f"What is logged: {', '.join(LEVELS)}."


# command: its module in cli/, what it does
COMMANDS = {
    "demo": (
        "demo",
        "Four parties, one class nobody labelled: three methods compared in about a minute.",
    ),
    "bench": ("bench", "Run methods on a data set for several seeds; one JSON line per run."),
    "tune": ("tune", "Search a method's settings on a validation part of the aligned rows."),
    "data": ("data", "The data sets: which there are, where they lie, render ModelNet-10."),
    "init": ("own_data", "Write a commented protoevfl.toml for your own files."),
    "check": ("own_data", "Read a configuration and its files and say what is wrong with them."),
    "align": ("own_data", "Find the rows the parties share by private set intersection."),
    "train": ("own_data", "Train on your own files in this process."),
    "evaluate": ("own_data", "Measure a trained run on labelled rows."),
    "predict": ("own_data", "Predict for new rows, with any party missing."),
    "inspect": ("own_data", "Show what a run directory holds."),
    "value": ("own_data", "What each party is worth: exact Shapley values."),
    "report": ("own_data", "Does joining pay? One HTML page about a run, or about records."),
    "reproduce": ("reproduce", "Rebuild the paper's tables and figures, ours beside theirs."),
    "audit": ("audit", "Attack a run and write what can be inferred from what crossed."),
    "deploy": ("deploy", "Run between companies on NVFlare: kits, start, submit, resume."),
}


class _Commands(TyperGroup):
    """Lists commands from the table; imports one when it is to run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with the description, enough for the list of commands."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest


def load(name: str) -> Any:
    """The real command: `app` of its module (or the command of that name in it), or the function of
    that name."""
    module = importlib.import_module(f"protoevfl.cli.{COMMANDS[name][0]}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name)(getattr(module, name))
    command = typer.main.get_command(app)
    command = getattr(command, "commands", {}).get(name, command)
    return _with_common_options(command)


def _with_common_options(command: Any) -> Any:
    """Adds --quiet, --log-file and --log-level to a command, or to every command of a group, that
    has not its own."""
    for part in getattr(command, "commands", {}).values():
        _with_common_options(part)
    if not hasattr(command, "commands"):
        own_flags = {flag for option in command.params for flag in option.opts}
        command.params += [
            option for option in _common_options() if not own_flags & set(option.opts)
        ]
    return command


def _common_options() -> list[Any]:
    """Fresh options that act by themselves and hand nothing to the command's function."""

    def hold(
        quiet: Annotated[
            bool, Option("--quiet", "-q", help=QUIET, callback=_set_quiet, expose_value=False)
        ] = False,
        log_file: Annotated[
            str | None,
            Option("--log-file", help=LOG_FILE, callback=_set_log_file, expose_value=False),
        ] = None,
        log_level: Annotated[
            str | None,
            Option("--log-level", help=LOG_LEVEL, callback=_set_log_level, expose_value=False),
        ] = None,
    ) -> None: ...

    holder = typer.Typer(add_completion=False)
    holder.command()(hold)
    return list(typer.main.get_command(holder).params)


def _set_quiet(value: bool) -> None:
    """Says no more than results and errors; given once, anywhere, it holds."""
    OUTPUT.quiet = OUTPUT.quiet or bool(value)


def _set_log_level(value: str | None) -> None:
    """The level of the log; on stderr as long as there is no log file."""
    if value is None:
        return
    if value.lower() not in LEVELS:
        raise UserError(f"unknown log level '{value}'; there are {', '.join(LEVELS)}")
    log = logging.getLogger("protoevfl")
    log.setLevel(value.upper())
    if all(isinstance(handler, logging.NullHandler) for handler in log.handlers):
        log.addHandler(_formatted(logging.StreamHandler()))


def _set_log_file(value: str | None) -> None:
    """Sends the log of the package to a file, instead of stderr."""
    if value is None or is_secondary_rank():
        return
    log = logging.getLogger("protoevfl")
    try:
        handler = logging.FileHandler(Path(value), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the log file {value}: {error.strerror}") from None
    log.handlers[:] = [_formatted(handler)]
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def _formatted(handler: logging.Handler) -> logging.Handler:
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


app = typer.Typer(cls=_Commands, pretty_exceptions_enable=False, add_completion=False)


def _version(value: bool) -> None:
    if value:
        import protoevfl

        print(protoevfl.__version__)
        raise typer.Exit


@app.callback()
def root(
    quiet: Annotated[bool, Option("--quiet", "-q", help=QUIET)] = False,
    log_file: Annotated[str | None, Option(help=LOG_FILE)] = None,
    log_level: Annotated[str | None, Option(help=LOG_LEVEL)] = None,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Vertical federated learning when few rows are shared."""
    _set_quiet(quiet)
    _set_log_level(log_level)
    _set_log_file(log_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    OUTPUT.quiet, OUTPUT.json = is_secondary_rank(), False
    log = logging.getLogger("protoevfl")
    log.propagate, log.handlers[:] = False, [logging.NullHandler()]
    log.setLevel(logging.NOTSET)
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        with _muted() if is_secondary_rank() else contextlib.nullcontext():
            result = app(args=given or ["--help"], prog_name="protoevfl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except UserError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone
        return 1
    except OSError as error:  # a full disk, no permission: nothing a traceback would help with
        log.debug("the system refused", exc_info=True)
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except MemoryError:
        log.debug("no memory", exc_info=True)
        return _fail("there is not enough memory; use fewer rows (`pool`) or a larger machine")
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error: unknown option, missing argument
            message = error.format_message()
            # without a message: the help was printed
            return _fail(f"{message}{_hint(error)}") if message else 2
        log.exception("internal error")
        raise


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _hint(error: Any) -> str:
    where = getattr(getattr(error, "ctx", None), "command_path", None)
    return f" (see {where} --help)" if where else ""


def _fail(message: str) -> int:
    line = " ".join(message.split())
    logging.getLogger("protoevfl").error(line)
    print(f"error: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
