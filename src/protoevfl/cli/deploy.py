"""`protoevfl deploy`: kits for every participant, processes, jobs, resume, review and audit."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from protoevfl.cli import serving
from protoevfl.errors import UserError
from protoevfl.progress import Bars, bar, note

app = typer.Typer(add_completion=False, no_args_is_help=True)
KitOption = Annotated[Path, Option("--kit", help="The folder of this participant's kit.")]
KitArgument = Annotated[Path, Argument(help="The folder of this participant's kit.")]


@app.callback()
def deploy() -> None:
    """Run between companies on NVFlare: kits, start, submit, resume."""
    from importlib.util import find_spec

    if find_spec("nvflare") is None:
        raise UserError("deployment needs NVFlare: pip install 'protoevfl[nvflare]'")


@app.command()
def init(
    out: Annotated[Path, Option(help="Where to write the two files.")] = Path(),
) -> None:
    """Write a commented project.toml and job.toml to fill in."""
    from protoevfl.deploy import job_file, provision

    for name, text in (("project.toml", provision.PROJECT), ("job.toml", job_file.TEMPLATE)):
        path = out / name
        if path.exists():
            raise UserError(f"{path} exists; move it away first")
        try:
            path.write_text(text)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        print(path)


@app.command()
def provision(
    project: Annotated[Path, Argument(help="project.toml.")],
    out: Annotated[Path, Option(help="Where the kits go.")] = Path("kits"),
    renew: Annotated[
        list[str] | None, Option(help="Give this participant new keys and certificates.")
    ] = None,
) -> None:
    """Make a signed kit for the hub and for every party."""
    from protoevfl.deploy import provision as work

    facts = work.read_project(project)
    try:
        with bar("keys and certificates"):
            folders = work.provision(facts, out, renew or [])
    except OSError as error:
        raise UserError(f"cannot write {error.filename or out}: {error.strerror}") from None
    for name, folder in folders.items():
        print(f"{name:<12} {folder}")
    note(
        f"Send each kit to its owner by a safe way. {out / 'authority'} can sign new kits: keep it "
        "offline."
    )


@app.command()
def start(
    kit: KitArgument,
    foreground: Annotated[
        bool, Option(help="Stay with the process (systemd, containers).")
    ] = False,
    wait: Annotated[
        float, Option(help="Seconds to wait until it has joined; 0 does not wait.")
    ] = 60.0,
) -> None:
    """Start a hub or a party."""
    from protoevfl.deploy import processes
    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    if foreground:
        raise typer.Exit(processes.run(opened))
    waiting = (
        "until it listens"
        if opened.identity.role == "hub"
        else f"until it has joined {opened.identity.hub}"
    )
    with bar(f"{opened.name} starts, {waiting}"):
        process = processes.start(opened, wait)
    print(f"{opened.name}: {process.detail}")


@app.command()
def stop(kit: KitArgument) -> None:
    """Stop a hub or a party and all its job processes."""
    from protoevfl.deploy import processes
    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    print(f"{opened.name}: {processes.stop(opened)} process(es) stopped")


@app.command()
def move(
    kit: KitArgument,
    party: Annotated[str | None, Argument(help="At the hub: the party that moved.")] = None,
) -> None:
    """Let a kit that was moved on purpose work in its new place: once there, once at the hub."""
    from protoevfl.deploy import place
    from protoevfl.deploy.kit import open_kit

    print(place.move(open_kit(kit), party))


@app.command()
def status(
    kit: KitArgument,
    run: Annotated[str | None, Argument(help="A run of this kit.")] = None,
) -> None:
    """What runs here, until when the certificate is valid, and how far a run is (without RUN: which
    there are)."""
    from protoevfl.deploy import kit as kits
    from protoevfl.deploy import processes, run_state

    opened = kits.open_kit(kit)
    print(
        f"{opened.name}: {processes.status(opened).detail}; certificate valid until "
        f"{kits.expiry(opened).date()}"
    )
    for name in [run] if run is not None else run_state.runs(opened):
        print(run_state.describe(opened, name))


@app.command()
def logs(kit: KitArgument, lines: Annotated[int, Option(help="How many.")] = 50) -> None:
    """The last lines of a kit's log."""
    from protoevfl.deploy import processes
    from protoevfl.deploy.kit import open_kit

    print(processes.logs(open_kit(kit), lines))


@app.command()
def submit(job: Annotated[Path, Argument(help="job.toml.")], kit: KitOption) -> None:
    """Propose a job to all parties and see it through. Ctrl-C leaves it running; `resume` takes it
    up again."""
    from protoevfl.deploy import job_file, supervise
    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    spec = job_file.read_job(job, opened)
    note(spec.review())
    _watched(
        spec.run, opened.run_folder(spec.run), lambda *ways: supervise.submit(opened, spec, *ways)
    )


@app.command()
def resume(run: Annotated[str, Argument(help="The run's name.")], kit: KitOption) -> None:
    """Go on with an interrupted run from the last round that every party has."""
    from protoevfl.deploy import supervise
    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    _watched(run, opened.run_folder(run), lambda *ways: supervise.resume(opened, run, *ways))


@app.command()
def predict(
    run: Annotated[str, Argument(help="The training run to predict with.")],
    kit: KitOption,
    name: Annotated[str | None, Option(help="A name for this prediction.")] = None,
) -> None:
    """Predict the new rows that each party's party.toml names (predict_file), with the model of a
    finished run."""
    from dataclasses import replace

    from protoevfl.deploy import job_file, supervise
    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    base = supervise.read_spec(opened, run)
    prediction = replace(
        base, run=name or f"{run}-predict", task="predict", base=run, rounds=1, down=(), up=()
    )
    spec = job_file.complete(prediction)
    note(spec.review())
    _watched(
        spec.run, opened.run_folder(spec.run), lambda *ways: supervise.submit(opened, spec, *ways)
    )


def _watched(run: str, folder: Path, work: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Sees a run through with a display: a bar on a terminal, a line a change elsewhere."""
    said = ""

    def show(what: str, done: int, total: int) -> None:
        nonlocal said
        line = f"{what} {done}/{total}" if total else what
        if bars.visible:
            bars.show("run", done, total, what)
        elif line != said:
            note(line)
        said = line

    try:
        with Bars() as bars:
            facts = work(bars.note, show)
    except KeyboardInterrupt:
        note(
            f"run {run} goes on; `deploy resume {run}` watches it again, `deploy abort {run}` ends "
            "the attempt"
        )
        raise
    rounds, predicted = facts.get("rounds"), facts.get("predicted")
    print(
        f"run {run}: {facts.get('state')} after {rounds} rounds, {predicted} rows predicted; "
        f"results in {folder}"
    )
    return facts


@app.command()
def abort(run: Annotated[str, Argument(help="The run's name.")], kit: KitOption) -> None:
    """End the attempt that is running; `resume` goes on with the run."""
    from protoevfl.deploy import supervise
    from protoevfl.deploy.kit import open_kit

    supervise.abort(open_kit(kit), run)
    print(f"run {run}: attempt ended; `protoevfl deploy resume {run} --kit {kit}` goes on with it")


@app.command()
def review(
    run: Annotated[str, Argument(help="The run's name.")],
    kit: KitOption,
) -> None:
    """Show what a job proposes, what it would take from this party, and what policy.toml says to
    it."""
    import json

    from protoevfl.deploy import review as words
    from protoevfl.deploy.kit import open_kit
    from protoevfl.deploy.policy import Policy
    from protoevfl.deploy.spec import JobSpec

    opened = open_kit(kit)
    path = opened.run_folder(run) / "spec.json"
    if not path.exists():
        raise UserError(f"{opened.name} has not been asked about a run {run!r} yet")
    spec = JobSpec.from_dict(json.loads(path.read_text()))
    policy = Policy.read(opened.folder / "policy.toml")
    print(words.review(spec, policy, words.ledger_of(opened.folder, policy)))


@app.command()
def ledger(kit: KitArgument) -> None:
    """What of this party's rows has left, in which form and how often, over all runs."""
    from protoevfl.deploy import review as words
    from protoevfl.deploy.kit import open_kit
    from protoevfl.deploy.policy import Policy

    opened = open_kit(kit)
    policy = Policy.read(opened.folder / "policy.toml")
    print("\n".join(words.ledger_of(opened.folder, policy).summary()))


@app.command()
def probe(
    kit: KitOption,
    run: Annotated[str, Option(help="A new name.")] = "probe",
    megabytes: Annotated[float, Option(help="Size of each party's answers.")] = 1.0,
    rounds: Annotated[int, Option(help="How many exchanges.")] = 10,
) -> None:
    """Try a deployment with made-up numbers: do all parties answer, and how fast?"""
    from statistics import median

    from protoevfl.deploy import job_file, supervise
    from protoevfl.deploy.kit import open_kit
    from protoevfl.deploy.spec import JobSpec

    opened = open_kit(kit)
    settings = {"rounds": rounds, "rows": max(1, round(megabytes * 1e6 / 100)), "width": 25}
    spec = job_file.complete(
        JobSpec(run, opened.identity.parties, "probe", settings=settings, rounds=rounds + 1)
    )
    facts = _watched(
        run, opened.run_folder(run), lambda *ways: supervise.submit(opened, spec, *ways)
    )
    took = [float(s) for s in facts["exchange_s"]]
    print(
        f"{len(took)} exchanges of {megabytes:g} MB a party: median {median(took):.2f} s, longest "
        f"{max(took):.2f} s"
    )


for command in (serving.serve, serving.key, serving.recall):
    app.command()(command)


@app.command("audit-log")
def audit_log(
    what: Annotated[str, Argument(help="verify")],
    kit: KitArgument,
    run: Annotated[str, Argument(help="The run's name.")],
) -> None:
    """Check that a run's audit log was not changed, and that no checkpoint knows of lines it
    lost."""
    from protoevfl.deploy.audit_log import verify
    from protoevfl.deploy.checkpoints import CheckpointStore
    from protoevfl.deploy.kit import open_kit

    if what != "verify":
        raise UserError("the audit log can be verified: protoevfl deploy audit-log verify KIT RUN")
    folder = open_kit(kit).run_folder(run)
    latest = CheckpointStore(folder / "checkpoints").latest()
    head = str(latest.header["audit"]) if latest is not None else None
    count, newest = verify(folder / "audit.jsonl", head)
    print(f"{count} lines, unchanged; newest hash {newest}")
