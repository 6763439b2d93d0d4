"""`protoevfl deploy serve`, `key` and `recall`: predictions as a service."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from protoevfl.errors import UserError
from protoevfl.progress import bar, note

KitOption = Annotated[Path, Option("--kit", help="The folder of this participant's kit.")]


def serve(
    run: Annotated[str, Argument(help="The finished training run to serve.")],
    kit: KitOption,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on.")] = 8443,
    certificate: Annotated[Path | None, Option(help="PEM file, for TLS.")] = None,
    key: Annotated[Path | None, Option(help="PEM file of its private key.")] = None,
    deadline_ms: Annotated[
        int, Option(help="For the other parties' answers; who is late is left out.")
    ] = 1000,
    cache_s: Annotated[
        float, Option(help="Use a party's answer again for so long, if its policy allows it.")
    ] = 0.0,
    over_limit: Annotated[
        str, Option(help="refuse, or degrade: go on without a party whose day is used up.")
    ] = "refuse",
    switch: Annotated[
        bool, Option("--switch", help="Let the running service go over to this run.")
    ] = False,
) -> None:
    """Active party: answer prediction requests over HTTP until it is stopped."""
    from importlib.util import find_spec

    from protoevfl.deploy.kit import open_kit

    opened = open_kit(kit)
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError("the service needs FastAPI and uvicorn: pip install 'protoevfl[serve]'")
    if over_limit not in ("refuse", "degrade"):
        raise UserError(f"--over-limit is refuse or degrade, not {over_limit!r}")
    from protoevfl.serve import run as process
    from protoevfl.serve.app import Settings

    if switch:
        with bar(f"the service goes over to run {run}"):
            process.switch(opened, run)
        print(f"run {run} is served")
        return
    where = process.Listening(host, port, certificate, key)
    settings = Settings(deadline_ms / 1000, over_limit)
    note(f"opening run {run} at the other parties, then listening on {host}:{port}")
    process.serve(opened, run, where, settings, cache_s)


def key(
    name: Annotated[str, Argument(help="The caller.")],
    kit: KitOption,
    per_minute: Annotated[int, Option(help="Most requests a minute.")] = 6_000,
    rows_per_day: Annotated[int, Option(help="Most rows a day.")] = 1_000_000,
    remove: Annotated[bool, Option("--remove", help="Take the key away.")] = False,
) -> None:
    """Active party: make an API key for a caller of the service; it is shown once."""
    from protoevfl.deploy.kit import open_kit
    from protoevfl.serve import api_keys

    path = open_kit(kit).folder / api_keys.FILE
    if remove:
        api_keys.remove(path, name)
        print(f"{name}: removed")
        return
    print(api_keys.add(path, name, per_minute, rows_per_day))


def recall(
    run: Annotated[str, Argument(help="The training run that is served.")],
    kit: KitOption,
) -> None:
    """Any party: have the active party forget the answers it keeps to use again."""
    from protoevfl.deploy import durable
    from protoevfl.deploy.kit import open_kit
    from protoevfl.deploy.standing import RECALLED

    opened = open_kit(kit)
    folder = opened.run_folder(f"{run}-serve"[:63])
    if not (folder / "spec.json").exists():
        raise UserError(f"run {run!r} is not served with {opened.name}")
    durable.write(folder / RECALLED, b"")
    print(f"{opened.name}: called back; {opened.identity.active} hears of it within some seconds")
