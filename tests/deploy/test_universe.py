"""What two companies share, as places in an order that only grows."""

import json
from pathlib import Path

import numpy as np
import pytest

from protoevfl.deploy.universe import FILE, Segment, Universe
from protoevfl.errors import UserError
from protoevfl.rows.align_wire import AlignmentError
from protoevfl.rows.alignment import make_result
from protoevfl.rows.ids import IdRules, Ids, collect


def ids_of(*values: str) -> Ids:
    return collect([list(values)], IdRules(), "file")


def test_both_sides_count_places_alike_and_a_later_place_of_an_id_counts(tmp_path: Path) -> None:
    party, active = Universe(tmp_path / "party"), Universe(tmp_path / "active")
    for digest, ids in (("d1", ("a", "b")), ("d2", ("c", "a"))):
        party.add(Segment(digest, ids))
        active.add(Segment(digest, ids), asked=["z", *ids])
    sizes = [len(s.ids) for s in party.segments]
    places = active.places(party.digests, sizes)
    assert places == {"a": 3, "b": 1, "c": 2}
    assert all(party.ids[place] == value for value, place in places.items())
    assert active.asked == {"a", "b", "c", "z"}


def test_a_segment_that_one_side_lacks_leaves_the_other_places_as_they_are(tmp_path: Path) -> None:
    active = Universe(tmp_path)
    active.add(Segment("d2", ("c",)))
    assert active.places(["d1", "d2"], [7, 1]) == {"c": 7}
    assert active.places(["d2"], [2]) == {}  # not of the size that is known here


def test_rows_are_found_by_id_wherever_they_stand_in_the_file(tmp_path: Path) -> None:
    universe = Universe(tmp_path)
    universe.add(Segment("d", ("a", "b", "c")))
    assert universe.rows(ids_of("x", "c", "a")).tolist() == [2, -1, 1]


def test_it_survives_the_process_and_a_repetition(tmp_path: Path) -> None:
    universe = Universe(tmp_path)
    for _ in range(2):
        universe.add(Segment("d", ("a",)), ["a"])
    again = Universe.load(tmp_path)
    assert (again.segments, again.asked) == (universe.segments, {"a"})
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    assert Universe.load(tmp_path / "nothing").segments == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"segments": 3}))
    with pytest.raises(UserError, match=FILE):
        Universe.load(tmp_path)


def test_a_segment_is_made_of_rows_that_are_still_those_that_were_aligned() -> None:
    ids = ids_of("a", "b", "c")
    alignment = make_result("shop", ids, np.array([2, 0]), ["c", "a"], b"k", {})
    assert Segment.of(alignment, ids).ids == ("c", "a")
    with pytest.raises(AlignmentError):
        Segment.of(alignment, ids_of("b", "a", "c"))
