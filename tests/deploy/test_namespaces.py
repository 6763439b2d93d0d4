"""A hub and two parties, each in a network namespace of its own, driven by the commands of
docs/deployment.md."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("nvflare")

from protoevfl.deploy.spec import JobSpec
from tests.faults import namespaces
from tests.faults.federation import expected

WHY = namespaces.refused()
pytestmark = [
    pytest.mark.xdist_group("federation"),
    pytest.mark.skipif(bool(WHY), reason=f"no network namespaces here: {WHY}"),
]


def test_parties_meet_at_the_hub_and_nowhere_else(tmp_path: Path) -> None:
    with namespaces.net(tmp_path, ("bank", "shop")) as net:
        assert net.run("hub", "start", str(net.kit("hub"))).returncode == 0
        with ThreadPoolExecutor() as pool:
            for started in pool.map(
                lambda name: net.run(name, "start", str(net.kit(name))), ("bank", "shop")
            ):
                assert started.returncode == 0, started.stderr
        dial = "import socket; socket.create_connection(('10.77.1.2', 8002), 2)"  # the other party
        assert "Network is unreachable" in net.shell("bank", sys.executable, "-c", dial).stderr
        assert _open_ports(net.shell("shop", "ss", "-Hltn").stdout) == set()
        assert _open_ports(net.shell("hub", "ss", "-Hltn").stdout) == {"8002"}
        done = net.run(
            "bank", "probe", "--kit", str(net.kit("bank")), "--megabytes", "0.1", "--rounds", "5"
        )
        assert done.returncode == 0, done.stderr
        assert "6 exchanges of 0.1 MB a party" in done.stdout
        found = load_file(net.kit("bank") / "runs" / "probe" / "predictions.safetensors")[
            "probabilities"
        ]
        spec = JobSpec(
            "probe", ("bank", "shop"), "probe", settings={"rounds": 5, "rows": 1000, "width": 25}
        )
        assert torch.equal(found, expected(spec, tmp_path))


def _open_ports(listing: str) -> set[str]:
    """Ports that other machines could reach."""
    local = [line.split()[3] for line in listing.splitlines()]
    return {a.rsplit(":", 1)[1] for a in local if not a.startswith(("127.", "[::1]"))}
