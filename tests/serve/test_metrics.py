"""Counts as Prometheus reads them."""

from protoevfl.serve.metrics import BOUNDS, Metrics


def test_the_page_counts_requests_rows_and_who_was_missing() -> None:
    metrics = Metrics()
    metrics.request(200)
    metrics.request(200)
    metrics.request(401)
    metrics.answered(0.03, 2, [["shop"], []])
    metrics.answered(100.0, 1, [[]])
    page = metrics.text({"shop": {"up": False, "shared": 7, "rows_left": 3}})
    lines = page.splitlines()
    assert 'protoevfl_requests_total{status="200"} 2' in lines
    assert "protoevfl_rows_total 3" in lines
    assert "protoevfl_degraded_rows_total 1" in lines
    assert 'protoevfl_absent_rows_total{party="shop"} 1' in lines
    assert 'protoevfl_answer_seconds_bucket{le="0.04"} 1' in lines
    assert 'protoevfl_answer_seconds_bucket{le="+Inf"} 2' in lines
    assert 'protoevfl_party_up{party="shop"} 0' in lines
    buckets = [int(x.split()[-1]) for x in lines if "_bucket" in x]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(BOUNDS) + 1
    assert page.endswith("\n")
