"""Methods and privacy settings survive JSON; one-way mode sends nothing made of labels."""

import json
from dataclasses import replace

import pytest

from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.privacy.policy import SUM_NOISE, PrivacySettings
from protoevfl.settings.config import PrivacyConfig
from protoevfl.settings.method_choice import (
    choose_method,
    kind_of,
    method_facts,
    method_from,
    privacy_of,
    privacy_settings,
)
from protoevfl.settings.presets import build

PLAIN = PrivacyConfig()


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("kind", ["table", "images"])
def test_every_method_comes_back_equal(name: str, kind: str) -> None:
    method = build(name, "default", kind)
    assert method_from(json.loads(json.dumps(method_facts(method)))) == method


def test_one_way_turns_rounds_off_and_refuses_methods_that_send_gradients() -> None:
    one_way = replace(PLAIN, preset="one_way")
    settings = method_facts(choose_method("proto_evfl", "default", "table", {}, one_way))[
        "settings"
    ]
    assert settings.get("rounds.count", settings.get("rounds")) == 0
    choose_method("local", "default", "table", {}, one_way)
    with pytest.raises(UserError, match="one_way"):
        choose_method("vanilla", "default", "table", {}, one_way)
    with pytest.raises(UserError, match="all columns in one place"):
        choose_method("upper_bound", "default", "table", {})


def test_privacy_values_replace_those_of_the_preset() -> None:
    default = privacy_settings(PLAIN, "proto_evfl")
    assert (
        default.prototype_noise == privacy_of("proto_evfl", "default", "table", {}).prototype_noise
    )
    assert default.min_class_count == 5
    assert privacy_settings(replace(PLAIN, preset="none"), "proto_evfl") == PrivacySettings()
    given = replace(
        PLAIN,
        clip=2.0,
        embedding_noise=0.1,
        minimum_class_rows=0,
        epsilon_budget=8.0,
        prototype_noise=1.0,
    )
    own = privacy_settings(given, "proto_evfl")
    assert (own.clip, own.embedding_noise, own.min_class_count, own.epsilon) == (2.0, 0.1, 0, 8.0)
    assert own.prototype_noise == 1.0


@pytest.mark.parametrize("kind", ["table", "images"])
def test_every_way_of_training_on_own_rows_hides_classes_of_under_five(kind: str) -> None:
    """`train` asks for the first, the scikit-learn class for the second, a job for
    `presets.settings`."""
    assert privacy_settings(PLAIN, "vanilla", kind=kind).min_class_count == 5
    assert privacy_of("vanilla", "default", kind, {}).min_class_count == 5
    assert (
        privacy_of("vanilla", "default", kind, {"privacy.min_class_count": 0}).min_class_count == 0
    )
    assert privacy_of("vanilla", "default", "digits", {}).min_class_count == 0


def test_images_beside_columns_need_a_method_whose_width_can_be_set() -> None:
    assert [kind_of(k) for k in (["table", "table"], ["images"], ["images", "table"])] == [
        "table",
        "images",
        "mixed",
    ]
    settings = method_facts(choose_method("proto_evfl", "default", "mixed", {"head.epochs": 3}))[
        "settings"
    ]
    assert (settings["layers"], settings["head.epochs"]) == (["output"], 3)
    with pytest.raises(UserError, match="use proto_evfl"):
        choose_method("vanilla", "default", "mixed", {})


def test_the_sealed_level_brings_its_own_defences() -> None:
    """Noise on the sums for tables, none for images, however the level was asked for."""
    for kind, sigma in (("table", SUM_NOISE), ("images", 0.0)):
        for preset, overrides in (("sealed", {}), ("default", {"columns": "sealed"})):
            found = privacy_of("proto_evfl", preset, kind, overrides)
            assert (found.sealed_noise, found.sealed_epsilon) == (sigma, 3.0)
    weaker = {"columns": "sealed", "privacy.sum_noise": 0.5}
    assert privacy_of("proto_evfl", "default", "table", weaker).sealed_noise == 0.5
