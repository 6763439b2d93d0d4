"""A section refuses what it does not know and what is out of range, and says where."""

from pathlib import Path

import pytest

from protoevfl.errors import UserError, nearest
from protoevfl.toml_section import Section, read_toml

GOOD = {"t": "x", "n": 3, "r": 0.5, "b": True, "l": ["a", "b"], "s": [1, 28, 28]}


def section(**values: object) -> Section:
    return Section({**GOOD, **values}, "f.toml [x]", (*GOOD, "absent"))


def test_good_values_come_through() -> None:
    s = section()
    assert (s.text("t"), s.whole("n", 0, 0), s.real("r", 0.0, 0, 1), s.flag("b", False)) == ("x", 3, 0.5, True)
    assert (s.names("l"), s.names("t"), s.sizes("s")) == (("a", "b"), ("x",), (1, 28, 28))
    assert s.real("absent", None, 0, 1) is None
    assert s.real("n", 0.0, 0, 5) == 3.0


@pytest.mark.parametrize(
    ("key", "value", "getter"),
    [
        ("t", 3, lambda s: s.text("t")),
        ("t", " ", lambda s: s.text("t")),
        ("n", True, lambda s: s.whole("n", 0, 0)),
        ("n", -1, lambda s: s.whole("n", 0, 0)),
        ("n", 1.5, lambda s: s.whole("n", 0, 0)),
        ("r", "x", lambda s: s.real("r", 0.0, 0, 1)),
        ("r", 2, lambda s: s.real("r", 0.0, 0, 1)),
        ("r", float("nan"), lambda s: s.real("r", 0.0, 0, 1)),
        ("b", 1, lambda s: s.flag("b", False)),
        ("l", ["a", "a"], lambda s: s.names("l")),
        ("l", ["a", 1], lambda s: s.names("l")),
        ("l", 5, lambda s: s.names("l")),
        ("s", [1, 0], lambda s: s.sizes("s")),
        ("s", [1], lambda s: s.sizes("s")),
    ],
)
def test_wrong_values_name_place_and_key(key: str, value: object, getter: object) -> None:
    with pytest.raises(UserError, match=rf"f.toml \[x\]: {key} must be"):
        getter(section(**{key: value}))  # type: ignore[operator]


def test_unknown_and_missing_keys() -> None:
    with pytest.raises(UserError, match=r"f.toml \[x\] has no key 'absnt'; did you mean 'absent'\?"):
        section(absnt=1)
    with pytest.raises(UserError, match="needs the key 'absent'"):
        section().text("absent")
    with pytest.raises(UserError, match="'y' is unknown; did you mean 'yes'"):
        section(t="y").choice("t", ["yes", "no"])
    assert nearest("zzz", ["b", "a"]) == "known are a, b"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot read .*: No such file"),
        (b"a = ", "is not valid TOML"),
        ("a = 'ö'".encode("latin-1"), "is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, data: bytes | None, said: str) -> None:
    path = tmp_path / "f.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=said) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
