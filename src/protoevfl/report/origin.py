"""How a run was made: rows, settings, versions, date; the last section of the page."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from protoevfl.artifacts.run_dir import Run
from protoevfl.progress import duration
from protoevfl.report.parts import NOTHING, Folded, Part, Section, Table, Words, listed
from protoevfl.report.quality import rule_in_words

KINDS = (
    ("rows", "rows in the file"),
    ("train", "shared by all, learnt from"),
    ("kept_aside", "shared by all, kept aside"),
    ("further", "shared by some"),
    ("pool", "of its own"),
)


def origin(run: Run) -> Section:
    return Section("origin", "How was it made?", list(_parts(run)))


def _parts(run: Run) -> Iterator[Part]:
    owner = run.need_owner()
    measured = owner.metrics
    created = datetime.fromisoformat(run.manifest["created"])
    away = [name for name in run.names if name not in run.parties]
    seconds = f", {duration(measured['seconds'])}" if "seconds" in measured else ""
    yield Words(
        f"Trained on {created:%d %B %Y} at {created:%H:%M} UTC by {run.manifest['method']['name']} "
        f"(protoevfl {run.manifest['versions']['protoevfl']}) on {measured.get('device', 'cpu')}"
        f"{seconds}, {_rounds(measured['rounds'])}. Labels: column "
        f"“{owner.label_column}” of {owner.parties[0]}."
    )
    yield _rows(run)
    if away:
        yield Words(
            f"The rows of {listed(away)} are known to {'it' if len(away) == 1 else 'them'} alone.",
            "soft",
        )
    yield _classes(run)
    for note in measured.get("notes", []):
        yield Words(f"Note from the run: {note}.", "soft")
    yield Folded("Every setting", (_settings(run),))
    versions = [(name, version) for name, version in run.manifest["versions"].items()]
    yield Folded("Versions", (Table("Software", ("package", "version"), versions, words=(1,)),))


def _rounds(count: int) -> str:
    return "1 round of messages" if count == 1 else f"{count} rounds of messages"


def _rows(run: Run) -> Table:
    lines = []
    for name in run.names:
        facts: dict[str, Any] = (run.parties[name].facts or {}) if name in run.parties else {}
        counts = [f"{facts[kind]:,}" if kind in facts else NOTHING for kind, _ in KINDS]
        width = f"{len(facts['columns']):,}" if "columns" in facts else NOTHING
        lines.append((name, *counts, width))
    heads = ("party", *(title for _, title in KINDS), "columns")
    return Table("Rows of each kind", heads, lines)


def _classes(run: Run) -> Table:
    owner = run.need_owner()
    known = owner.metrics.get("class_rows", {})
    test = owner.test.labels
    lines = [
        (name, f"{known[name]:,}" if name in known else NOTHING, f"{int((test == z).sum()):,}")
        for z, name in enumerate(owner.classes)
    ]
    return Table("Labelled rows", ("class", "learnt from", "kept aside"), lines)


def _settings(run: Run) -> Table:
    owner = run.need_owner()
    given = {
        "decision": rule_in_words(owner.decision, owner.classes),
        **run.manifest["method"]["settings"],
        **{f"privacy.{name}": value for name, value in run.manifest["privacy"].items()},
    }
    lines = [(name, _text(value)) for name, value in given.items()]
    return Table("Settings", ("setting", "value"), lines, words=(1,))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
