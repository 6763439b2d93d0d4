"""What NVFlare runs for a job: `Hub` at the hub (it only says "begin"), `Site` (site_job.py) at every
party. A job names these two classes and the specification, nothing else.

The hub computes nothing: it must not wait for torch to load, so nothing here imports it.
"""

import os
import threading
import time
from typing import Any

from protoevfl.federation.engines import nvflare


def __getattr__(name: str) -> Any:
    """`Site` under the name that signed kits and jobs have for it."""
    if name == "Site":
        from protoevfl.deploy import site_job

        return site_job.Site
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Hub:
    """The hub's part of a job: ask the active party to lead, wait."""

    def __init__(self, active: str) -> None:
        nvflare.without_tensors()
        self.active = active

    @nvflare.main
    def main(self) -> str:
        die_with_parent()
        outcome = str(nvflare.calls("lead")[self.active](nvflare.LONGEST_S))
        if outcome != "done":
            raise RuntimeError(f"the run stopped: {outcome}")
        return outcome


def die_with_parent(interval_s: float = 0.5) -> None:
    """A job process must not outlive the process that started it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval_s)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="die-with-parent").start()
