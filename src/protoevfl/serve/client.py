"""A small client of the prediction service; needs nothing but Python.

client = Client("https://localhost:8443", key, certificate="server.crt")
client.predict(id="C17")["class"]
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class ServiceError(Exception):
    """The service said no; `status` is HTTP's, the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Client:
    """address      https://host:port
    key          as `protoevfl deploy key` showed it
    certificate  file of the service's certificate or its authority's, where the machine does not
                 know it
    """

    address: str
    key: str
    certificate: str | None = None
    timeout_s: float = 30.0

    def predict(
        self, *, id: Any = None, columns: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The prediction of one row: `class`, `probabilities`, `parties`, `absent`, `degraded`."""
        given = {"id": id, "columns": columns, **more}
        answer = self.ask({name: value for name, value in given.items() if value is not None})
        prediction: dict[str, Any] = answer["predictions"][0]
        return prediction

    def predict_many(self, rows: Sequence[Mapping[str, Any]], **more: Any) -> list[dict[str, Any]]:
        """Predictions of rows, each {"id": ...} or {"columns": ...} or both."""
        predictions: list[dict[str, Any]] = self.ask({"rows": list(rows), **more})["predictions"]
        return predictions

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question as it is sent; ServiceError."""
        request = urllib.request.Request(
            f"{self.address}/predict",
            json.dumps(question).encode(),
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, None, self.timeout_s, context=self._tls) as reply:
                return dict(json.load(reply))
        except urllib.error.HTTPError as error:
            try:
                text = str(json.load(error)["error"])
            except (ValueError, KeyError, TypeError):
                text = str(error)
            raise ServiceError(error.code, text) from None
        except urllib.error.URLError as error:
            raise ServiceError(0, f"the service cannot be reached: {error.reason}") from None

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        if not self.address.startswith("https:"):
            return None
        return ssl.create_default_context(cafile=self.certificate)
