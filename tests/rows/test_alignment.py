"""An alignment survives its folder exactly; any change to rows, file or digest is caught before
training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protoevfl.errors import UserError
from protoevfl.rows.align import plain_intersection
from protoevfl.rows.alignment import Alignment, digest_key, order, prove, same_order, verify
from protoevfl.rows.ids import IdRules, Ids, collect


def ids(*values: object) -> Ids:
    return collect([list(values)], IdRules(), "file")


A, B = ids(*range(60)), ids(*range(5, 65))


@pytest.fixture
def results() -> dict[str, Alignment]:
    return plain_intersection({"a": A, "b": B})


def test_verify_catches_a_changed_file(results: dict[str, Alignment]) -> None:
    verify(results["a"], A)
    with pytest.raises(UserError, match="run align again"):
        verify(results["a"], ids(*range(1, 60), 0))
    with pytest.raises(UserError, match="run align again"):
        verify(results["a"], ids(*range(30)))


def test_verify_catches_changed_rows(results: dict[str, Alignment]) -> None:
    with pytest.raises(UserError, match="run align again"):
        verify(replace(results["a"], rows=results["a"].rows[::-1]), A)


def test_same_order(results: dict[str, Alignment]) -> None:
    same_order(results.values())
    with pytest.raises(UserError, match="aligned differently"):
        same_order({"a": results["a"].digest, "b": "0" * 64})
    with pytest.raises(UserError, match="aligned differently"):
        same_order([results["a"], plain_intersection({"a": A, "b": B}, run_key=b"other")["b"]])


def test_save_and_load(results: dict[str, Alignment], tmp_path: Path) -> None:
    results["a"].save(tmp_path / "a")
    again = Alignment.load(tmp_path / "a")
    assert np.array_equal(again.rows, results["a"].rows)
    assert replace(again, rows=results["a"].rows) == results["a"]
    verify(again, A)


def test_damage_is_refused(results: dict[str, Alignment], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run align first"):
        Alignment.load(tmp_path)
    for name in ("aligned_rows.i64", "alignment.json"):
        results["a"].save(tmp_path)
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(UserError, match="damaged"):
            Alignment.load(tmp_path)


def test_order_depends_on_ids_and_key_only() -> None:
    values = [str(v) for v in range(50)]
    forward = [values[i] for i in order(values, b"k")]
    backward = [values[::-1][i] for i in order(values[::-1], b"k")]
    assert forward == backward
    assert forward != [values[i] for i in order(values, b"other")]


def test_proof_is_of_the_list_and_the_role() -> None:
    key = digest_key(b"k")
    proofs = {
        prove(key, r, v)
        for r in ("active", "passive")
        for v in (["a", "b"], ["b", "a"], ["ab"], ["a"])
    }
    assert len(proofs) == 8
