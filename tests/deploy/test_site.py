"""The hub's part of a job."""

import subprocess
import sys

import pytest

from protoevfl.deploy import site, site_job
from protoevfl.federation.engines import nvflare


@pytest.mark.parametrize("outcome", ["done", "party shop did not answer"])
def test_the_hubs_job_succeeds_when_the_run_did(
    monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    monkeypatch.setattr(site, "die_with_parent", lambda: None)
    monkeypatch.setattr(nvflare, "without_tensors", lambda: None)
    monkeypatch.setattr(nvflare, "calls", lambda method: {"bank": lambda seconds: outcome})
    if outcome == "done":
        assert site.Hub("bank").main() == "done"
    else:
        with pytest.raises(RuntimeError, match="the run stopped: party shop did not answer"):
            site.Hub("bank").main()


def test_the_hub_does_not_wait_for_torch() -> None:
    pytest.importorskip("nvflare")
    code = (
        "import sys, protoevfl.deploy.site as s; s.Hub('bank')\n"
        "from nvflare.collab.runtime.controller import CollabController, optional_import\n"
        "assert not optional_import('nvflare.app_opt.pt.decomposers', name='TensorDecomposer')[1]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_job_finds_the_partys_class_under_its_name() -> None:
    assert site.Site is site_job.Site
    with pytest.raises(AttributeError):
        site.nothing  # noqa: B018
