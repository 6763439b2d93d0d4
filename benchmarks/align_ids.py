"""How long does private set intersection take? `python benchmarks/align_ids.py [ids a side]
[processes]`."""

import sys
import time

from protoevfl.rows.align import align
from protoevfl.rows.ids import IdRules, collect


def main(count: int = 100_000, processes: int = 0) -> None:
    start = time.perf_counter()
    bank = collect([range(count)], IdRules(), "bank")
    insurer = collect(
        [[str(i) for i in range(count // 2, count // 2 + count)]], IdRules(), "insurer"
    )
    normalised = time.perf_counter()
    results = align({"bank": bank, "insurer": insurer}, "bank", processes=processes)
    end = time.perf_counter()
    assert len(results["insurer"].rows) == count - count // 2
    print(
        f"{count} ids a side: normalise {normalised - start:.1f} s, align {end - normalised:.1f} s"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
