"""The process of the service: where it may listen, and how a new run takes over."""

import threading
import time
from pathlib import Path

import pytest

from protoevfl.errors import UserError
from protoevfl.serve import run
from protoevfl.serve.run import Listening, Process
from tests.serve.conftest import Served


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "bank.example"])
def test_nothing_is_said_in_clear_to_other_machines(host: str) -> None:
    with pytest.raises(UserError, match="can be reached from outside"):
        Listening(host).check()


def test_loopback_needs_no_certificate_and_tls_needs_both_files(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        Listening(host).check()
    both = tmp_path / "a.pem", tmp_path / "b.pem"
    with pytest.raises(UserError, match="both"):
        Listening("0.0.0.0", certificate=both[0]).check()
    with pytest.raises(UserError, match="cannot read"):
        Listening("0.0.0.0", 8443, *both).check()
    for path in both:
        path.write_text("")
    Listening("0.0.0.0", 8443, *both).check()


def test_a_run_takes_over_while_the_service_runs(served: Served) -> None:
    process = Process(served.companies.kit("bank"), served.service, 0.0, drain_s=0.0)
    process.send = served.companies.send
    run.note(process.kit, "before", "")
    threading.Thread(target=process.watch, daemon=True).start()
    before = served.service.model()
    served.service.models, served.service.current = {"before": before}, "before"
    run.switch(process.kit, "train", 60)
    assert served.service.current == "train"
    assert served.service.model() is not before
    end = time.monotonic() + 30
    while "before" in served.service.models and time.monotonic() < end:
        time.sleep(0.01)
    assert list(served.service.models) == ["train"]
    process.stop.set()
    with pytest.raises(UserError, match="no run 'nothing' was submitted"):
        run.switch(process.kit, "nothing")
    served.service.model().lead.close()
