"""The summary of a page in words: what was run, who is ahead where, what it costs, what to be
careful about."""

from collections.abc import Iterable, Sequence
from statistics import mode

from protoevfl.bench.records import cell_key
from protoevfl.reproduction.pages.averages import Pairs, mean, spread
from protoevfl.reproduction.record_stats import total_bytes
from protoevfl.reproduction.spec import Cell, Record, dig

ABOVE = ("upper_bound",)  # not a competitor


def summary(pairs: Pairs) -> list[str]:
    """A few sentences."""
    records = [record for _, seeds in pairs for record in seeds]
    if not records:
        return ["There are no records."]
    return [_opening(pairs, records), *_leaders(pairs), *_unseen(pairs)]


def _opening(pairs: Pairs, records: Sequence[Record]) -> str:
    datasets = _names(pairs, "dataset")
    methods = [m for m in _names(pairs, "method") if m != "split"]
    seeds = {record.get("seed") for record in records}
    return (
        f"{len(records):,} runs of {len(pairs):,} configurations: {_list(methods)} on "
        f"{_list(datasets)}, {len(seeds)} seed{'s' if len(seeds) != 1 else ''}."
    )


def _leaders(pairs: Pairs) -> list[str]:
    """For each data set, normal setting, fewest aligned rows: who is ahead, by how much, for how
    many bytes."""
    lines = []
    for dataset in _names(pairs, "dataset"):
        here = [
            (c, r)
            for c, r in pairs
            if c.config.dataset == dataset
            and c.config.setting == "normal"
            and not c.config.overrides
            and mean(r, "metrics.accuracy") is not None
            and c.config.method not in ABOVE
        ]
        if not here:
            continue
        fewest = min(c.config.aligned for c, _ in here)
        # more parties see more
        usual = mode(c.config.parties for c, _ in here if c.config.aligned == fewest)
        alike = [p for p in here if (p[0].config.aligned, p[0].config.parties) == (fewest, usual)]
        ranked = sorted(alike, key=_accuracy, reverse=True)
        best, records = ranked[0]
        line = (
            f"{dataset}, {fewest} aligned rows: {best.tags['method']} reaches "
            f"{_accuracy(ranked[0]):.1f} ± {100 * spread(records, 'metrics.accuracy'):.1f} % "
            f"accuracy{_traffic(records)}"
        )
        if len(ranked) > 1:
            line += (
                f"; next is {ranked[1][0].tags['method']} with {_accuracy(ranked[1]):.1f} "
                f"%{_traffic(ranked[1][1])}"
            )
        balanced = mean(records, "metrics.balanced_accuracy")
        if dig(records[0], "metrics.auc") is not None and balanced is not None:
            line += (
                f" (balanced accuracy {100 * float(balanced):.1f} %; a constant answer has 50 %)"
            )
        lines.append(line + ".")
    return lines


def _unseen(pairs: Pairs) -> list[str]:
    """Recall of unseen classes by method, as it is set by default."""
    recalls: dict[str, list[float]] = {}
    for cell, records in pairs:
        recall = mean(records, "metrics.unseen_recall")
        if recall is not None and not cell.config.overrides:
            recalls.setdefault(cell.tags["method"], []).append(100 * float(recall))
    if not recalls:
        return []
    parts = [
        f"{method} {sum(v) / len(v):.1f} % ({len(v)} cell{'s' if len(v) != 1 else ''})"
        for method, v in recalls.items()
    ]
    return [f"Recall of classes without a single label, mean over cells: {', '.join(parts)}."]


def warnings(pairs: Pairs) -> list[str]:
    """What a careful reader should know first."""
    lines = []
    few = sum(1 for _, r in pairs if 0 < len(r) < 3)
    if few:
        lines.append(
            f"{few} of {len(pairs)} configurations have fewer than three seeds: their spread says "
            "little."
        )
    machines = {str(record.get("device")) for _, r in pairs for record in r if record.get("device")}
    if len(machines) > 1:
        lines.append(
            f"Runs come from different devices ({', '.join(sorted(machines))}): do not compare "
            "seconds."
        )
    if any(int(record.get("workers") or 1) > 1 for _, r in pairs for record in r):
        lines.append("Some runs shared their device with other runs: their seconds are too long.")
    return lines


def provenance(records: Sequence[Record]) -> list[str]:
    """What stands behind the numbers: runs, seeds, hours, devices, commits."""

    def names(key: str, length: int | None = None) -> str:
        return (
            ", ".join(sorted({str(r[key])[:length] for r in records if r.get(key)}))
            or "not recorded"
        )

    seeds = sorted({int(r["seed"]) for r in records if "seed" in r})
    hours = sum(float(r.get("seconds") or 0) for r in records) / 3600
    cells = len({cell_key(r) for r in records})
    return [
        f"{len(records):,} runs of {cells:,} configurations, seeds {', '.join(map(str, seeds))}",
        f"{hours:.1f} hours in all",
        f"devices: {names('device')}",
        f"commits: {names('commit', 7)}",
    ]


def _accuracy(pair: tuple[Cell, Sequence[Record]]) -> float:
    value = mean(pair[1], "metrics.accuracy")
    return -1.0 if value is None else 100 * float(value)


def _traffic(records: Sequence[Record]) -> str:
    totals = [t for t in map(total_bytes, records) if t is not None]
    return f" for {sum(totals) / len(totals) / 1e6:.2f} MB" if totals else ""


def _names(pairs: Pairs, tag: str) -> list[str]:
    return list(dict.fromkeys(cell.tags[tag] for cell, _ in pairs if cell.tags.get(tag)))


def _list(names: Iterable[str]) -> str:
    *first, last = list(names) or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last
