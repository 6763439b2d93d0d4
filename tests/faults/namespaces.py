"""Hub and parties in network namespaces of their own: links between hub and party only, no way from
party to party.

Every namespace has its own loopback, addresses and /etc/hosts, so the machines of the step-by-step
in docs/deployment.md are told apart by everything but their kernel. Needs root and `ip` (iproute2);
`refused` says why it cannot be done here.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from protoevfl.deploy.provision import Project, provision

HOST = "hub.example"  # the name that parties dial
PORT = 8002


def refused() -> str:
    """Why there can be no namespaces here; "" where there can."""
    if shutil.which("ip") is None:
        return "no `ip` command (iproute2)"
    name = f"pev-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"ip netns add: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


@dataclass
class Net:
    """One namespace a kit; `run` is a person typing at that machine."""

    folder: Path
    parties: tuple[str, ...]
    mark: str

    def space(self, name: str) -> str:
        return f"pev-{self.mark}-{name}"

    def kit(self, name: str) -> Path:
        return self.folder / name

    def run(
        self, name: str, *words: str, seconds: float = 240
    ) -> "subprocess.CompletedProcess[str]":
        """`protoevfl deploy ...` at the machine of `name`."""
        line = [*_inside(self.space(name)), sys.executable, "-m", "protoevfl", "deploy", *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=seconds)

    def shell(self, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*_inside(self.space(name)), *words], capture_output=True, text=True)

    def link(self, name: str, state: str) -> None:
        """Pull the cable of a party, or put it back."""
        _ip("-n", self.space(name), "link", "set", "eth0", state)


@contextlib.contextmanager
def net(folder: Path, parties: tuple[str, ...]) -> Iterator[Net]:
    """Kits and namespaces for a hub and parties; all gone at the end."""
    project = Project("spaces", parties[0], HOST, PORT, "hub", {n: n for n in parties})
    provision(project, folder)
    made = Net(folder, parties, str(os.getpid()))
    try:
        _build(made)
        yield made
    finally:
        for name in (*reversed(parties), "hub"):
            made.run(name, "stop", str(made.kit(name)))
        for name in ("hub", *parties):
            subprocess.run(["ip", "netns", "del", made.space(name)], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / made.space(name), ignore_errors=True)
        with contextlib.suppress(OSError):
            Path("/etc/netns").rmdir()


def _build(made: Net) -> None:
    for name in ("hub", *made.parties):
        _ip("netns", "add", made.space(name))
        _ip("-n", made.space(name), "link", "set", "lo", "up")
    _hosts(made, "hub", "127.0.0.1")
    for number, name in enumerate(made.parties):
        near, far = f"to-{name}"[:15], "eth0"
        _ip("-n", made.space("hub"), "link", "add", near, "type", "veth", "peer", "name", far,
            "netns", made.space(name))  # fmt: skip
        for space, device, last in ((made.space("hub"), near, 1), (made.space(name), far, 2)):
            _ip("-n", space, "addr", "add", f"10.77.{number}.{last}/30", "dev", device)
            _ip("-n", space, "link", "set", device, "up")
        _hosts(made, name, f"10.77.{number}.1")


def _hosts(made: Net, name: str, address: str) -> None:
    """`ip netns exec` shows this file as /etc/hosts."""
    folder = Path("/etc/netns") / made.space(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {HOST}\n")


def _inside(space: str) -> list[str]:
    return ["ip", "netns", "exec", space]


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
