"""The process of `protoevfl deploy serve`: opens the run, listens, takes up a new run when it is asked
to, ends on a signal."""

import ipaddress
import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protoevfl.deploy import durable
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.os_process import share_heaps
from protoevfl.deploy.relay import Line
from protoevfl.deploy.standing_active import StandingActive, serve_spec
from protoevfl.errors import UserError
from protoevfl.serve import api_keys
from protoevfl.serve.app import Settings, make_app
from protoevfl.serve.service import Service, open_model

WANTED = "served.json"  # in the active party's kit: which runs are served, and the current one
DRAIN_S = 60.0  # for requests of the run before


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = 8443
    certificate: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Refuses to speak in clear with anybody but this machine."""
        if (self.certificate is None) != (self.key is None):
            raise UserError("TLS needs both --certificate and --key")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise UserError(f"cannot read {path}")
        if self.certificate is None and not _loopback(self.host):
            raise UserError(
                f"{self.host} can be reached from outside: give --certificate and --key, or listen "
                "on 127.0.0.1"
            )


def _loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@dataclass
class Process:
    """What is served from one kit."""

    kit: Kit
    service: Service
    cache_s: float
    drain_s: float = DRAIN_S

    def __post_init__(self) -> None:
        self.send = Line(self.kit.folder).send
        self.stop = threading.Event()

    def open(self, run: str) -> None:
        """Serve a run; it takes over when it is ready, and the one before ends later."""
        active = StandingActive(self.kit, serve_spec(self.kit, run, self.cache_s), self.send)
        before = self.service.add(open_model(active))
        if before is not None:
            timer = threading.Timer(self.drain_s, self.service.drop, [before])
            timer.daemon = True
            timer.start()

    def watch(self) -> None:
        """Take up another run when `switch` has asked for it."""
        seen = wanted(self.kit)
        while not self.stop.wait(0.5):
            run = wanted(self.kit)
            if run and run != seen:
                seen = run
                try:
                    if run in self.service.models:
                        self.service.current = run
                    else:
                        self.open(run)
                    note(self.kit, run, "")
                except UserError as error:
                    note(self.kit, run, str(error))


def wanted(kit: Kit) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((kit.folder / WANTED).read_text())["wanted"])
    return ""


def note(kit: Kit, run: str, error: str) -> None:
    facts = {"wanted": run, "served": "" if error else run, "error": error, "time": time.time()}
    durable.write(kit.folder / WANTED, json.dumps(facts).encode())


def switch(kit: Kit, run: str, seconds: float = 120.0) -> None:
    """Ask the service of this kit to go over to another run, and wait until it has."""
    serve_spec(kit, run)
    durable.write(kit.folder / WANTED, json.dumps({"wanted": run}).encode())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError, ValueError):
            facts: dict[str, Any] = json.loads((kit.folder / WANTED).read_text())
            if facts.get("error"):
                raise UserError(f"run {run} was not taken up: {facts['error']}")
            if facts.get("served") == run:
                return
        time.sleep(0.2)
    raise UserError(f"run {run} was not taken up within {seconds:g} s; is the service running?")


def serve(kit: Kit, run: str, where: Listening, settings: Settings, cache_s: float) -> None:
    """Until a signal ends it."""
    import torch
    import uvicorn

    where.check()
    share_heaps()
    torch.set_num_threads(1)
    callers = api_keys.Callers(kit.folder / api_keys.FILE)
    if not callers.entries():
        raise UserError(f"nobody may ask yet: protoevfl deploy key NAME --kit {kit.folder}")
    process = Process(kit, Service(), cache_s)
    process.open(run)
    note(kit, run, "")
    threading.Thread(target=process.watch, daemon=True, name="switch").start()
    threading.Thread(
        target=process.service.watch, args=(process.stop,), daemon=True, name="rows"
    ).start()
    uvicorn.run(
        make_app(process.service, callers, settings),
        host=where.host,
        port=where.port,
        ssl_certfile=where.certificate,
        ssl_keyfile=where.key,
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=1 << 16,
        limit_concurrency=256,
        timeout_graceful_shutdown=10,
    )
    process.stop.set()
