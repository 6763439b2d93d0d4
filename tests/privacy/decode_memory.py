"""Memory while foreign bytes are decoded:

    MALLOC_MMAP_THRESHOLD_=65536 python -m tests.privacy.decode_memory [MB ...]

One line of JSON per input: its size, what came of it, and the peak of this process above what it held
when the input was already there. With the input itself, an input may take twice its size; so the
peak above it may be its size once, and SLACK for everything whose size does not depend on it. The
peak is the kernel's (VmHWM), because arrays are not allocated by Python; the variable makes the C
library give back what was freed, so that no input hides in what an earlier one left. Linux only.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from protoevfl.codec import MAX_HEADER, VERSION, decode, encode
from protoevfl.deploy.envelope import Envelope, EnvelopeError, to_facts
from protoevfl.deploy.seal import MAGIC, seal, unseal
from protoevfl.messages import (
    BackwardBatch,
    Embeddings,
    ForwardBatch,
    Learned,
    MessageError,
    SealedSums,
    Statistics,
)
from tests.deploy.keyring import keys

SLACK = 8 << 20  # headers of 64 kB as Python objects, blocks of 1 MB, the allocator's own pages
LIMIT = 1 << 30
ASK = Envelope("request", "run-1", "digest", "bank", "shop", round=5, session="s", counter=3)
META = {"type": "Embeddings", "version": str(VERSION), "scalars": "{}"}


def one_place(sample: bytes) -> bytes:
    """The message with all its arrays where its first one is."""
    length = int.from_bytes(sample[:8], "little")
    facts = json.loads(sample[8 : 8 + length])
    arrays = [entry for name, entry in facts.items() if name != "__metadata__"]
    for entry in arrays:
        entry["data_offsets"] = arrays[0]["data_offsets"]
    text = json.dumps(facts).encode()
    return len(text).to_bytes(8, "little") + text + sample[8 + length :]


def claims(size: int, shape: list[int], offsets: list[int]) -> bytes:
    """A message of `size` bytes of array data whose header says something else."""
    entry = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    text = json.dumps({"__metadata__": META, "values": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def filled(piece: str, size: int) -> bytes:
    """A message whose header is as long as a header may be, all of it small objects."""
    entry = '"values":{"dtype":"F32","data_offsets":[0,0],"shape":['
    text = "{" + f'"__metadata__":{json.dumps(META)},{entry}'
    pieces = (MAX_HEADER - len(text) - 10) // (len(piece) + 1)
    text += ",".join([piece] * pieces) + "]}}"
    return len(text).to_bytes(8, "little") + text.encode() + bytes(size)


def messages(size: int) -> Iterator[tuple[str, bytes]]:
    """(what it is, bytes): valid messages of about `size` bytes and others of bad intent."""
    rows = size // 256
    yield "embeddings", encode(Embeddings(torch.ones(rows, 64)))
    yield "row numbers", encode(ForwardBatch(1, torch.ones(size // 8, dtype=torch.int64)))
    yield "bytes", encode(SealedSums(torch.ones(1, size // 256, 256, dtype=torch.uint8)))
    yield "two arrays", encode(Learned(torch.ones(rows, 64), torch.ones(3)))
    half = torch.ones(2, rows // 4, 64)
    yield "four arrays", encode(Statistics(half, half, torch.ones(2, rows // 4), torch.ones(2)))
    last = torch.ones(rows, 64)
    last[-1, -1] = torch.nan
    yield "NaN at its end", encode(Embeddings(last))
    del last, half
    numbers = torch.ones(size // 16, dtype=torch.int64)
    sample = encode(BackwardBatch(1, numbers, torch.ones(len(numbers), 2)))
    del numbers
    yield "two arrays in one place", one_place(sample)
    yield "more rows than bytes", claims(size, [1 << 20, 128], [0, 1 << 29])
    yield "more rows than offsets", claims(size, [1 << 20, 128], [0, size])
    yield "no bytes, 2^62 rows", claims(size, [1 << 62, 0], [0, 0])
    yield "fewer rows than bytes", claims(size, [1, 1], [0, 4])
    yield "a header of empty objects", filled("{}", size)
    yield "a header of lists in lists", filled("[" * 500 + "]" * 500, size)


def frames(size: int) -> Iterator[tuple[str, bytes]]:
    """The same for sealed frames."""
    sent = seal(keys("bank"), ASK, bytes(size), keys("shop").certificate)
    yield "frame", sent
    yield "frame with a flipped bit", sent[:-1] + bytes([sent[-1] ^ 1])
    yield "frame cut short", sent[: len(sent) // 2]
    text = json.dumps({"envelope": {**to_facts(ASK), "missed": [[0, 2**31 - 1]] * 900}})
    facts = json.dumps({"signed": text, "signature": ""}).encode()
    yield "frame of 2e12 missed rounds", MAGIC + len(facts).to_bytes(4, "big") + facts + bytes(size)
    del sent
    facts = json.dumps({"signed": [{}] * 8000}).encode()
    yield "frame of empty objects", MAGIC + len(facts).to_bytes(4, "big") + facts + bytes(size)


def measured(read: Callable[[bytes], object], data: bytes) -> tuple[str, int]:
    """(what came of it, peak above what was held before)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = held("VmRSS")
    try:
        result = type(read(data)).__name__
    except (MessageError, EnvelopeError) as error:
        result = f"refused: {str(error)[:60]}"
    return result, held("VmHWM") - before


def held(what: str) -> int:
    """Bytes, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def main(sizes: list[int]) -> None:
    readers: list[tuple[Callable[[int], Iterator[tuple[str, bytes]]], Callable[[bytes], object]]]
    readers = [
        (messages, lambda data: decode(data, max_bytes=LIMIT)),
        (frames, lambda data: unseal(keys("shop"), data, LIMIT)),
    ]
    for make, read in readers:
        for _, data in make(1 << 16):  # what is imported and allocated once
            measured(read, data)
        for size in sizes:
            for what, data in make(size << 20):
                result, peak = measured(read, data)
                facts = {"input": what, "bytes": len(data), "result": result, "peak": peak}
                print(json.dumps(facts | {"good": peak <= len(data) + SLACK}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main([int(size) for size in sys.argv[1:]] or [1, 10, 100, 300])
