"""What a notebook shows of a model: its parameters; once it is fitted also the parties, whether
joining pays, and what crossed."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from protoevfl.core.decisions import joining
from protoevfl.privacy.levels import LEVELS
from protoevfl.progress import duration, size

NOT_MEASURED = (
    "Whether joining pays was not measured yet: model.measure(new_tables, new_labels), with rows "
    "that took no part in training."
)


class Table(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def card(model: Any) -> str:
    """The HTML; all that comes from data is escaped."""
    fitted = hasattr(model, "owner_")
    facts: dict[str, Any] = {
        "title": type(model).__name__,
        "state": "not fitted yet",
        "fitted": fitted,
        "parameters": [(name, repr(value)) for name, value in sorted(model.get_params().items())],
    }
    if fitted:
        figures = getattr(model, "measured_", None)
        labels = len(model.owner_.labels)
        facts["state"] = f"fitted on {labels:,} labelled rows that all parties have"
        facts["verdict"] = [NOT_MEASURED] if figures is None else _verdict(model, figures)
        tables = [_parties(model, figures)]
        facts["tables"] = tables if figures is None else [*tables, _rates(model, figures)]
        facts["crossed"] = _crossed(model)
    rendered: str = _template().render(facts)
    return rendered


def _verdict(model: Any, figures: Mapping[str, Any]) -> list[str]:
    sentence = joining(figures["gain"], model.party_names_[0])
    where = f"Measured on {figures['rows']:,} rows that took no part in training."
    return [sentence[0].upper() + sentence[1:], where]


def _parties(model: Any, figures: Mapping[str, Any] | None) -> Table:
    """One line per party: its columns, and what it is worth where that was measured."""
    worth = {share["party"]: share for share in (figures or {}).get("value", {}).get("parties", [])}
    rows = []
    for number, name in enumerate(model.party_names_):
        columns = len(model.parties_[name].encoder.columns)
        role = "labels, model" if number == 0 else ""
        points = "" if name not in worth else _points(worth[name])
        rows.append([name, role, str(columns), points])
    if not worth:
        return Table(("party", "holds", "columns"), [row[:3] for row in rows])
    what = "AUC" if (figures or {})["value"]["metric"] == "auc" else "accuracy"
    return Table(("party", "holds", "columns", f"worth, points of {what} (95 %)"), rows)


def _points(share: Mapping[str, float]) -> str:
    value, low, high = (100 * share[name] for name in ("value", "low", "high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _rates(model: Any, figures: Mapping[str, Any]) -> Table:
    """All parties beside the first one alone."""
    lines = {"all parties": figures["test"], f"{model.party_names_[0]} alone": figures["alone"]}
    rows = [
        [
            who,
            _percent(rates["auc"]),
            _percent(rates["accuracy"]),
            _percent(rates["balanced_accuracy"]),
            f"{rates['brier']:.3f}",
        ]
        for who, rates in lines.items()
    ]
    return Table(("", "AUC %", "accuracy %", "balanced %", "Brier"), rows)


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f}"


def _crossed(model: Any) -> list[str]:
    """What left the parties while it was trained."""
    sentences = []
    cost = model.cost_
    if "bytes" in cost:
        up, down = (size(cost["bytes"][way]) for way in ("up", "down"))
        sentences.append(
            f"Crossed while training ({duration(cost['seconds'])}): {up} to "
            f"{model.party_names_[0]}, {down} from it."
        )
    method = next(iter(model.parties_.values())).method
    if (level := getattr(method, "columns", None)) in LEVELS:
        sentences.append(f"Level “{level}”: {LEVELS[level]}.")
    if spent := cost.get("epsilon"):
        each = ", ".join(f"{model.party_names_[int(m)]} {eps:.2f}" for m, eps in spent.items())
        sentences.append(f"Proven for each label, epsilon: {each}.")
    return sentences


@cache
def _template() -> Any:
    from jinja2 import Environment

    text = files("protoevfl.estimator").joinpath("card.html").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(text)
