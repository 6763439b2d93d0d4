"""One file lists all that ever leaves a party: no other module declares a type that crosses, or
writes one itself."""

import ast
import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

import protoevfl
from protoevfl import codec, messages
from protoevfl.messages import Done, Learned, Message, MessageError

ROOT = Path(protoevfl.__file__).parent
TYPES = [cls for cls in Message.__subclasses__() if cls.__module__.startswith("protoevfl")]


def test_every_type_is_declared_in_messages() -> None:
    assert {cls.__module__ for cls in TYPES} == {"protoevfl.messages"}
    # a subclass could smuggle a field
    assert not [sub for cls in TYPES for sub in cls.__subclasses__()]
    assert len({cls.__name__ for cls in TYPES}) == len(TYPES)


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_no_other_file_derives_a_message(path: Path) -> None:
    if path.name == "messages.py" and path.parent == ROOT:
        return
    names = {cls.__name__ for cls in TYPES} | {"Message"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            assert not bases & names, f"{path.name}: declare {node.name} in messages.py"


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_a_type_is_frozen_and_holds_declared_arrays_and_plain_scalars(cls: type[Message]) -> None:
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.__doc__
    for field in dataclasses.fields(cls):
        if field.type is Tensor:
            assert field.metadata["dims"]
            assert field.metadata["dtype"] in codec._DTYPES.values()
        else:
            assert field.type in (int, float, str, bool)


def test_down_comes_before_up_in_the_file() -> None:
    """The reader sees what a party receives, then what it gives away."""
    text = Path(messages.__file__).read_text()
    down, up = (text.index(f"---- {title}") for title in ("down:", "up:"))
    assert down < text.index("class Learn(") < up < text.index("class Embeddings(")
    assert down < text.index("class BackwardBatch(") < up < text.index("class Learned(")


def test_expected_embeddings_but_got_something_else() -> None:
    assert messages.values(Learned(torch.ones(1, 1), torch.ones(1))).item() == 1
    with pytest.raises(MessageError, match="got Done"):
        messages.values(Done())
