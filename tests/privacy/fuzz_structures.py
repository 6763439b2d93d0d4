"""Structure-aware fuzzing of both decoders, by hand: python -m tests.privacy.fuzz_structures [COUNT]

Starts from a valid message of every declared type and from sealed frames, and changes them where
their structure is: any value of the header, keys taken away, renamed or given twice, shapes and
offsets one off, lengths, bytes of the arrays. Any exception but the decoders' own ends the run with
the input. Ends with what came of the inputs and the peak of memory above the start. Linux only.
"""

import collections
import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch

from protoevfl.codec import decode, encode
from protoevfl.deploy.envelope import Envelope, EnvelopeError
from protoevfl.deploy.seal import MAGIC, seal, unseal
from protoevfl.messages import Message, MessageError
from tests.deploy.keyring import keys
from tests.privacy.decode_memory import held

FRAMES = 0.1  # share of sealed frames; their signatures take time
DEEP = "[" * 2000 + "]" * 2000
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 255, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30, -(2**63),
    0.5, 1e308, float("nan"), float("inf"), "", "x", "F32", "F64", "I64", "U8", "BF16", "aligned",
    "1", "é" * 40, "\x00", [], {}, [0], [[]], [2, 3], [3, 4, 5], [2**62, 0], [2**32, 2**32],
    {"a": 1}, [None] * 50, "{}", '{"rows":"query"}', '{"round":1}', DEEP, "x" * 70_000,
)  # fmt: skip


def samples() -> list[bytes]:
    """A valid message of every type."""
    made = []
    plain = {"int": 1, "float": 0.5, "str": "aligned"}
    sizes = collections.defaultdict(lambda: 3, {"width": 4, "pool": 2, "groups": 2})
    for cls in Message.__subclasses__():
        facts: dict[str, Any] = {}
        for name, spec in cls.__dataclass_fields__.items():
            if "dims" in spec.metadata:
                shape = [sizes[dim] for dim in spec.metadata["dims"]]
                facts[name] = torch.ones(shape, dtype=spec.metadata["dtype"])
            elif name != "kind":
                kind = spec.type if isinstance(spec.type, str) else spec.type.__name__
                facts[name] = plain[kind]
        made.append(encode(cls(**facts)))
    return made


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value within."""
    keys_of = list(value) if isinstance(value, dict) else []
    keys_of = list(range(len(value))) if isinstance(value, list) else keys_of
    return [(value, key) for key in keys_of] + [p for k in keys_of for p in places(value[k])]


def changed(facts: Any, rng: random.Random) -> str:
    """The JSON text of a header with a change or two."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        where = places(facts)
        if not where:
            break
        container, key = rng.choice(where)
        value = container[key]
        move = rng.randrange(6)
        if move <= 1:
            container[key] = copy.deepcopy(rng.choice(ODD))
        elif move == 2 and isinstance(value, int) and not isinstance(value, bool):
            container[key] = value + rng.choice((-1, 1, 4, -value, value, 1 << 32))
        elif move == 3:
            del container[key]
        elif move == 4 and isinstance(container, dict):
            name = rng.choice(("values", "rows", "x", "", "type", f"{key}x"))
            container[name] = copy.deepcopy(value)
        elif isinstance(value, list):
            value.append(copy.deepcopy(rng.choice(ODD)))
        elif isinstance(value, str) and value[:1] == "{":  # JSON within JSON
            container[key] = changed(json.loads(value), rng)
    text = json.dumps(facts)
    if rng.random() < 0.1 and text.startswith("{") and len(text) > 2:  # the same keys twice
        text = text[:-1] + "," + text[1:]
    return text


def bent(data: bytes, start: int, rng: random.Random) -> bytes:
    """A message or frame with a changed header, body or length; the header's length is before
    `start`."""
    order = "big" if data.startswith(MAGIC) else "little"
    size = 4 if order == "big" else 8
    length = int.from_bytes(data[start - size : start], order)  # type: ignore[arg-type]
    text, body = data[start : start + length], bytearray(data[start + length :])
    if rng.random() < 0.8:
        text = changed(json.loads(text), rng).encode()
    move = rng.randrange(8)
    if move == 0:
        body = body[: rng.randrange(len(body) + 1)]
    elif move == 1:
        body += bytes(rng.randrange(64))
    elif move == 2 and body:
        for _ in range(4):
            body[rng.randrange(len(body))] = rng.choice((0, 127, 128, 255))
    elif move == 3 and text:
        place = rng.randrange(len(text))
        text = text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
    claimed = (
        len(text) if rng.random() < 0.95 else rng.choice((0, 1, len(text) + 1, 2**31, 2**32 - 1))
    )
    head = data[: start - size] + claimed.to_bytes(size, order)  # type: ignore[arg-type]
    return head + text + bytes(body)


def main(count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    ask = Envelope("request", "run-1", "digest", "bank", "shop", round=5, session="s", counter=3)
    hello = Envelope("hello", "run-1", "digest", "bank", "shop", round=0, missed=((1, 3),))
    frames = [seal(keys("bank"), ask, b"body", keys("shop").certificate), seal(keys("bank"), hello)]
    valid, reader = samples(), keys("shop")
    results: collections.Counter[str] = collections.Counter()
    largest, before, steps = 0, 0, max(1, count // 20)
    for number in range(count):
        if number == min(20_000, count // 2):  # what is imported and allocated once
            Path("/proc/self/clear_refs").write_text("5")
            before = held("VmRSS")
        sealed = rng.random() < FRAMES
        data = bent(rng.choice(frames), 8, rng) if sealed else bent(rng.choice(valid), 8, rng)
        largest = max(largest, len(data))
        try:
            read = unseal(reader, data) if sealed else decode(data, max_bytes=1 << 20)
            results[f"{type(read).__name__} accepted"] += 1
        except (MessageError, EnvelopeError) as error:
            results[type(error).__name__] += 1
        except BaseException:
            print("input:", data[:5000], flush=True)
            raise
        if (number + 1) % steps == 0:
            print(f"{number + 1:,} of {count:,} inputs", file=sys.stderr, flush=True)
    peak = held("VmHWM") - before
    refused = results["MessageError"] + results["EnvelopeError"]
    print(f"{count:,} inputs of at most {largest:,} bytes: {refused:,} refused, no other exception")
    print(
        f"accepted: {count - refused:,} of {len(results) - 2} types; peak {peak / 1e6:.1f} MB above the start"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
