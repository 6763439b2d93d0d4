"""Alignment: exact, the same order everywhere, spelling traps harmless or refused, tampering
refused, sizes only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protoevfl.errors import UserError
from protoevfl.rows.align import Active, Passive, align, plain_intersection
from protoevfl.rows.align_wire import AlignmentError, decode, encode
from protoevfl.rows.alignment import Alignment, same_order
from protoevfl.rows.ids import IdRules, Ids, collect
from protoevfl.rows.psi import POINT, curve

pytest.importorskip("private_set_intersection")
small = st.sets(st.integers(0, 30).map(str), max_size=12)


def ids(*values: object, casefold: bool = False) -> Ids:
    return collect([list(values)], IdRules(casefold), "file")


def names(alignment: Alignment, of: Ids) -> list[str]:
    at = dict(zip(of.rows.tolist(), of.values))
    return [at[row] for row in alignment.rows.tolist()]


@settings(max_examples=25, deadline=None)
@given(st.lists(small, min_size=2, max_size=4), st.randoms())
def test_exact_and_ordered_alike(sets: list[set[str]], random: object) -> None:
    parties = {f"p{i}": ids(*random.sample(sorted(s), len(s))) for i, s in enumerate(sets)}  # type: ignore[attr-defined]
    results = align(parties, "p0", minimum=0, processes=1)
    lists = [names(results[name], parties[name]) for name in parties]
    assert set(lists[0]) == set.intersection(*sets)
    assert all(one == lists[0] for one in lists)
    assert len({r.digest for r in results.values()}) == 1
    same_order(results.values())


def test_plain_equals_private_for_the_same_key() -> None:
    parties = {"a": ids(*range(60)), "b": ids(*range(59, 20, -1)), "c": ids(*range(10, 50))}
    private = align(parties, "a", 10, 1, run_key=b"k")
    plain = plain_intersection(parties, run_key=b"k")
    for name in parties:
        assert private[name].rows.tolist() == plain[name].rows.tolist()
        assert private[name].digest == plain[name].digest


def test_order_is_fresh_and_independent_of_the_files() -> None:
    parties = {"a": ids(*range(100)), "b": ids(*range(100))}
    one, two = (align(parties, "a", processes=1) for _ in range(2))
    assert one["a"].rows.tolist() != two["a"].rows.tolist()
    assert one["a"].digest != two["a"].digest
    assert abs(np.corrcoef(one["b"].rows, np.arange(100))[0, 1]) < 0.5


TRAPS = [
    (["AB1", "X"], ["ab1", "X"], False, 1),  # case
    (["AB1", "X"], ["ab1", "X"], True, 2),
    (["A1 ", "X"], ["A1", "X"], False, 2),  # trailing space
    (["00123", "X"], [123, "X"], False, 1),  # leading zeros are kept
    (["Mu\u0308ller"], ["M\u00fcller"], False, 1),  # NFC / NFD
    ([123.0, 5.0], ["123", "5.0"], False, 2),  # 123.0 for 123
]


@pytest.mark.parametrize(("left", "right", "casefold", "matches"), TRAPS)
def test_traps(left: list[object], right: list[object], casefold: bool, matches: int) -> None:
    parties = {"a": ids(*left, casefold=casefold), "b": ids(*right, casefold=casefold)}
    assert len(align(parties, "a", 0, 1)["b"].rows) == matches


def test_empty_and_repeated_ids_never_reach_the_protocol() -> None:
    for bad in (["", "x"], [None, "x"], ["7", 7.0]):
        with pytest.raises(UserError, match="row"):
            ids(*bad)


def test_minimum_names_the_likely_reason() -> None:
    parties = {"bank": ids(*(f"{i:05d}" for i in range(90))), "shop": ids(*range(90))}
    with pytest.raises(
        UserError, match=r"only 0 rows in common, fewer than the minimum 50.*5 to 5 characters"
    ):
        align(parties, "bank", processes=1)
    with pytest.raises(UserError, match="leading zeros"):
        plain_intersection(parties, minimum=50)


def exchange(a: Ids, b: Ids, minimum: int = 1) -> tuple[Active, Passive, list[bytes]]:
    with curve(1) as on:
        active, passive = Active("a", a, on, minimum), Passive("b", b, on, minimum)
        setup = passive.setup()
        request = active.request("b", setup)
        response = passive.respond(request)
        active.receive("b", response)
        return active, passive, [setup, request, response, active.select()["b"]]


def test_what_crosses_has_only_sizes_in_it() -> None:
    a, b = ids(*(f"customer-{i:05d}" for i in range(7)), "x", "y"), ids("x", "y", "z")
    _, passive, (setup, request, response, selection) = exchange(a, b)
    rules = a.rules.digest()
    assert len(decode(setup, "setup", rules)) == 3 * POINT
    assert (
        len(decode(request, "request", rules))
        == len(decode(response, "response", rules))
        == 9 * POINT
    )
    assert passive.select(selection)[0].counts["active_ids"] == 9
    assert not any(
        value.encode() in setup + request + response + selection for value in a.values[:7]
    )


def test_keys_are_fresh_every_run() -> None:
    a, b = ids("x", "y"), ids("x", "z")
    assert not set(exchange(a, b)[2]) & set(exchange(a, b)[2])


def test_points_come_sorted_so_the_file_order_stays_home() -> None:
    for message in exchange(ids(*range(30)), ids(*range(30)))[2][:2]:
        points = [message[-30 * POINT :][i : i + POINT] for i in range(0, 30 * POINT, POINT)]
        assert points == sorted(points)


def test_tampered_selection_is_refused() -> None:
    _, passive, messages = exchange(ids(*range(9)), ids(*range(9)))
    selection = messages[-1]
    swapped = selection[:-8] + selection[-4:] + selection[-8:-4]
    with pytest.raises(AlignmentError, match="digest"):
        passive.select(swapped)
    with pytest.raises(AlignmentError, match="never offered"):
        passive.select(selection[:-4] + b"\0\0\1\0")
    with pytest.raises(AlignmentError, match="never offered"):
        passive.select(selection[:-4] + selection[-8:-4])
    with pytest.raises(AlignmentError, match="cut short"):
        passive.select(selection[:-4])


def test_echoed_or_foreign_confirmation_is_refused() -> None:
    active, passive, messages = exchange(ids(*range(9)), ids(*range(9)))
    rules, selection = IdRules().digest(), messages[-1]
    _, confirmation = passive.select(selection)
    active.confirm("b", confirmation)
    echoed = encode("confirm", rules, decode(selection, "selection", rules)[32:64])
    for bad in (echoed, encode("confirm", rules, b"\0" * 32)):
        with pytest.raises(AlignmentError, match="same ordered ids"):
            active.confirm("b", bad)


def test_different_rules_stop_at_the_first_message() -> None:
    with curve(1) as on:
        setup = Passive("b", ids("x", casefold=True), on).setup()
        with pytest.raises(AlignmentError, match="normalise ids differently"):
            Active("a", ids("x"), on).request("b", setup)


def test_malformed_messages() -> None:
    rules = IdRules().digest()
    with curve(1) as on:
        active, passive = Active("a", ids("x", "y"), on), Passive("b", ids("x"), on, limit=1)
        for bad in (b"", b"PEVA", b"x" * 60, encode("setup", rules, b"1234")):
            with pytest.raises(AlignmentError):
                active.request("b", bad)
        with pytest.raises(AlignmentError, match="out of order"):
            active.request("b", encode("request", rules, b""))
        with pytest.raises(AlignmentError, match="sorted"):
            active.request("b", encode("setup", rules, b"\2" * 2 * POINT))
        with pytest.raises(AlignmentError, match="limit 1"):
            passive.respond(active.request("b", passive.setup()))
        with pytest.raises(AlignmentError, match="1 points for 2 ids"):
            active.receive("b", encode("response", rules, b"\2" * POINT))


def test_dropped_rows_keep_their_file_numbers() -> None:
    a = collect([["x", "", "y", "d", "d", "z"]], IdRules(), "f", on_bad="drop")
    results = align({"a": a, "b": ids("z", "y", "x", "d")}, "a", 1, 1)
    assert sorted(results["a"].rows.tolist()) == [0, 2, 5]
    assert results["a"].counts["dropped"] == 3
    assert results["a"].counts["matched"] == 3
    assert results["a"].counts["shared_with_b"] == 3


def test_one_party_cannot_align() -> None:
    with pytest.raises(AlignmentError, match="at least one other"):
        align({"a": ids("x")}, "a")
