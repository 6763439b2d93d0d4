"""Curves and tables of two, of several and of many classes."""

import pytest

from protoevfl.report.parts import Cell, Charts, Table, Words
from protoevfl.report.quality import rule_in_words, sections
from tests.report.made_up import made_up


def parts_of(measured: object, anchor: str) -> list[object]:
    found = {section.anchor: section for section in sections(measured)}  # type: ignore[arg-type]
    return list(found[anchor].parts)


def test_two_classes_have_one_curve_per_model() -> None:
    (charts,) = (part for part in parts_of(made_up(), "ranking") if isinstance(part, Charts))
    roc, precision = charts.charts
    assert [series.dashed for series in roc.series] == [False, True]
    assert len(precision.chance) == 2


def test_several_classes_have_curves_of_the_commonest_and_a_line_each() -> None:
    measured = made_up(tuple("abcde"))
    charts, table = (
        part for part in parts_of(measured, "ranking") if isinstance(part, Charts | Table)
    )
    assert isinstance(charts, Charts)
    assert isinstance(table, Table)
    assert len(charts.charts[0].series) == 6
    assert sorted(str(line[0]) for line in table.lines) == list("abcde")


def test_the_confusion_table_counts_every_row() -> None:
    measured = made_up(("a", "b", "c"))
    (table,) = (part for part in parts_of(measured, "confusion") if isinstance(part, Table))
    counts = [[int(cell.text) for cell in line if isinstance(cell, Cell)] for line in table.lines]
    assert sum(map(sum, counts)) == len(measured.labels)
    right = sum(counts[z][z] for z in range(3))
    assert right == round(measured.figures["test"]["accuracy"] * len(measured.labels))


def test_of_many_classes_the_commonest_mistakes_are_listed() -> None:
    measured = made_up(tuple(f"class {z}" for z in range(40)), rows=2000)
    (table,) = (part for part in parts_of(measured, "confusion") if isinstance(part, Table))
    assert table.heads == ("is", "called", "rows", "of")
    counts = [int(str(line[2])) for line in table.lines]
    assert counts == sorted(counts, reverse=True)
    assert len(counts) == 15


def test_rows_of_one_class_are_said_and_not_drawn() -> None:
    measured = made_up()
    measured.labels.zero_()
    shown = parts_of(measured, "ranking") + parts_of(measured, "gains")
    assert all(isinstance(part, Words) for part in shown)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("likeliest", "likeliest class"),
        ("balanced", "usual rate"),
        ({1: 0.25}, "“yes” from a probability of 25 % on"),
    ],
)
def test_the_rule_in_words(rule: object, words: str) -> None:
    assert words in rule_in_words(rule, ["no", "yes"])  # type: ignore[arg-type]
