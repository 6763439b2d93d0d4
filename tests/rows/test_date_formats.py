"""Dates in every order are the same days; days that do not exist are none."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoevfl.rows.date_formats import ORDERS, parse, parts

FORMATS = [
    ("%d/%m/%Y", "day_first"),
    ("%d.%m.%y", "day_first"),
    ("%m/%d/%Y", "month_first"),
    ("%m-%d-%Y", "month_first"),
    ("%Y/%m/%d", "year_first"),
    ("%Y-%m-%d", "year_first"),
    ("%d %b %Y", "named"),
    ("%d-%b-%y", "named"),
    ("%B %d, %Y", "named"),
]


@given(st.dates(date(1940, 1, 1), date(2039, 12, 31)), st.sampled_from(FORMATS))
def test_a_date_is_the_day_it_names(day: date, form: tuple[str, str]) -> None:
    days, bad = parse(pa.array([day.strftime(form[0])]), form[1])
    assert not bad[0]
    assert days[0] == (day - date(1970, 1, 1)).days


def test_the_time_of_day_is_a_fraction() -> None:
    texts = ["31/01/2020 18:00", "31/01/2020 6:00:00 PM", "31/01/2020T00:00:00", "31/01/2020"]
    days, _ = parse(pa.array(texts), "day_first")
    start = (datetime(2020, 1, 31) - datetime(1970, 1, 1)).days
    assert (days - start).tolist() == pytest.approx([0.75, 0.75, 0, 0])


@pytest.mark.parametrize(
    "text", ["31/04/2020", "29/02/2021", "00/01/2020", "1/1/2020 25:00", "1/1/2020 13:00 PM", "x"]
)
def test_what_is_no_day_is_none_in_any_order(text: str) -> None:
    for order in ORDERS:
        days, bad = parse(pa.array([text, None]), order)
        assert bad.tolist() == [True, False]
        assert np.isnan(days).all()


def test_parts_of_dates_that_could_be_either_way_round() -> None:
    first, second, short = parts(pa.array(["3/14/20", "03/04/2020", "2020-01-02"]))
    assert first[:2].tolist() == [3, 3]
    assert second[:2].tolist() == [14, 4]
    assert np.isnan(first[2])
    assert short.tolist() == [True, False, False]
