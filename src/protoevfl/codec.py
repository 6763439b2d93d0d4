"""A message as bytes and back (the wire format), and several messages as one.

`encode` writes safetensors bytes (no code can hide in them); `decode` refuses, before it allocates
anything, an unknown type, an undeclared or missing field, a wrong dtype, a shape that disagrees
with the declared dimensions, or too many bytes, and then any value that is not finite.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from protoevfl.messages import Message, MessageError

M = TypeVar("M", bound=Message)
VERSION = 2  # also raised where the same message means something else than before
MAX_BYTES = 1 << 30
MAX_HEADER = 1 << 16
# numbers checked at a time: a check of all at once would take a message's size again
BLOCK = 1 << 18
_DTYPES = {"F32": torch.float32, "I64": torch.int64, "U8": torch.uint8}


def _registry() -> dict[str, type[Message]]:
    return {cls.__name__: cls for cls in Message.__subclasses__()}


def arrays_of(cls: type[Message]) -> dict[str, Mapping[str, Any]]:
    """{field: dimensions and dtype} of the arrays of a type."""
    return {f.name: f.metadata for f in fields(cls) if "dims" in f.metadata}


def scalars_of(cls: type[Message]) -> dict[str, type]:
    """{field: type} of its plain fields."""
    return {f.name: cast(type, f.type) for f in fields(cls) if "dims" not in f.metadata}


def scalars(message: Message) -> dict[str, Any]:
    """The plain fields of a message."""
    return {name: getattr(message, name) for name in scalars_of(type(message))}


def payload_bytes(message: Message) -> int:
    """What the ledger counts: 1, 4 or 8 bytes per number, framing (about 300 bytes per message) apart."""
    tensors: int = sum(getattr(message, n).nbytes for n in arrays_of(type(message)))
    return tensors + sum(8 if not isinstance(v, str) else len(v) for v in scalars(message).values())


def encode(message: Message) -> bytes:
    """Safetensors bytes with type, version and scalars in the header; equal messages give equal
    bytes."""
    cls = type(message)
    meta = {"type": cls.__name__, "version": str(VERSION), "scalars": json.dumps(scalars(message))}
    header: dict[str, Any] = {"__metadata__": meta}
    parts, start = [], 0
    for name, spec in arrays_of(cls).items():
        tensor: Tensor = getattr(message, name)
        if tensor.dtype != spec["dtype"]:
            raise MessageError(f"{cls.__name__}.{name} must be {spec['dtype']}, not {tensor.dtype}")
        parts.append(tensor.detach().cpu().contiguous().numpy().tobytes())
        end = start + len(parts[-1])
        code = next(code for code, dtype in _DTYPES.items() if dtype == tensor.dtype)
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def decode(
    data: bytes, dims: Mapping[str, int] | None = None, max_bytes: int = MAX_BYTES
) -> Message:
    """The message in `data`, or MessageError. `dims` fixes sizes the receiver knows, such as
    {"classes": 10}. Takes as much memory as `data` again, and no more whatever it claims."""
    from safetensors.torch import load

    cls, plain = _read_header(data, dict(dims or {}), max_bytes)
    try:
        tensors = load(data)
    except Exception as error:
        raise MessageError(f"{cls.__name__}: damaged array data ({error})") from None
    for name, tensor in tensors.items():
        for part in tensor.reshape(-1).split(BLOCK):
            _check_values(f"{cls.__name__}.{name}", part)
    return cls(**plain, **tensors)


def _check_values(name: str, part: Tensor) -> None:
    if part.is_floating_point() and not bool(part.isfinite().all()):
        raise MessageError(f"{name} holds NaN or infinite values")
    if part.dtype == torch.int64 and bool((part < 0).any()):
        raise MessageError(f"{name} holds a row number below 0")


def _read_header(
    data: bytes, dims: dict[str, int], max_bytes: int
) -> tuple[type[Message], dict[str, Any]]:
    if len(data) > max_bytes:
        raise MessageError(f"message of {len(data):,} bytes, over the limit of {max_bytes:,}")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(MAX_HEADER, len(data) - 8):
        raise MessageError("not a message: the header length does not fit")
    try:
        header = json.loads(data[8 : 8 + length].decode())
        meta = header.pop("__metadata__")
        plain = json.loads(meta["scalars"])
        cls = _registry()[meta["type"]]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise MessageError("not a message: the header is not one of the declared types") from None
    if meta.get("version") != str(VERSION):
        raise MessageError(
            f"{cls.__name__}: wire version {meta.get('version')!r}, this side speaks {VERSION}"
        )
    if set(meta) != {"type", "version", "scalars"}:
        raise MessageError(f"{cls.__name__}: undeclared entries in the header, {sorted(meta)}")
    _check_arrays(cls, header, dims)
    _check_scalars(cls, plain)
    return cls, plain


def _check_arrays(cls: type[Message], header: Mapping[str, Any], dims: dict[str, int]) -> None:
    declared = arrays_of(cls)
    if set(header) != set(declared):
        raise MessageError(
            f"{cls.__name__} must hold the arrays {sorted(declared)}, not {sorted(header)}"
        )
    for name, spec in declared.items():
        entry = header[name]
        try:
            dtype, shape = _DTYPES.get(entry["dtype"]), entry["shape"]
            sized = all(isinstance(n, int) and 0 <= n for n in shape)
        except (KeyError, TypeError):
            raise MessageError(f"{cls.__name__}.{name}: no dtype or shape") from None
        if dtype != spec["dtype"]:
            raise MessageError(
                f"{cls.__name__}.{name} must be {spec['dtype']}, not {entry['dtype']}"
            )
        if not sized or len(shape) != len(spec["dims"]) or math.prod(shape) > MAX_BYTES // 4:
            raise MessageError(
                f"{cls.__name__}.{name} must have the axes {spec['dims']}, not {shape}"
            )
        for dim, size in zip(spec["dims"], shape, strict=True):
            if dims.setdefault(dim, size) != size:
                raise MessageError(f"{cls.__name__}.{name}: {dim} is {size}, must be {dims[dim]}")


def _check_scalars(cls: type[Message], plain: Any) -> None:
    declared = scalars_of(cls)
    if not isinstance(plain, dict) or set(plain) != set(declared):
        raise MessageError(f"{cls.__name__} must hold the scalars {sorted(declared)}")
    for name, kind in declared.items():
        value = plain[name]
        good = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if (
            not good
            or (kind is float and not math.isfinite(value))
            or (kind is str and len(value) > 64)
        ):
            raise MessageError(f"{cls.__name__}.{name} must be a plain {kind.__name__}")
        if kind is int and not 0 <= value < 1 << 40:
            raise MessageError(f"{cls.__name__}.{name} = {value} is out of range")


# ---------------------------------------------------------------- the group axis


def stack(messages: Sequence[M]) -> M:
    """One message whose arrays carry a leading group axis (G, ...); types and scalars must
    agree."""
    first = messages[0]
    names = arrays_of(type(first))
    return replace(first, **{n: torch.stack([getattr(m, n) for m in messages]) for n in names})


def unstack(message: M, size: int) -> list[M]:
    """The inverse of `stack`."""
    names = arrays_of(type(message))
    return [replace(message, **{n: getattr(message, n)[g] for n in names}) for g in range(size)]


def to(message: M, device: torch.device) -> M:
    """The same message with its arrays on a device."""
    return replace(message, **{n: getattr(message, n).to(device) for n in arrays_of(type(message))})
