"""What crossed the border: bytes by message type."""

from collections.abc import Iterable

import numpy as np

from protoevfl.reproduction.pages.averages import Pairs, groups
from protoevfl.reproduction.pages.pictures import Picture, marker, panels
from protoevfl.reproduction.spec import Record, dig


def by_type(records: Iterable[Record]) -> dict[str, tuple[float, float]]:
    """Mean bytes (up, down) of each message type over records."""
    runs = [dig(record, "bytes.by_type") or {} for record in records]
    kinds = dict.fromkeys(kind for run in runs for kind in run)
    return {
        kind: (
            sum(run.get(kind, {}).get("up", 0) for run in runs) / len(runs),
            sum(run.get(kind, {}).get("down", 0) for run in runs) / len(runs),
        )
        for kind in kinds
    }


def messages(pairs: Pairs) -> list[Picture]:
    """Bytes of each message type, one panel per data set, longest run of each method."""
    datasets = groups(pairs, "dataset")
    shown = {
        name: cells for (name,), cells in datasets.items() if any(by_type(r) for _, r in cells)
    }
    if not shown:
        return []
    figure, axes = panels(len(shown), width=5.0, height=3.2)
    kinds = list(
        dict.fromkeys(kind for cells in shown.values() for _, r in cells for kind in by_type(r))
    )
    for ax, (dataset, cells) in zip(axes, shown.items(), strict=True):
        methods = groups(cells, "method")
        for row, points in enumerate(methods.values()):
            _, records = max(points, key=lambda point: int(point[0].tags.get("length", 0)))
            for kind, (up, down) in by_type(records).items():
                number = kinds.index(kind)
                ax.scatter(
                    [max(up + down, 1)], [row], marker=marker(number), color=f"C{number % 10}", s=36
                )
        for number, kind in enumerate(kinds):
            ax.scatter(
                [np.nan], [np.nan], marker=marker(number), color=f"C{number % 10}", label=kind
            )
        ax.set_yticks(range(len(methods)), [name for (name,) in methods])
        ax.set_ylim(-0.6, len(methods) - 0.4)
        ax.set_xscale("log")
        ax.set(title=dataset, xlabel="bytes in both directions")
        ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return [
        Picture(
            "messages",
            "Bytes across the border by message type, longest run of each method",
            figure,
        )
    ]
