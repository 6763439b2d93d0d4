"""The client says what went wrong in one line (what goes right: test_app.py)."""

import pytest

from protoevfl.serve.client import Client, ServiceError


def test_a_service_that_is_not_there() -> None:
    with pytest.raises(ServiceError, match="cannot be reached") as caught:
        Client("http://127.0.0.1:9", "key", timeout_s=5).predict(id="C1")
    assert caught.value.status == 0


def test_it_needs_nothing_but_python() -> None:
    import subprocess
    import sys

    code = "import sys; from protoevfl.serve.client import Client; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
