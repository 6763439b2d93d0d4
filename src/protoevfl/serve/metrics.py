"""Counts of the prediction service in the text format of Prometheus."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BOUNDS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.12, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


@dataclass
class Metrics:
    """Requests by outcome, rows by who took part, and how long answers took."""

    requests: dict[str, int] = field(default_factory=dict)  # by HTTP status
    rows: int = 0
    degraded: int = 0  # rows that a party which shares them was missing from
    absent: dict[str, int] = field(default_factory=dict)  # the same, by party
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def request(self, status: int) -> None:
        with self._lock:
            self.requests[str(status)] = self.requests.get(str(status), 0) + 1

    def answered(self, seconds: float, rows: int, lacking: Iterable[Iterable[str]]) -> None:
        """One answer; `lacking` has, per row, the parties that should have taken part."""
        with self._lock:
            place = sum(seconds > bound for bound in BOUNDS)
            self.buckets[place] += 1
            self.seconds += seconds
            self.rows += rows
            for parties in lacking:
                names = list(parties)
                self.degraded += bool(names)
                for name in names:
                    self.absent[name] = self.absent.get(name, 0) + 1

    def text(self, parties: Mapping[str, Mapping[str, Any]]) -> str:
        """The page that Prometheus reads; `parties` as StandingLead.status has them."""
        with self._lock:
            lines = ["# TYPE protoevfl_requests_total counter"]
            lines += [
                f'protoevfl_requests_total{{status="{status}"}} {count}'
                for status, count in sorted(self.requests.items())
            ]
            lines += ["# TYPE protoevfl_rows_total counter", f"protoevfl_rows_total {self.rows}"]
            lines += [
                "# TYPE protoevfl_degraded_rows_total counter",
                f"protoevfl_degraded_rows_total {self.degraded}",
            ]
            lines.append("# TYPE protoevfl_absent_rows_total counter")
            lines += [
                f'protoevfl_absent_rows_total{{party="{name}"}} {count}'
                for name, count in sorted(self.absent.items())
            ]
            lines.append("# TYPE protoevfl_answer_seconds histogram")
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), self.buckets, strict=True):
                total += count
                lines.append(f'protoevfl_answer_seconds_bucket{{le="{bound}"}} {total}')
            lines.append(f"protoevfl_answer_seconds_sum {self.seconds:.6f}")
            lines.append(f"protoevfl_answer_seconds_count {total}")
        gauges = {"up": "party_up", "shared": "party_shared_rows", "rows_left": "party_rows_left"}
        for fact, name in gauges.items():
            lines.append(f"# TYPE protoevfl_{name} gauge")
            lines += [
                f'protoevfl_{name}{{party="{party}"}} {int(facts[fact])}'
                for party, facts in sorted(parties.items())
            ]
        return "\n".join(lines) + "\n"
