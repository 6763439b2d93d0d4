"""The border of the service: who may ask, how much, and what one line says to the rest."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from protoevfl.serve import api_keys
from protoevfl.serve.app import Settings, make_app
from protoevfl.serve.client import Client, ServiceError
from tests.serve.conftest import Served


@pytest.fixture
def client(served: Served, tmp_path: Path) -> Iterator[Client]:
    """A real server on loopback, in a thread of this process."""
    import uvicorn

    path = tmp_path / api_keys.FILE
    key = api_keys.add(path, "caller", per_minute=1000, rows_per_day=60)
    app = make_app(served.service, api_keys.Callers(path), Settings(5.0, most_bytes=10_000))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started and time.monotonic() < end:
        time.sleep(0.01)
    yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}", key)
    server.should_exit = True
    thread.join(30)


def get(client: Client, path: str, key: str = "") -> tuple[int, str]:
    import urllib.error
    import urllib.request

    headers = {"X-API-Key": key} if key else {}
    request = urllib.request.Request(client.address + path, headers=headers)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def refused(client: Client, question: Any) -> tuple[int, str]:
    with pytest.raises(ServiceError) as caught:
        client.ask(question)
    assert "\n" not in str(caught.value)
    return caught.value.status, str(caught.value)


def test_one_row_and_several_come_with_their_model_and_parties(
    client: Client, served: Served
) -> None:
    ids = served.shared(3)
    answer = client.ask({"id": ids[0]})
    assert answer["model"] == {"run": "train", "digest": served.model.active.digest}
    (one,) = answer["predictions"]
    assert one["parties"] == ["bank", "shop", "tele"]
    assert one["class"] in one["probabilities"]
    assert one["degraded"] is False
    many = client.predict_many([{"id": i} for i in ids])
    assert [row["id"] for row in many] == ids
    served.companies.cut("shop")
    away = client.predict(id=ids[0])
    assert away["degraded"] is True
    assert list(away["absent"]) == ["shop"]


def test_what_is_refused_is_one_line_and_nothing_goes_to_the_parties(
    client: Client, served: Served
) -> None:
    (one,) = served.shared()
    sent = len(served.companies.sent)
    name = client.key.split(".")[0]
    for key in ("", "caller", f"{name}.guessed", f"nobody.{client.key.split('.')[1]}"):
        assert refused(Client(client.address, key), {"id": one})[0] == 401
    assert refused(client, {"id": "x" * 20_000})[0] == 413
    assert refused(client, {"id": "x" * 10_000_000})[0] == 413
    for question in ({}, {"rows": 1}, {"id": one, "rows": []}, {"id": one, "more": 1}, [], "text"):
        assert refused(client, question)[0] == 422
    assert refused(client, {"rows": [{}]})[0] == 422
    assert refused(client, {"id": "nobody"})[0] == 404
    assert refused(client, {"id": one, "run": "other"})[0] == 400
    assert refused(client, {"columns": {"x": "a"}})[0] == 400
    served.companies.rules("shop", rows_per_day=0)
    served.model.lead.partners[1].greet()
    sent += 1  # the greeting
    assert refused(client, {"id": one})[0] == 429
    assert len(served.companies.sent) == sent


def test_a_caller_that_enumerates_ids_reaches_its_limit(client: Client) -> None:
    seen = [refused(client, {"id": f"guess{k}"})[0] for k in range(62)]
    assert seen == [404] * 60 + [429] * 2


def test_malformed_json_is_one_line(client: Client) -> None:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(
        f"{client.address}/predict", b'{"id":', {"X-API-Key": client.key}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 422
    assert "error" in json.loads(caught.value.read())


def test_health_openapi_parties_and_metrics(client: Client, served: Served) -> None:
    assert json.loads(get(client, "/health")[1])["status"] == "ok"
    assert "/predict" in json.loads(get(client, "/openapi.json")[1])["paths"]
    assert get(client, "/docs")[0] == 200
    assert get(client, "/metrics")[0] == get(client, "/parties")[0] == 401
    client.predict(id=served.shared()[0])
    served.companies.cut("shop")
    client.predict(id=served.shared()[0])
    page = get(client, "/metrics", client.key)[1]
    assert "protoevfl_rows_total 2" in page
    assert 'protoevfl_absent_rows_total{party="shop"} 1' in page
    assert 'protoevfl_party_up{party="tele"} 1' in page
    assert json.loads(get(client, "/parties", client.key)[1])["tele"]["up"]


def test_a_service_without_a_model_is_starting(tmp_path: Path) -> None:
    from fastapi.routing import APIRoute

    from protoevfl.serve.service import Service

    app = make_app(Service(), api_keys.Callers(tmp_path / "none"))
    paths = {route.path for route in app.routes if isinstance(route, APIRoute)}
    assert paths == {"/predict", "/health", "/parties", "/metrics"}
