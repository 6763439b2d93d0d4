"""What the commands on your own files print: reports, metrics, values, run directories, as tables
on stdout."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protoevfl.cli.tables import percent, print_table
from protoevfl.core.decisions import joining
from protoevfl.errors import listed
from protoevfl.progress import duration, size

if TYPE_CHECKING:
    from protoevfl.artifacts.run_dir import Run
    from protoevfl.pipeline.check import Report
    from protoevfl.pipeline.value import Worth

MOST_CLASSES = 30  # shown one by one
TEST_ROWS = "Test rows, kept aside from training"


def show_report(report: "Report", config: Path) -> None:
    """What `check` found."""
    head = [
        "party",
        "file",
        "rows",
        "columns",
        "features",
        "missing values",
        "missing ids",
        "duplicate ids",
    ]
    rows = [
        [
            p.name,
            p.file,
            f"{p.rows:,}",
            str(len(p.columns)),
            " x ".join(map(str, p.features)) or "-",
            f"{sum(p.missing.values()):,} in {len(p.missing)} columns",
            f"{p.missing_ids:,}",
            f"{p.duplicate_ids:,}",
        ]
        for p in report.parties
    ]
    print_table(head, rows, "Files", 2)
    _show_types(report)
    for p in report.parties:
        for column, words in p.readings.items():
            print(f"{p.name}: column '{column}' is read as {words}")
    if report.classes:
        shown = list(report.classes.items())[:MOST_CLASSES]
        rows = [[name, f"{n:,}", _common(report, name)] for name, n in shown]
        if (more := len(report.classes) - len(shown)) > 0:
            rows.append([f"and {more:,} more", "", ""])
        rows.append(["(no label)", f"{report.unlabelled:,}", _common(report, None)])
        print_table(["class", "rows", "of them in common"], rows, "Labels", 1)
    for name, n in report.pairs.items():
        print(f"rows shared with {name}: {n:,}")
    if report.kinds:
        rows = [
            [f"shared with {who}", f"{n['labelled']:,}", f"{n['unlabelled']:,}"]
            for who, n in report.kinds.items()
        ]
        print_table(
            ["rows of the label party", "labelled", "not labelled"], rows, "All of them are used", 1
        )
    if (e := report.estimate) is not None:
        print(
            f"about {duration(e['seconds'])}, {size(e['memory'])} of memory, {size(e['traffic'])} "
            "between parties"
        )
        print(f"  ({e['how']})")
    _show_gives_away(report)
    for text in report.errors:
        print(f"ERROR    {text}")
    for text in report.warnings:
        print(f"warning  {text}")
    if not report.errors:
        print(f"ready: protoevfl align {config}, then protoevfl train {config}")


def _show_gives_away(report: "Report") -> None:
    """What a decoder rebuilds of each party's columns at each level; the most given away first."""
    rows = []
    levels: list[str] = []
    for p in report.parties:
        levels = list(p.gives_away) or levels
        scores = list(p.gives_away.values())
        few = p.gives_away.get("few", {})
        most = sorted(few, key=few.__getitem__, reverse=True)
        for column in most[:8]:
            rows.append([p.name, column, *(f"{of_level[column]:.2f}" for of_level in scores)])
    if rows:
        title = "What a decoder rebuilds, 0 to 1"
        print_table(["party", "column", *levels], rows, title, 2)
        print("  (0: no better than guessing, 1: exact; choose the level by `columns`)")
        if "sealed" in levels:
            print(
                "  (sealed: the bounds a party's own audit keeps; `protoevfl audit --party` measures it)"
            )


def _show_types(report: "Report") -> None:
    """One line per party and type."""
    for p in report.parties:
        kinds: dict[str, list[str]] = {}
        for name, kind in p.columns.items():
            kinds.setdefault(kind, []).append(name)
        listed = "; ".join(
            f"{kind}: {', '.join(n[:8])}{' ...' * (len(n) > 8)}" for kind, n in kinds.items()
        )
        print(f"{p.name}: {listed}")


def _common(report: "Report", name: str | None) -> str:
    """Common rows of a class, None for those without a label; a dash where an error came before
    they were counted."""
    if report.common is None or not report.common_classes:
        return "-"
    unlabelled = report.common - sum(report.common_classes.values())
    return f"{unlabelled if name is None else report.common_classes.get(name, 0):,}"


def show_metrics(figures: Mapping[str, Any], title: str) -> None:
    """All parties, every subset, and the commonest class."""
    if not figures["rows"]:
        print("no test rows were kept (test = 0)")
        return
    table = [["all parties", f"{figures['rows']:,}", *_numbers(figures["test"])]]
    if "alone" in figures:
        table.append(["alone, all its labels", f"{figures['rows']:,}", *_numbers(figures["alone"])])
    table += [
        [name, f"{m.get('rows', figures['rows']):,}", *_numbers(m)]
        for name, m in figures.get("subsets", {}).items()
    ]
    common = figures["majority"]
    constant = [f"always '{common['class']}'", f"{figures['rows']:,}", percent(common["accuracy"])]
    table.append([*constant, "-", "-", "-"])
    print_table(["parties", "rows", "accuracy %", "balanced %", "AUC %", "Brier"], table, title, 1)
    if "gain" in figures:
        print(joining(figures["gain"]))


def _numbers(m: Mapping[str, Any]) -> list[str]:
    rates = [
        percent(v) if (v := m[name]) is not None else "-"
        for name in ("accuracy", "balanced_accuracy", "auc")
    ]
    brier = m.get("brier")
    return [*rates, "-" if brier is None else f"{brier:.3f}"]


def show_cost(figures: Mapping[str, Any]) -> None:
    """Time and bytes of a training run."""
    up, down = (size(figures["bytes"][way]) for way in ("up", "down"))
    print(f"{duration(figures['seconds'])}, {figures['rounds']} rounds, {up} up, {down} down")


def show_worth(worth: "Worth") -> None:
    """What each party is worth, in points."""
    rows = [
        [
            s.party,
            *(f"{100 * x:+.1f}" for x in (s.value, s.low, s.high)),
            percent(s.alone),
            percent(s.without),
        ]
        for s in worth.shares
    ]
    what = "AUC" if worth.metric == "auc" else "accuracy"
    start = f"{worth.start} alone" if worth.start else "nobody"
    ends = f"{percent(worth.nobody)} with {start}, {percent(worth.everyone)} with all"
    title = f"Shapley value in points of {what}: {ends}"
    beside = f"with {worth.start} %" if worth.start else "alone %"
    print_table(["party", "value", "95 % from", "to", beside, "all others %"], rows, title, 1)
    print(
        f"measured on {worth.rows:,} rows; intervals tell the uncertainty of these rows, not of "
        "training again"
    )


def run_facts(run: "Run") -> dict[str, Any]:
    """A run directory for machines."""
    parties = {
        n: {"folder": n in run.parties, **(p.facts or {} if (p := run.parties.get(n)) else {})}
        for n in run.names
    }
    owner = run.owner
    kept = {} if owner is None else {"classes": list(owner.classes), "metrics": owner.metrics}
    return {**run.manifest, "parties": parties, "owner": kept}


def show_run(run: "Run") -> None:
    """A run directory for people."""
    m = run.manifest
    origin = f"made {m['created']} with protoevfl {m['versions']['protoevfl']}"
    print(f"{run.path}: {m['method']['name']}, seed {m['seed']}, {origin}")
    rows = []
    for name in run.names:
        facts = (run.parties[name].facts or {}) if name in run.parties else {}
        width = " x ".join(map(str, facts.get("features", [])))
        counts = ("rows", "pool", "train", "kept_aside")
        numbers = [f"{facts[n]:,}" if n in facts else "-" for n in counts]
        place = "here" if name in run.parties else "elsewhere"
        rows.append([name, place, *numbers, str(len(facts.get("columns", []))), width])
    head = ["party", "folder", "rows", "unaligned", "training", "kept aside", "columns", "features"]
    print_table(head, rows, "Parties (each folder holds that party's artefacts alone)", 2)
    if run.owner is None:
        print("the owner's folder is elsewhere: this copy can embed a party's rows, not predict")
        return
    class_rows = run.owner.metrics.get("class_rows", {})
    shown = [f"{c} ({class_rows.get(c, 0):,})" for c in run.owner.classes]
    print(f"classes: {listed(shown, most=MOST_CLASSES)}")
    show_metrics(run.owner.metrics, TEST_ROWS)
    print("every checksum is right")
