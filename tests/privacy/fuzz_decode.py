"""Coverage-guided fuzzing of the message decoder, by hand: python tests/privacy/fuzz_decode.py -max_total_time=120

Needs `atheris`. Any exception but MessageError ends the run and leaves the bytes in a crash file.
"""

import contextlib
import sys

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["protoevfl"]):
    from protoevfl.messages import MessageError, decode


def one_input(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode(data, max_bytes=1 << 20)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
