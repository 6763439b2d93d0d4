"""A process of a party that has loaded what a job needs and waits for one
(federation/engines/nvflare_launch.py). `python -m protoevfl.deploy.spare KIT`.

It reads one line: the command line and the secrets of a job's process, which it then is. It ends
when its main process does.
"""

import importlib
import json
import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path

from protoevfl.federation.engines import nvflare_launch

WAITS = "waiting-spare"  # the process's name until it has a job
NAME = Path("/proc/self/comm")  # where Linux keeps it


def preload() -> None:
    """What a party's job uses, from NVFlare's process to the training of own files."""
    import torch

    nvflare_launch.preload()
    for module in ("deploy.local", "deploy.site_job", "pipeline.simulate", "pipeline.train"):
        importlib.import_module(f"protoevfl.{module}")
    torch.zeros(2, 2).mm(torch.zeros(2, 2))


def call(name: str) -> None:
    """Change the name of this process."""
    with suppress(OSError):
        NAME.write_text(name)


def main() -> None:
    parent = os.getppid()
    call(WAITS)
    preload()
    line = sys.stdin.readline()
    if not line or os.getppid() != parent:  # it would never notice that its parent is gone
        os._exit(0)
    order = json.loads(line)
    call("python")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["environment"])
    flag, module, *arguments = order["arguments"]
    assert flag == "-m"
    sys.modules.pop(module, None)  # it is the main program now
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
