"""A method and its privacy settings as plain JSON values, so that a kept run does not depend on later presets."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, cast

from protoevfl.config import PrivacyConfig
from protoevfl.errors import UserError
from protoevfl.method import Method
from protoevfl.presets import build
from protoevfl.privacy.policy import PrivacySettings, settings_from

ONE_WAY = ("local", "ss_vfl_i")  # nothing derived from labels leaves the owner, whatever the settings
CENTRAL = ("upper_bound",)  # needs all columns in one place: no federated run


def method_facts(method: Method) -> dict[str, Any]:
    """{"name", "settings"} with every field, dotted."""
    return {"name": method.name, "settings": dict(_dotted(asdict(cast(Any, method))))}


def method_from(facts: Mapping[str, Any]) -> Method:
    return build(facts["name"], "default", "table", facts["settings"])


def choose_method(
    name: str, preset: str, kind: str, overrides: Mapping[str, Any], privacy: PrivacyConfig | None = None
) -> Method:
    """The method for tables ("table") or images ("images"); in one-way mode without its label-derived rounds."""
    if name in CENTRAL:
        raise UserError(f"{name} needs all columns in one place, which separate files do not give; use another method")
    method = build(name, preset, kind, overrides)
    if privacy is None or privacy.preset != "one_way" or name in ONE_WAY:
        return method
    rounds = next((f for f in method_facts(method)["settings"] if f in ("rounds", "rounds.count")), None)
    if rounds is None:
        raise UserError(f'{name} sends what it derives from labels; [privacy] preset = "one_way" needs proto_evfl')
    return build(name, preset, kind, {**overrides, rounds: 0})


def privacy_settings(privacy: PrivacyConfig) -> PrivacySettings:
    """The preset's defences with the configuration's own values on top: the default shows no class of under 5 rows."""
    base: dict[str, Any] = {"delta": privacy.delta}
    if privacy.preset == "default":
        base["min_class_count"] = 5
    given = {
        "clip": privacy.clip,
        "prototype_noise": privacy.prototype_noise,
        "embedding_noise": privacy.embedding_noise,
        "label_epsilon": privacy.label_epsilon,
        "min_class_count": privacy.minimum_class_rows,
        "epsilon": privacy.epsilon_budget,
    }
    return settings_from({**base, **{name: value for name, value in given.items() if value is not None}})


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value
