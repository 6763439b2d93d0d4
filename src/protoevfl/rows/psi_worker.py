"""The two curve operations of private set intersection, and a process that performs them for
`psi.py`.

    encrypt(k, ids) = H(id)^k    reencrypt(k, points) = point^k    (P-256, order of the list kept)

Both are methods of openmined-psi. Run as a script this file reads jobs from its standard input and
writes results to its standard output until the input ends; keys travel through that pipe only,
never on a command line. It imports nothing of this package, so that a worker starts in a tenth of a
second.
"""

import json
import struct
import sys
from typing import BinaryIO

POINT = 33  # bytes of one compressed curve point
KEY = 32
JOB = struct.Struct(">c32sI")  # operation, key, bytes that follow
RESULT = struct.Struct(">cI")  # b"+" or b"!" (then the text of an error), bytes that follow
ENCRYPT, REENCRYPT = b"E", b"R"


def _encrypt(key: bytes, ids: list[str]) -> bytes:
    """H(id)^key for each id, POINT bytes each, in the order of `ids`."""
    from private_set_intersection.python import client

    return b"".join(client.CreateFromKey(key, True).CreateRequest(ids).encrypted_elements)


def _reencrypt(key: bytes, points: bytes) -> bytes:
    """point^key for each point, in order; raises on bytes that are not points of the curve."""
    from private_set_intersection.python import Request, server

    elements = [points[i : i + POINT] for i in range(0, len(points), POINT)]
    request = Request(reveal_intersection=True, encrypted_elements=elements)
    return b"".join(server.CreateFromKey(key, True).ProcessRequest(request).encrypted_elements)


def perform(operation: bytes, key: bytes, payload: bytes) -> bytes:
    """One job: the ids of ENCRYPT are a JSON list, the points of REENCRYPT are joined bytes."""
    return _encrypt(key, json.loads(payload)) if operation == ENCRYPT else _reencrypt(key, payload)


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Answer jobs until the input ends."""
    while len(head := jobs.read(JOB.size)) == JOB.size:
        operation, key, size = JOB.unpack(head)
        try:
            status, payload = b"+", perform(operation, key, jobs.read(size))
        # the pipe is the border: report whatever went wrong to the caller
        except Exception as error:
            status, payload = b"!", str(error).encode()
        results.write(RESULT.pack(status, len(payload)) + payload)
        results.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
