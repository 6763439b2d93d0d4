"""One worker a run and party: a new attempt takes over from a worker that an earlier attempt left
behind."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protoevfl.deploy.os_process import born
from protoevfl.errors import UserError

GRACE_S = 5.0


@dataclass
class RunLock:
    """An advisory lock on a run's folder, held until the process ends."""

    folder: Path
    grace_s: float = GRACE_S

    def take(self, attempt: str) -> None:
        """Hold the lock; an older holder (this kit's own process) is asked to leave and, if it does
        not, ended."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = open(self.folder / "lock", "a+")  # noqa: SIM115 -- held until the process ends
        (self.folder / "wanted").write_text(attempt)
        end = time.monotonic() + self.grace_s
        while not self._try():
            if time.monotonic() > end:
                self._end_holder()
            if time.monotonic() > end + self.grace_s:
                raise UserError(
                    f"another worker holds {self.folder}; stop it with `protoevfl deploy stop`"
                )
            time.sleep(0.1)
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "born": born(os.getpid())}))
        self._file.flush()
        threading.Thread(
            target=self._leave_when_asked, args=(attempt,), daemon=True, name="run-lock"
        ).start()

    def _try(self) -> bool:
        import fcntl

        with suppress(BlockingIOError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _leave_when_asked(self, attempt: str) -> None:
        while True:
            time.sleep(0.5)
            with suppress(OSError):
                if (self.folder / "wanted").read_text() not in ("", attempt):
                    os._exit(1)

    def _end_holder(self) -> None:
        with suppress(OSError, ValueError, KeyError, ProcessLookupError):
            facts: dict[str, Any] = json.loads((self.folder / "lock").read_text())
            if facts["pid"] != os.getpid() and born(facts["pid"]) == facts["born"]:
                os.kill(facts["pid"], signal.SIGKILL)
