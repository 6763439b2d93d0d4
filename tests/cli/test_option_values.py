"""Option values: lists of numbers and settings."""

import pytest

from protoevfl.cli.option_values import _value_of, settings_for, whole_numbers
from protoevfl.errors import UserError


def test_numbers_and_ranges() -> None:
    assert whole_numbers("0-4", "--seeds") == [0, 1, 2, 3, 4]
    assert whole_numbers("7, 0-2,1", "--seeds") == [7, 0, 1, 2]
    assert whole_numbers("", "--classes") == []


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "1.5", "0-99999999999", "1--2", "²"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--seeds"):
        whole_numbers(text, "--seeds")


def test_seeds_are_needed() -> None:
    with pytest.raises(UserError, match="at least one"):
        whole_numbers(" , ", "--seeds")


def test_settings_go_to_all_methods_or_to_one() -> None:
    found = settings_for(["a", "b"], ["x=1", "b:x=2", "b:head.mode=a:b=c", "a:y=none"])
    assert found == {"a": {"x": 1, "y": None}, "b": {"x": 2, "head.mode": "a:b=c"}}


@pytest.mark.parametrize("text", ["x", "=1", "a:=1", "c:x=1"])
def test_settings_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--set"):
        settings_for(["a", "b"], [text])


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_methods_are_named_once(names: list[str]) -> None:
    with pytest.raises(UserError, match="--methods"):
        settings_for(names, [])


def test_values() -> None:
    assert [_value_of(t) for t in ("1", "1e-3", "True", "None", "dual", "[1, 2]")] == [
        1,
        1e-3,
        True,
        None,
        "dual",
        [1, 2],
    ]
