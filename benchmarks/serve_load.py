"""Load for the prediction service, run by locust: `benchmarks/serve.py` starts it with its settings in
the environment, and reads what it writes at the end.

LOAD_IDS (file, one id per line), LOAD_KEY, LOAD_CERTIFICATE, LOAD_BATCH (rows per request), LOAD_RATE
(requests a second of one user, 0: as many as possible), LOAD_TOGETHER (1: all users ask at the same
moments; else each when it likes, independently of the others), LOAD_OUT (file of results).
"""

import json
import os
import random
import time
from pathlib import Path

import gevent
from locust import HttpUser, constant, constant_throughput, events, task

IDS = Path(os.environ["LOAD_IDS"]).read_text().split()
BATCH = int(os.environ["LOAD_BATCH"])
RATE = float(os.environ["LOAD_RATE"])
COUNTS = {"rows": 0, "degraded": 0, "wrong": 0}


def independent(caller: "Caller") -> float:
    """Seconds to the caller's next request: exponential gaps between the starts, so that all callers
    together are a Poisson process. locust's constant throughput has them all ask at once."""
    caller.due += random.expovariate(RATE)
    return max(0.0, caller.due - time.monotonic())


def pace():  # type: ignore[no-untyped-def]
    if not RATE:
        return constant(0)
    together = os.environ["LOAD_TOGETHER"] == "1"
    return constant_throughput(RATE) if together else independent


class Caller(HttpUser):
    wait_time = pace()

    def on_start(self) -> None:
        self.due = time.monotonic()
        if self.wait_time.__func__ is independent:
            gevent.sleep(independent(self))
        self.client.verify = os.environ["LOAD_CERTIFICATE"]
        self.client.headers["Authorization"] = f"Bearer {os.environ['LOAD_KEY']}"

    @task
    def predict(self) -> None:
        ids = random.sample(IDS, BATCH)
        body = {"id": ids[0]} if BATCH == 1 else {"rows": [{"id": i} for i in ids]}
        with self.client.post("/predict", json=body, catch_response=True) as reply:
            if reply.status_code != 200:
                reply.failure(f"{reply.status_code} {reply.text[:200]}")
                return
            predictions = reply.json()["predictions"]
            COUNTS["rows"] += len(predictions)
            COUNTS["degraded"] += sum(row["degraded"] for row in predictions)
            # a party that should have taken part is either there or named
            COUNTS["wrong"] += sum(
                len(row["parties"]) + len(row["absent"]) != 3 or row["id"] != i
                for row, i in zip(predictions, ids, strict=True)
            )


@events.quitting.add_listener
def write(environment, **_) -> None:  # type: ignore[no-untyped-def]
    total = environment.stats.total
    facts = {
        "requests": total.num_requests,
        "failures": total.num_failures,
        "errors": [f"{e.error} x {e.occurrences}"[:300] for e in environment.stats.errors.values()],
        "requests_per_s": round(total.total_rps, 2),
        "p50_ms": total.get_response_time_percentile(0.5),
        "p95_ms": total.get_response_time_percentile(0.95),
        "max_ms": round(total.max_response_time, 1),
        "seconds": round(total.last_request_timestamp - total.start_time, 2),
        **COUNTS,
    }
    Path(os.environ["LOAD_OUT"]).write_text(json.dumps(facts))
