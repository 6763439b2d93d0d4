"""A method and its privacy settings as plain JSON values, so that a kept run does not depend on
later presets."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.privacy.policy import PrivacySettings, settings_from, split_overrides
from protoevfl.settings.config import PrivacyConfig
from protoevfl.settings.presets import build, settings
from protoevfl.validation import dotted, over_shipped

# nothing derived from labels leaves the owner, whatever the settings
ONE_WAY = ("local", "ss_vfl_i")
CENTRAL = ("upper_bound", "pooled_boosting")  # need all columns in one place: no federated run
BENCH_ONLY = ("vertical_logistic",)  # keep no model that could predict later


def method_facts(method: Method) -> dict[str, Any]:
    """{"name", "settings"} with every field, dotted."""
    return {"name": method.name, "settings": dict(dotted(asdict(cast(Any, method))))}


def method_from(facts: Mapping[str, Any]) -> Method:
    return build(facts["name"], "default", "table", facts["settings"])


def kind_of(kinds: Iterable[str]) -> str:
    """The kind of a run from those of its parties: "table", "images", or "mixed"."""
    distinct = set(kinds)
    return distinct.pop() if len(distinct) == 1 else "mixed"


def choose_method(
    name: str,
    preset: str,
    kind: str,
    overrides: Mapping[str, Any],
    privacy: PrivacyConfig | None = None,
) -> Method:
    """The method for a kind of data; in one-way mode without the rounds that are made of labels."""
    if name in CENTRAL:
        raise UserError(
            f"{name} needs all columns in one place, which separate files do not give; use another "
            "method"
        )
    if name in BENCH_ONLY:
        raise UserError(
            f"{name} keeps no model to predict with later; it is for `protoevfl bench`, use "
            "another method"
        )
    given = dict(overrides)
    if kind == "mixed":
        given = {**_equal_widths(name, preset, overrides), **given}
    method = build(name, preset, _presets_of(kind), given)
    if privacy is None or privacy.preset != "one_way" or name in ONE_WAY:
        return method
    rounds = next(
        (f for f in method_facts(method)["settings"] if f in ("rounds", "rounds.count")), None
    )
    if rounds is None:
        raise UserError(
            f'{name} sends what it derives from labels; [privacy] preset = "one_way" needs '
            "proto_evfl"
        )
    return build(name, preset, _presets_of(kind), {**given, rounds: 0})


def _presets_of(kind: str) -> str:
    return "images" if kind == "images" else "table"


def _equal_widths(name: str, preset: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Parties of columns and of images must send embeddings of one width: the output layer, of the
    method's width."""
    settings = method_facts(build(name, preset, "table", overrides))["settings"]
    if not {"width", "layers"} <= set(settings):
        raise UserError(
            f"some parties hold images and others columns, whose embeddings differ under {name}; "
            "use proto_evfl"
        )
    return {"layers": ["output"]}


def privacy_settings(
    privacy: PrivacyConfig, method: str, preset: str = "default", kind: str = "table",
    overrides: Mapping[str, Any] | None = None,
) -> PrivacySettings:  # fmt: skip
    """Defences of the method's preset with the configuration's own values on top; "none" starts
    from nothing."""
    base: dict[str, Any] = {}
    if privacy.preset != "none":
        base = asdict(privacy_of(method, preset, _presets_of(kind), overrides or {}))
    given = {
        "clip": privacy.clip,
        "prototype_noise": privacy.prototype_noise,
        "embedding_noise": privacy.embedding_noise,
        "label_epsilon": privacy.label_epsilon,
        "min_class_count": privacy.minimum_class_rows,
        "epsilon": privacy.epsilon_budget,
        "delta": privacy.delta,
    }
    return settings_from(
        {**base, **{name: value for name, value in given.items() if value is not None}}
    )


def privacy_of(
    method: str, preset: str, dataset: str, overrides: Mapping[str, Any]
) -> PrivacySettings:
    """The privacy settings of a preset ("privacy.*") with overrides on top."""
    if preset == "default" and overrides.get("columns") == "sealed":
        preset = "sealed"  # the level has defences of its own
    shipped, given = (
        split_overrides(values)[1] for values in (settings(method, preset, dataset), overrides)
    )
    return over_shipped(PrivacySettings, shipped, given, "privacy")
