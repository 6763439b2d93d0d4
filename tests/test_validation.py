"""What a user gives is taken strictly; what is wrong is one line that names the place and what is
allowed."""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from protoevfl.errors import UserError
from protoevfl.rules import NAMES, TEXT, Between, Listed, OneOf
from protoevfl.validation import MOST_BYTES, assembled, checked, dotted, from_dotted, read_toml

# ---------------------------------------------------------------- dotted names


@dataclasses.dataclass(frozen=True)
class Inner:
    epochs: int = 1
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Outer:
    """Fields of every kind that methods have."""

    name: ClassVar[str] = "outer"
    rounds: int = 0
    norm: bool = True
    temperature: float | None = 0.2
    layers: tuple[str, ...] = ("output",)
    bars: tuple[float, float] = (0.1, 0.2)
    head: Inner = dataclasses.field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.rounds == 13:
            raise UserError("thirteen rounds bring bad luck")


@pytest.mark.parametrize(
    "build", [assembled, lambda cls, values: from_dotted(cls, values, "outer")]
)
def test_dotted_names_reach_groups_and_values_take_the_type_of_their_field(build: Any) -> None:
    values = {
        "head.epochs": 7,
        "head.lr": 1,
        "rounds": 2,
        "temperature": None,
        "layers": ["a"],
        "bars": [0.5, 0.75],
    }
    outer = build(Outer, json.loads(json.dumps(values)))
    assert outer == Outer(2, True, None, ("a",), (0.5, 0.75), Inner(7, 1.0))
    assert isinstance(outer.head.lr, float)
    assert build(Outer, {}) == Outer()
    assert dict(dotted(dataclasses.asdict(outer))) == {"norm": True, **values}
    hash(outer)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"head.epoch": 3}, "outer has no setting 'head.epoch'; did you mean 'head.epochs'?"),
        ({"rond": 3}, "outer has no setting 'rond'; did you mean 'rounds'?"),
        (
            {"x": 3},
            "outer has no setting 'x'; known are bars, head, layers, norm, rounds, temperature",
        ),
        ({"rounds.x": 3}, "outer has no setting 'rounds.x'; did you mean 'rounds'?"),
        ({"rounds": "three"}, "outer.rounds must be a whole number, not 'three'"),
        ({"rounds": "3"}, "outer.rounds must be a whole number, not '3'"),
        ({"rounds": True}, "outer.rounds must be a whole number, not True"),
        ({"rounds": 2.5}, "outer.rounds must be a whole number, not 2.5"),
        ({"rounds": [2]}, "outer.rounds must be a whole number, not [2]"),
        ({"norm": 1}, "outer.norm must be true or false, not 1"),
        ({"temperature": "hot"}, "outer.temperature must be a number or none, not 'hot'"),
        ({"temperature": float("nan")}, "outer: nan and inf are no settings"),
        ({"layers": "output"}, "outer.layers must be a list, not 'output'"),
        ({"layers": ["output", 3]}, "outer.layers must be a list, not ['output', 3]"),
        ({"bars": [1.0]}, "outer.bars must be a list of 2 numbers, not [1.0]"),
        (
            {"head": 0},
            "outer.head is a group of settings: set them one by one, as 'head.<setting>'",
        ),
        ({"head": {"epochs": 3}}, "outer.head is a group of settings"),
        ({"head": 0, "head.epochs": 3}, "outer.head is a group of settings"),
        ({"head.epochs": 3, "head": 0}, "outer.head is a group of settings"),
        ({"head.lr": "high"}, "outer.head.lr must be a number, not 'high'"),
        ({"name": "other"}, "outer has no setting 'name'"),
        ({"rounds": date(2020, 1, 1)}, "outer: datetime.date(2020, 1, 1) is no number, text"),
        ({"rounds": 13}, "thirteen rounds bring bad luck"),
        ({".".join(["a"] * 5000): 1}, "outer is nested too deeply"),
    ],
)
def test_wrong_settings_are_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        from_dotted(Outer, values, "outer")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_without_pydantic_presets_are_built_in_silence_and_names_are_still_checked() -> None:
    """`bench`, `tune` and `reproduce` need only what the package ships."""
    code = """if True:
        import sys, warnings
        from importlib import abc
        class Blocked(abc.MetaPathFinder):
            def find_spec(self, name, *_):
                if name.split(".")[0] == "pydantic": raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Blocked())
        import importlib.util
        importlib.util.find_spec = lambda name, package=None: None
        warnings.simplefilter("error")
        import protoevfl.bench.run, protoevfl.bench.tune, protoevfl.reproduction.execute, protoevfl.pipeline.simulate
        from protoevfl.errors import UserError
        from protoevfl.settings.method_choice import privacy_of
        from protoevfl.settings.presets import build
        assert build("proto_evfl", "demo", "digits").rounds.count == 1
        assert privacy_of("proto_evfl", "default", "digits", {}).releases == 1
        warnings.simplefilter("ignore")
        assert build("proto_evfl", "default", "adult", {"rounds.lr": 1}).rounds.lr == 1.0
        try:
            build("proto_evfl", "default", "adult", {"rounds.nope": 1})
        except UserError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert "nope" in done.stdout


# ---------------------------------------------------------------- files


@dataclasses.dataclass(frozen=True)
class Row:
    name: TEXT
    ids: Annotated[tuple[str, ...], Listed("the name of a column", least=1)] = ("id",)
    columns: Annotated[tuple[str, ...] | None, Listed(every=True)] = None
    inner: Inner | None = None


@dataclasses.dataclass(frozen=True)
class File:
    n: Annotated[int, Between(0, 5)] = 1
    r: Annotated[float, Between(0, 1)] | None = None
    b: bool = False
    names: NAMES = ()
    mode: Annotated[str, OneOf(("fast", "slow"))] = "slow"
    row: tuple[Row, ...] = ()
    by_name: dict[str, Inner] = dataclasses.field(default_factory=dict)
    any: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inner: Inner = dataclasses.field(default_factory=Inner)
    path: Path = Path()


def file(**values: Any) -> File:
    return checked(File, values, "f.toml", path="f.toml")


def test_good_values_come_through() -> None:
    found = file(
        n=3,
        r=1,
        b=True,
        names="a",
        mode="fast",
        row=[{"name": "x", "columns": "all"}],
        any={"a.b": [1]},
    )
    row = Row("x", ("id",), None)
    assert found == File(
        3, 1.0, True, ("a",), "fast", (row,), any={"a.b": [1]}, path=Path("f.toml")
    )
    assert file(row=[{"name": "x", "columns": ["a", "b"]}]).row[0].columns == ("a", "b")
    assert file(by_name={"x": {"epochs": 3}}).by_name == {"x": Inner(3)}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"n": True}, "f.toml: n must be a whole number from 0 to 5, not True"),
        ({"n": -1}, "f.toml: n must be a whole number from 0 to 5, not -1"),
        ({"n": 1.5}, "f.toml: n must be a whole number from 0 to 5, not 1.5"),
        ({"r": "x"}, "f.toml: r must be a number from 0 to 1, not 'x'"),
        ({"r": 2}, "f.toml: r must be a number from 0 to 1, not 2"),
        ({"b": 1}, "f.toml: b must be true or false, not 1"),
        ({"names": ["a", "a"]}, "f.toml: names must be a list without repetitions, not ['a', 'a']"),
        ({"names": ["a", 1]}, "f.toml: names must be a list of names in quotes, not ['a', 1]"),
        ({"names": ["a", ""]}, "f.toml: names must be a list of names in quotes"),
        ({"names": 5}, "f.toml: names must be a list of names in quotes, not 5"),
        ({"mode": "slwo"}, "f.toml: mode = 'slwo' is unknown; did you mean 'slow'?"),
        ({"mode": 3}, "f.toml: mode must be one of fast, slow, not 3"),
        ({"nmaes": []}, "f.toml has no key 'nmaes'; did you mean 'names'?"),
        ({"path": "x"}, "f.toml has no key 'path'; known are any, b, by_name"),
        ({"row": [{}]}, "f.toml [[row]] 1 needs the key 'name'"),
        (
            {"row": [{"name": "x"}, {"nam": "x"}]},
            "f.toml [[row]] 2 has no key 'nam'; did you mean 'name'?",
        ),
        ({"row": [{"name": " "}]}, "f.toml [[row]] 1: name must be a text in quotes, not ' '"),
        (
            {"row": [{"name": "x", "ids": []}]},
            "f.toml [[row]] 1: ids must be the name of a column, not []",
        ),
        (
            {"row": [{"name": "x", "inner": {"lr": "y"}}]},
            "f.toml [[row]] 1 inner: lr must be a number, not 'y'",
        ),
        ({"row": {"name": "x"}}, "f.toml: row must be a list, not"),
        ({"inner": 3}, "f.toml: inner must be a table ([...] with keys below it), not 3"),
        ({"inner": {"epoch": 3}}, "f.toml [inner] has no key 'epoch'; did you mean 'epochs'?"),
        ({"by_name": {"x": {"lr": True}}}, "f.toml [by_name.x]: lr must be a number, not True"),
        ({"any": 3}, "f.toml: any must be a table"),
        ({"names": ["a" * 1000, 1]}, "f.toml: names must be a list of names in quotes, not ['aaaa"),
    ],
)
def test_wrong_values_name_the_table_the_key_and_what_is_allowed(
    values: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError) as caught:
        file(**values)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UserError, match="the job must be a table"):
        checked(File, [], "the job")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot read .*: No such file"),
        (b"a = ", "is not valid TOML"),
        ("a = 'ö'".encode("latin-1"), "is not UTF-8"),
        (b"#" * (MOST_BYTES + 1), "is larger than 1,000,000 bytes"),
        (b"a = " + b"[" * 100_000, "is nested too deeply"),
        (b"a = [\n" + b"[\n" * 100_000, "is nested too deeply"),
        (b"a = " + b"{a = " * 100_000, "is nested too deeply"),
        (b"b = 1\n" + b"a." * 50_000 + b"a = 1", "line 2 has more than 100 dots"),
        (b"[" + b'"a".' * 50_000 + b"a]", "line 1 has more than 100 dots"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_soon(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    path = tmp_path / "f.toml"
    if data is not None:
        path.write_bytes(data)
    start = time.perf_counter()
    with pytest.raises(UserError, match=said) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 5


def test_long_lists_of_names_with_dots_are_read(tmp_path: Path) -> None:
    names = [f"col.{i}" for i in range(500)]
    (tmp_path / "f.toml").write_text(f"exclude = {json.dumps(names)}\r\n")
    assert read_toml(tmp_path / "f.toml") == {"exclude": names}
