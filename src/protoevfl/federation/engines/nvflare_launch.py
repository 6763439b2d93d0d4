"""Jobs that begin at once: a party keeps one process ready that has loaded what a job needs.

Loading torch takes seconds of a processor, and with several parties on one machine they queue for
it. `Launcher` is NVFlare's launcher of a party's kit, but a job gets the process that waits, and the
next one is started later, when the job has begun. What a job's process is told (its command line
and its token) reaches the waiting one through a pipe; a process that waits ends with the main
process, because the pipe does. Where none waits the job is started as NVFlare does it.
"""

import importlib
import json
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

FIRST_S = 4.0  # after the party's start: joining the hub comes first
NEXT_S = 20.0  # after a job's start


def __getattr__(name: str) -> Any:
    """`Launcher` is made on first use, because its base class is NVFlare's."""
    if name == "Launcher":
        globals()[name] = _launcher()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def preload() -> None:
    """In a process that waits: what NVFlare's process of a party's job imports."""
    importlib.import_module("nvflare.private.fed.app.client.worker_process")
    importlib.import_module("nvflare.collab.runtime.executor")


def _launcher() -> type:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
    from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
    from nvflare.utils.job_launcher_utils import get_credential_env

    class Launcher(ClientProcessJobLauncher):  # type: ignore[misc]
        """In a party's main process."""

        def __init__(self, ready: str) -> None:
            """ready: the module that a waiting process runs, with the kit's folder."""
            super().__init__()
            self.ready = ready
            self.spare: Spare | None = None

        def handle_event(self, event_type: str, fl_ctx: Any) -> None:
            super().handle_event(event_type, fl_ctx)
            if event_type == EventType.SYSTEM_BOOTSTRAP:
                folder = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir()
                self.spare = Spare(self.ready, Path(folder))
                self.spare.prepare(FIRST_S)

        def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
            arguments = shlex.split(self.get_command(job_meta, fl_ctx), True)[1:]
            told = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
            process = self.spare.take(arguments, told) if self.spare else None
            if process is None:
                return super().launch_job(job_meta, fl_ctx)
            return ProcessHandle(process=process)

    return Launcher


@dataclass
class Spare:
    """The process that waits for a job of one party."""

    module: str
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, seconds: float) -> None:
        """Start it in the background, later."""
        timer = threading.Timer(seconds, self.start)
        timer.daemon = True
        timer.start()

    def start(self) -> None:
        with self._lock, suppress(OSError):  # without one, a job starts as it always did
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(
                    [sys.executable, "-u", "-m", self.module, os.fspath(self.folder)],
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # NVFlare ends a job by its process group
                )

    def take(self, arguments: list[str], told: dict[str, str]) -> "subprocess.Popen[bytes] | None":
        """The process, which now runs `-m module arguments` as a job; None where there is none."""
        with self._lock:
            process, self.process = self.process, None
        self.prepare(NEXT_S)
        if process is None:
            return None
        pipe = cast(Any, process.stdin)
        try:
            pipe.write(json.dumps({"arguments": arguments, "environment": told}).encode() + b"\n")
            pipe.close()
        except OSError:  # it has ended
            process.wait()
            return None
        return process
