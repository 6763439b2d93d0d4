"""The picture of `protoevfl value`: one bar a party with its interval, from v(none) to v(all)."""

from pathlib import Path

from protoevfl.artifacts import integrity
from protoevfl.errors import UserError
from protoevfl.pipeline.value import Worth

KINDS = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    if path.suffix not in KINDS:
        raise UserError(f"{path.name}: the picture is written as {', '.join(KINDS)}")


def draw(worth: Worth, path: Path) -> None:
    """Write the picture; whole or not at all."""
    check_picture(path)
    from matplotlib.figure import Figure

    names = [share.party for share in worth.shares]
    points = [100 * share.value for share in worth.shares]
    spread = [
        [100 * (s.value - s.low) for s in worth.shares],
        [100 * (s.high - s.value) for s in worth.shares],
    ]
    figure = Figure(figsize=(7, 0.55 * len(names) + 1.8), layout="constrained")
    axes = figure.subplots()
    colours = ["#2a6f97" if p >= 0 else "#b5563d" for p in points]
    axes.barh(
        names,
        points,
        xerr=[[max(0.0, v) for v in side] for side in spread],
        color=colours,
        ecolor="#444",
        capsize=4,
    )
    axes.axvline(0, color="#444", linewidth=0.8)
    axes.invert_yaxis()
    what = "AUC" if worth.metric == "auc" else "accuracy"
    axes.set_xlabel(f"points of {what} (Shapley value, 95 % interval over {worth.rows} test rows)")
    start = f"{worth.start} alone" if worth.start else "nobody"
    title = f"{what}: {100 * worth.nobody:.1f} with {start}, {100 * worth.everyone:.1f} with all"
    axes.set_title(title, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    with integrity.whole_file(path) as part:
        figure.savefig(part, dpi=150)
