"""`protoevfl audit`: attack a simulated run and write what can be inferred from what crossed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from protoevfl.cli.option_values import settings_for, whole_numbers
from protoevfl.errors import UserError
from protoevfl.progress import OUTPUT, note

if TYPE_CHECKING:
    from protoevfl.bench.run import RunConfig

KINDS = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    tuple: "a list",
    dict: "an object",
}


def audit(
    source: Annotated[
        str | None,
        Argument(
            help="A records file (its last run) or a JSON file of settings; default: the options."
        ),
    ] = None,
    dataset: Annotated[
        str, Option(help="fashion_mnist, modelnet10, adult, credit or digits.")
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

    The configuration is simulated as it is, with shuffled labels, undefended and one-way; every
    attack works on what crossed. For own data the labels must be at hand, so run it where they are.
    """
    OUTPUT.json = as_json
    numbers, ks = whole_numbers(seeds, "--seeds"), whole_numbers(known, "--known")
    folder = _folder(out)

    from protoevfl.bench.run import RunConfig

    given = settings_for([method], set_ or [])[method]
    config = RunConfig(
        dataset=dataset,
        method=method,
        preset=preset,
        aligned=aligned,
        parties=parties,
        pool=pool,
        overrides=given,
    )
    if source is not None:
        config = read_config(Path(source), given)

    from protoevfl.audit import audit as run_audit
    from protoevfl.privacy.report import markdown, page

    note(
        f"attacking {config.method} ({config.preset}) on {config.dataset}, {config.aligned} "
        "aligned rows"
    )
    facts = run_audit(config, numbers, device=device, known=ks or [0])
    plain = json.loads(json.dumps(facts, default=str))
    (folder / "audit.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
    (folder / "audit.md").write_text(markdown(plain), encoding="utf-8")
    (folder / "audit.html").write_text(page(plain), encoding="utf-8")
    print(json.dumps(plain) if as_json else short(markdown(plain)))
    note(f"the full report: {folder / 'audit.html'}")


def short(text: str) -> str:
    """The first section of the Markdown report."""
    return text.split("## What crosses")[0].rstrip()


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
    from dataclasses import fields

    from protoevfl.bench.run import RunConfig

    try:
        text = path.read_text(encoding="utf-8").strip()
        facts = json.loads(text.splitlines()[-1] if path.suffix == ".jsonl" else text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, IndexError):
        raise UserError(
            f"{path} is neither a records file (.jsonl) nor a JSON file of settings"
        ) from None
    names = {f.name for f in fields(RunConfig)}
    if not isinstance(facts, dict) or not set(facts) & names:
        raise UserError(
            f"{path} holds no run configuration; its fields are {', '.join(sorted(names))}"
        )
    # a record has many more fields
    if "metrics" not in facts and (strange := sorted(set(facts) - names)):
        raise UserError(
            f"{path}: unknown field '{strange[0]}'; the fields are {', '.join(sorted(names))}"
        )
    known: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in facts.items() if n in names
    }
    for name, value in known.items():
        kind = type(getattr(RunConfig(pool=0), name))
        if type(value) is not kind and (name, value) != ("pool", None):
            raise UserError(
                f"{path}: '{name}' must be {KINDS[kind]}, not {json.dumps(facts[name])}"
            )
    return RunConfig(**{**known, "overrides": {**known.get("overrides", {}), **given}})
