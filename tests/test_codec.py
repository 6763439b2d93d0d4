"""Messages go through bytes unchanged; decode refuses everything else, with MessageError and
nothing else."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from protoevfl import codec
from protoevfl.messages import (
    BackwardBatch,
    Describe,
    Embed,
    Embeddings,
    Learn,
    Learned,
    Message,
    MessageError,
    values,
)

TYPES = sorted(codec._registry().values(), key=lambda cls: cls.__name__)
SIZES = {
    "classes": 3,
    "width": 4,
    "rows": 5,
    "batch": 2,
    "groups": 2,
    "components": 3,
    "pool": 6,
    "size": 7,
}


def example(cls: type[Message], fill: int = 0) -> Message:
    """A message of that type with all its fields filled."""
    made: dict[str, Any] = {}
    for name, spec in codec.arrays_of(cls).items():
        shape = [SIZES.get(dim, 2) for dim in spec["dims"]]
        made[name] = (torch.arange(torch.Size(shape).numel()).view(shape) + fill).to(spec["dtype"])
    for name, kind in codec.scalars_of(cls).items():
        made[name] = {int: 3, float: 0.5, str: "aligned", bool: True}[kind]
    return cls(**made)


def same(a: Message, b: Message) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    return type(a) is type(b) and all(
        torch.equal(x, y) if isinstance(x, Tensor) else x == y for x, y in pairs
    )


def raw(arrays: dict[str, Tensor], **meta: str) -> bytes:
    """Wire bytes with any content."""
    return save(
        arrays,
        metadata={"type": "Embeddings", "version": str(codec.VERSION), "scalars": "{}", **meta},
    )


def refused(data: bytes, saying: str | None = None, **how: Any) -> None:
    with pytest.raises(MessageError, match=saying):
        codec.decode(data, **how)


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
class TestEveryType:
    def test_survives_the_wire(self, cls: type[Message]) -> None:
        message = example(cls)
        data = codec.encode(message)
        assert same(codec.decode(data), message)
        assert codec.encode(example(cls)) == data

    def test_is_plain_safetensors(self, cls: type[Message]) -> None:
        message = example(cls)
        arrays = load(codec.encode(message))
        assert set(arrays) == set(codec.arrays_of(cls))
        assert all(torch.equal(arrays[name], getattr(message, name)) for name in arrays)

    def test_says_what_it_reveals(self, cls: type[Message]) -> None:
        assert cls.__doc__
        assert len(cls.__doc__) > 20

    def test_stacks_and_unstacks(self, cls: type[Message]) -> None:
        three = [example(cls, fill) for fill in range(3)]
        together = codec.stack(three)
        for name in codec.arrays_of(cls):
            assert getattr(together, name).shape == (3, *getattr(three[0], name).shape)
        assert all(same(a, b) for a, b in zip(three, codec.unstack(together, 3), strict=True))

    def test_counts_its_numbers(self, cls: type[Message]) -> None:
        message = example(cls)
        expected = 0
        for f in fields(message):
            value = getattr(message, f.name)
            if isinstance(value, Tensor):
                expected += value.numel() * value.element_size()
            else:
                expected += len(value) if isinstance(value, str) else 8
        assert codec.payload_bytes(message) == expected
        assert codec.payload_bytes(message) <= len(codec.encode(message))

    def test_truncation_is_refused_at_any_place(self, cls: type[Message]) -> None:
        data = codec.encode(example(cls))
        for length in {*range(0, len(data), 7), 7, 8, len(data) - 1}:
            refused(data[:length])

    def test_a_flipped_bit_gives_a_message_or_a_message_error(self, cls: type[Message]) -> None:
        data = codec.encode(example(cls))
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << (at % 8)
            try:
                back = codec.decode(bytes(flipped))
            except MessageError:
                continue
            assert type(back) in TYPES


def test_bytes_on_the_wire_are_the_payload_plus_a_small_frame() -> None:
    message = Embeddings(torch.zeros(200, 84))
    assert codec.payload_bytes(message) == 200 * 84 * 4
    assert len(codec.encode(message)) - codec.payload_bytes(message) < 400


def test_unknown_type_is_refused() -> None:
    refused(raw({"values": torch.zeros(2, 3)}, type="Labels"), "declared types")
    refused(raw({"values": torch.zeros(2, 3)}, type="Message"), "declared types")


def test_undeclared_and_missing_fields_are_refused() -> None:
    refused(raw({"values": torch.zeros(2, 3), "labels": torch.zeros(2)}), "must hold the arrays")
    refused(raw({}), "must hold the arrays")
    refused(
        raw({"values": torch.zeros(2, 3)}, scalars='{"note": "hello"}'), "must hold the scalars"
    )
    refused(raw({}, type="Embed"), "must hold the scalars")
    refused(raw({"values": torch.zeros(2, 3)}, note="hello"), "undeclared")


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_wrong_dtype_is_refused(dtype: torch.dtype) -> None:
    refused(raw({"values": torch.zeros(2, 3).to(dtype)}), "must be torch.float32")


def test_wrong_dtype_does_not_leave_either() -> None:
    with pytest.raises(MessageError, match="must be torch"):
        codec.encode(Embeddings(torch.zeros(2, 3, dtype=torch.float64)))


def test_a_view_with_odd_strides_is_sent_as_what_it_shows() -> None:
    numbers = torch.arange(24.0).view(4, 6).T[::2]
    back = codec.decode(codec.encode(Embeddings(numbers)))
    assert torch.equal(values(back), numbers)


@pytest.mark.parametrize("shape", [(), (6,), (1, 2, 3)])
def test_wrong_number_of_axes_is_refused(shape: tuple[int, ...]) -> None:
    refused(raw({"values": torch.zeros(shape)}), "must have the axes")


def test_sizes_that_disagree_are_refused() -> None:
    refused(
        codec.encode(Learned(torch.zeros(5, 4), torch.zeros(3))),
        "classes is 3, must be 10",
        dims={"classes": 10},
    )
    refused(codec.encode(Embeddings(torch.zeros(5, 4))), "rows is 5", dims={"rows": 6, "width": 4})
    uneven = Learn(0, torch.zeros(3, 4), torch.zeros(3), torch.zeros(2))
    refused(codec.encode(uneven), "classes is 2, must be 3")
    fits = codec.decode(
        codec.encode(Embeddings(torch.zeros(5, 4))), dims={"rows": 5, "width": 4, "classes": 7}
    )
    assert isinstance(fits, Embeddings)


def test_the_dims_of_the_caller_are_not_changed() -> None:
    dims = {"width": 4}
    codec.decode(codec.encode(Embeddings(torch.zeros(5, 4))), dims=dims)
    assert dims == {"width": 4}


def test_too_many_bytes_are_refused_before_anything_is_read() -> None:
    refused(b"x" * 101, "over the limit", max_bytes=100)
    data = codec.encode(Embeddings(torch.zeros(5, 4)))
    assert codec.decode(data, max_bytes=len(data))
    refused(data, "over the limit", max_bytes=len(data) - 1)


def test_a_header_that_claims_more_than_there_is_allocates_nothing() -> None:
    for shape in ([1 << 20, 1 << 20], [1 << 40, 1], [1 << 14, 1 << 14], [3, 1 << 62]):
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}
        meta = {"type": "Embeddings", "version": str(codec.VERSION), "scalars": "{}"}
        header = json.dumps({"__metadata__": meta, "values": entry}).encode()
        refused(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    refused((1 << 60).to_bytes(8, "little") + b"{}", "header length")
    refused(codec.MAX_HEADER.to_bytes(8, "little") + b"{}", "header length")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    numbers = torch.zeros(2, 3)
    numbers[1, 2] = value
    refused(codec.encode(Embeddings(numbers)), "NaN or infinite")


def head_of(
    kind: str,
    version: str | None = str(codec.VERSION),
    scalars: object = None,
    values: object = None,
) -> str:
    meta = {"type": kind, "version": version, "scalars": json.dumps(scalars or {})}
    return json.dumps({"__metadata__": meta} | ({} if values is None else {"values": values}))


@pytest.mark.parametrize(
    "header",
    [
        "[]", "3", "null", '"text"', "{}", '{"__metadata__": 3}', '{"__metadata__": {"type": []}}', "{" * 60_000,
        head_of("Done", scalars=[1]), head_of("Done", version="1"), head_of("Done", version="3"),
        head_of("Done", version=None),
        head_of("Embed", scalars={"rows": 3}), head_of("Describe", scalars={"groups": True}),
        head_of("Describe", scalars={"groups": 1.5}), head_of("Describe", scalars={"groups": -1}),
        head_of("Describe", scalars={"groups": float("inf")}), head_of("Describe", scalars={"groups": None}),
        head_of("Embeddings", values=3), head_of("Embeddings", values={"dtype": [], "shape": 1}),
        head_of("Embeddings", values={"dtype": "F32", "shape": "ab"}),
        head_of("Embeddings", values={"dtype": "F32", "shape": [True, 1], "data_offsets": [0, 4]}),
        head_of("Embeddings", values={"dtype": "F32", "shape": [1, 1]}),
    ],
)  # fmt: skip
def test_odd_headers_are_refused(header: str) -> None:
    refused(len(header).to_bytes(8, "little") + header.encode())
    refused(len(header).to_bytes(8, "little") + header.encode() + b"\0" * 16)


def test_bytes_that_are_not_text_are_refused() -> None:
    refused((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc")
    refused(b"")


def test_scalars_out_of_range_are_refused() -> None:
    refused(codec.encode(Describe(1 << 40)), "out of range")
    refused(codec.encode(replace(example(BackwardBatch), step=-1)), "out of range")


def test_row_numbers_below_zero_are_refused() -> None:
    """A negative index would count from the end and hit a row nobody meant."""
    refused(codec.encode(BackwardBatch(0, torch.tensor([1, -1]), torch.zeros(2, 4))), "below 0")


@pytest.mark.parametrize("what", ["pool", "spans", "take", "", "ALIGNED"])
def test_only_shared_rows_and_rows_to_predict_can_be_asked_for(what: str) -> None:
    """The pool is nobody's business: `Embed` could otherwise name any attribute of the party's
    rows."""
    refused(raw({}, type="Embed", scalars=json.dumps({"rows": what})), "aligned, further or query")
    with pytest.raises(MessageError):
        Embed(what)
