"""`protoevfl audit`: attack a simulated run and write what can be inferred from what crossed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from protoevfl.cli.option_values import settings_for, whole_numbers
from protoevfl.errors import UserError
from protoevfl.observer import Observer, Terminal
from protoevfl.progress import OUTPUT, Bars, note
from protoevfl.validation import checked

if TYPE_CHECKING:
    from protoevfl.bench.world import RunConfig
CANARIES = 2  # shufflings of the labels of one run


def audit(
    source: Annotated[
        str | None,
        Argument(
            help="protoevfl.toml, a run directory, a records file (its last run) or a JSON file of "
            "settings; default: the options."
        ),
    ] = None,
    party: Annotated[
        str,
        Option(help="Only what this company gives away of its columns; needs no other's file."),
    ] = "",
    config_file: Annotated[
        Path | None,
        Option("--config", help="Of a run directory; default: protoevfl.toml beside it."),
    ] = None,
    file: Annotated[
        Path | None, Option(help="The company's file, with --party and a run directory.")
    ] = None,
    dataset: Annotated[
        str, Option(help="fashion_mnist, modelnet10, adult, credit, digits or digits_table.")
    ] = "digits",
    method: Annotated[str, Option(help="The method to attack.")] = "proto_evfl",
    preset: Annotated[str, Option(help="Named settings of the method.")] = "default",
    aligned: Annotated[int, Option(help="Rows that all parties share, labelled.")] = 200,
    parties: Annotated[int, Option(help="2 to 8.")] = 4,
    pool: Annotated[
        int | None, Option(help="Unaligned rows of each party; default: the data set's.")
    ] = None,
    seeds: Annotated[str, Option(help="0-4 or 0,2,7.")] = "0-4",
    known: Annotated[str, Option(help="Labels of each class the attacker knows.")] = "0,1,4,10",
    set_: Annotated[
        list[str] | None, Option("--set", help="privacy.prototype_noise=4 or rounds.count=1.")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[str, Option(help="Folder for audit.md, audit.html and audit.json.")] = "audit",
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Attack a run and write what can be inferred from what crossed.

    The run is repeated as it is, with shuffled labels, undefended and one-way; every attack works
    on what crossed. Own files of all companies must be at hand for that; with --party one company's
    file is enough.
    """
    OUTPUT.json = as_json
    numbers = whole_numbers(seeds, "--seeds")
    ks = whole_numbers(known, "--known")
    path = None if source is None else Path(source)
    own = path is not None and (path.is_dir() or path.suffix == ".toml")
    if party and not own:
        raise UserError("--party goes with a protoevfl.toml or a run directory")
    folder = _folder(out)
    with Bars() as bars:
        observer = Terminal(bars)
        if party:
            assert path is not None
            facts = _half(path, party, config_file, file)
        elif own:
            assert path is not None
            facts = _own(path, config_file, ks or [0], device, observer)
        else:
            given = settings_for([method], set_ or [])[method]
            facts = _simulated(
                path, given, numbers, ks or [0], device, observer,
                dataset=dataset, method=method, preset=preset, aligned=aligned,
                parties=parties, pool=pool,
            )  # fmt: skip
    _write(facts, folder, as_json)


def _half(path: Path, party: str, config_file: Path | None, file: Path | None) -> dict[str, Any]:
    """One company's half: what it gives away of its columns."""
    from protoevfl.pipeline import own_half
    from protoevfl.pipeline.simulate import method_and_privacy
    from protoevfl.settings.config import load, resolve_file

    if path.is_dir():
        from protoevfl.artifacts.run_dir import open_run

        run = open_run(path)
        stored = run.need_party(party)
        if file is None:
            file = load(_config_of(path, config_file), only=party).party(party).file
        levels = own_half.of_run(stored, file)
        active = run.names[0]
        what = f"the rows of {file.name} that are shared in {path}"
        level = next(iter(levels))
    else:
        config = load(path, only=party)
        if party not in [p.name for p in config.parties]:
            names = ", ".join(p.name for p in config.parties)
            raise UserError(f"{path} has no party '{party}'; it has {names}")
        if party == config.label.party:
            raise UserError(
                f"{party} holds the labels: nothing of its columns leaves it; audit {path} without "
                "--party"
            )
        method, privacy = method_and_privacy(config)
        levels = own_half.of_file(resolve_file(config.party(party), None), method, privacy)
        if not levels:
            raise UserError(f"{method.name} has no levels of columns; audit it without --party")
        active = config.label.party
        what = f"rows of {config.party(party).file.name}"
        level = str(getattr(method, "columns", "open"))
    return {"party": party, "active": active, "what": what, "level": level, "levels": levels}


def _own(
    path: Path, config_file: Path | None, known: list[int], device: str, observer: Observer
) -> dict[str, Any]:
    """All attacks on a run of own files."""
    from protoevfl.audit import audit as run_audit
    from protoevfl.audit.own_run import of_config, of_run
    from protoevfl.settings.config import load

    if path.is_dir():
        from protoevfl.artifacts.run_dir import open_run

        opened = open_run(path)
        run = of_run(opened, load(_config_of(path, config_file)), observer, _secret_seed(path))
    else:
        run = of_config(load(path), observer)
    seeds = [run.seed]
    return run_audit(run, seeds, device=device, known=known, canaries=CANARIES, observer=observer)


def _secret_seed(run: Path) -> int | None:
    """Of a run in a kit (KIT/runs/RUN): what it drew its test rows from; None for other runs."""
    from protoevfl.deploy import secret

    folder = run.resolve()
    kit = folder.parent.parent
    return secret.run_seed(kit, folder.name) if (kit / secret.FILE).is_file() else None


def _config_of(run: Path, given: Path | None) -> Path:
    """The configuration a run directory was trained with."""
    beside = run.resolve().parent / "protoevfl.toml"
    if given is None and not beside.is_file():
        raise UserError(
            f"the files of {run} are named in its configuration, and there is no {beside.name} "
            "beside it; give --config"
        )
    return given or beside


def _simulated(
    path: Path | None,
    given: dict[str, Any],
    seeds: list[int],
    known: list[int],
    device: str,
    observer: Observer,
    **cell: Any,
) -> dict[str, Any]:
    """All attacks on a built-in data set."""
    from protoevfl.audit import audit as run_audit
    from protoevfl.bench.world import RunConfig

    config = RunConfig(**cell, overrides=given) if path is None else read_config(path, given)
    note(
        f"attacking {config.method} ({config.preset}) on {config.dataset}, {config.aligned} "
        "aligned rows"
    )
    return run_audit(config, seeds, device=device, known=known, observer=observer)


def _write(facts: dict[str, Any], folder: Path, as_json: bool) -> None:
    from protoevfl.privacy.report import markdown, page

    plain = json.loads(json.dumps(facts, default=str))
    (folder / "audit.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
    (folder / "audit.md").write_text(markdown(plain), encoding="utf-8")
    (folder / "audit.html").write_text(page(plain), encoding="utf-8")
    print(json.dumps(plain) if as_json else short(markdown(plain)))
    note(f"the full report: {folder / 'audit.html'}")


def short(text: str) -> str:
    """The first section of the Markdown report."""
    return "## ".join(text.split("## ")[:2]).rstrip()


def _folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return folder


def read_config(path: Path, given: dict[str, Any]) -> "RunConfig":
    """The configuration of a record (the last line of a JSON-lines file) or of a JSON object of
    RunConfig fields."""
    from dataclasses import fields, replace

    from protoevfl.bench.world import RunConfig

    try:
        text = path.read_text(encoding="utf-8").strip()
        facts = json.loads(text.splitlines()[-1] if path.suffix == ".jsonl" else text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, IndexError):
        raise UserError(
            f"{path} is no protoevfl.toml, no run directory, no records file (.jsonl) and no JSON "
            "file of settings"
        ) from None
    names = {f.name for f in fields(RunConfig)}
    if not isinstance(facts, dict) or not set(facts) & names:
        raise UserError(
            f"{path} holds no run configuration; its fields are {', '.join(sorted(names))}"
        )
    is_record = "metrics" in facts  # with many more fields
    known = {n: v for n, v in facts.items() if n in names} if is_record else facts
    config = checked(RunConfig, known, str(path))
    return replace(config, overrides={**config.overrides, **given})
