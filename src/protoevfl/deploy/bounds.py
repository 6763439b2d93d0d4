"""Which settings of a job shape what leaves a party, and how far the other side may choose them.

Every setting of a method is in one of two lists. `OWNER` names those that only the active party's own
computing uses. `BOUNDS` gives each of the others the values a party accepts as delivered; a setting
in neither list is refused. A party widens or narrows them in its policy.toml:

    [settings]
    "warm.epochs" = [20, 200]     # from, to
    layers = ["output"]           # any of these

A method that is not listed here is taken with its preset's settings alone, unless policy.toml bounds
what a job changes. A new setting or method is added here and nowhere else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from protoevfl.errors import UserError
from protoevfl.validation import dotted

Bound = tuple[float, float] | frozenset[Any]  # from, to; or one (of a list: all) of these
Bounds = Mapping[str, Bound]
ANY: frozenset[Any] = frozenset({True, False})

# Requests that make a party learn before it answers. A changed active party may ask for something
# else first; the party then learns by itself (local.py).
FIRST: Mapping[str, tuple[str, ...]] = {"proto_evfl": ("WarmUp", "SendFeatures")}
OWNER: Mapping[str, tuple[str, ...]] = {
    "proto_evfl": (
        "head.", "own.", "head_each_round", "unseen.slot", "unseen.few_labels", "unseen.batch",
        "unseen.batch_rows", "unseen.open_bar", "unseen.self_training", "unseen.turns",
        "unseen.kernel_width", "unseen.least_rows", "unseen.kept_rows", "rounds.update",
        "rounds.rho", "rounds.adapted", "rounds.least_rows", "rounds.patience", "rounds.holdout", "rounds.guard",
    ),
    "probe": (),
}  # fmt: skip
BOUNDS: Mapping[str, Bounds] = {
    "proto_evfl": {
        # an extractor that has not learnt is a fixed map of the columns, and a fixed map is inverted:
        # enough epochs, steps that move it, batches small enough that an epoch has several
        "warm.epochs": (5, 500),
        "warm.batch": (16, 1024),
        "warm.lr": (1e-4, 1e-2),
        "warm.weight_decay": (0.0, 0.01),
        "warm.temperature": (0.05, 1.0),
        "warm.strength": (0.1, 2.0),
        "warm.corruption": (0.1, 0.9),
        "rounds.count": (0, 30),
        "rounds.epochs": (1, 50),
        "rounds.batch": (16, 1024),
        "rounds.lr": (1e-5, 1e-2),
        "rounds.weight_decay": (0.0, 0.1),
        "rounds.optimizer": frozenset({"adamw"}),
        "rounds.temperature": (0.05, 1.0),
        # a heavy transport cost without self-supervision draws every row to its prototype
        "rounds.weight": (0.0, 2.0),
        "rounds.ssl_weight": (0.5, 2.0),
        "rounds.selection": frozenset({"dual"}),
        "rounds.mixed_prior": ANY,
        "rounds.prior_steps": (1, 50),
        "rounds.prior_floor": (1e-4, 0.5),
        "rounds.learning": ANY,
        "layers": frozenset({"output", "hidden", "conv"}),
        "columns": frozenset({"open", "few", "sealed"}),
        # rounded numbers per row; all components together would be the columns
        "few": (1, 32),
        "width": (1, 128),
        "norm": frozenset({True}),
        "table": frozenset({"skip"}),
        "unseen.components": (1, 40),
        "unseen.pool_rows": (100, 100_000),
        "unseen.groups": (1, 32),
        "sealed.levels": (2, 5),
        "sealed.most_of_number": (0.0, 0.3),
        "sealed.most_of_category": (0.0, 0.5),
    },
    # made-up numbers: nothing of the party is in them, the size is bounded by max_message_mb
    "probe": {
        "rounds": (1, 200),
        "rows": (1, 10_000_000),
        "width": (1, 10_000),
        "seconds": (0.0, 3600.0),
    },
}


def objections(method: Any, changed: Sequence[str], own: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is wrong with a method's settings for a party.

    method    the method as the job would run it
    changed   names of the settings that the job itself sets
    own       [settings] of the party's policy.toml
    """
    bounds = {**BOUNDS.get(method.name, {}), **{name: parsed(name, b) for name, b in own.items()}}
    lines = []
    for name, value in dotted(asdict(method)):
        owner = OWNER.get(method.name, ())
        free = name in owner or f"{name.split('.')[0]}." in owner
        if name in bounds and not _within(value, bounds[name]):
            lines.append(f"{name} = {_text(value)}, accepted is {words(bounds[name])}")
        elif name not in bounds and not free and name in changed:
            lines.append(f"{name} is not a setting that a job may change here")
    return lines


def parsed(name: str, bound: Sequence[Any]) -> Bound:
    """A bound as policy.toml spells it: [from, to], or a list of texts or of true and false."""
    numbers = [v for v in bound if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(bound) == 2 and numbers[0] <= numbers[1]:
        return (float(numbers[0]), float(numbers[1]))
    if bound and not numbers:
        return frozenset(bound)
    raise UserError(
        f"policy.toml [settings]: '{name}' must be [from, to] or a list of texts, not {list(bound)}"
    )


def words(bound: Bound) -> str:
    if isinstance(bound, frozenset):
        return "one of " + ", ".join(sorted(map(_text, bound)))
    return f"{bound[0]:g} to {bound[1]:g}"


def _within(value: Any, bound: Bound) -> bool:
    if isinstance(bound, frozenset):
        return all(v in bound for v in (value if isinstance(value, list) else [value]))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and bound[0] <= cast(float, value) <= bound[1]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
