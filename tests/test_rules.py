"""What a field allows, in the words of an error, and an annotation taken apart."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from protoevfl.rules import NAMES, TEXT, Between, Decided, Listed, OneOf, parts, wanted


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[int, Between(1, 9)], "a whole number from 1 to 9"),
        (Annotated[float, Between(0, 0.5)] | None, "a number from 0 to 0.5 or none"),
        (Annotated[str, OneOf(("few", "all"))] | None, "one of few, all or none"),
        (tuple[float, float], "a list of 2 numbers"),
        (bool, "true or false"),
        (Path, "a text in quotes"),
        (TEXT, "a text in quotes"),
        (NAMES, "a list of names in quotes"),
        (dict[str, Any], "a table ([...] with keys below it)"),
    ],
)
def test_an_annotation_reads_as_words(hint: Any, words: str) -> None:
    assert wanted(hint, " or none") == words


def test_an_annotation_is_a_type_and_its_rules_without_none() -> None:
    rule = Between(1, 9)
    assert parts(Annotated[int, rule] | None) == (int, (rule,))
    assert parts(Annotated[int | None, rule]) == (int, (rule,))
    assert parts(str) == (str, ())


@pytest.mark.parametrize("value", [["a", "a"], [""], [1], 3, {}])
def test_a_list_of_names_has_no_other_thing_and_nothing_twice(value: Any) -> None:
    with pytest.raises(ValueError, match="a list"):
        Listed()._names(value)
    assert Listed(every=True)._names("all") is None
    assert Listed()._names("a") == ("a",)


@pytest.mark.parametrize("value", ["x", {}, {"yes": 1}, {"yes": True}, {"yes": "0.5"}, 0.5])
def test_a_rule_of_decision_is_a_known_name_or_thresholds_within_0_and_1(value: Any) -> None:
    rule = Decided(("likeliest",))
    with pytest.raises(ValueError, match="one of likeliest, or a table"):
        rule._rule(value)
    assert rule._rule("likeliest") == "likeliest"
    assert rule._rule({"yes": 0.3}) == {"yes": 0.3}
