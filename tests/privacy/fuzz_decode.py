"""Coverage-guided fuzzing of the message decoder, by hand: python tests/privacy/fuzz_decode.py
-max_total_time=120

Needs `atheris`. Starts from one valid message of each kind. Any exception but MessageError ends the
run and leaves the bytes in a crash file.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["protoevfl.messages"]):
    from protoevfl.codec import decode
    from protoevfl.messages import MessageError


def one_input(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode(data, max_bytes=1 << 20)


def seeds(folder: Path) -> Path:
    """Valid messages to start from."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.privacy.test_fuzz import SAMPLES

    for i, sample in enumerate(SAMPLES):
        (folder / str(i)).write_bytes(sample)
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        atheris.Setup([*sys.argv, str(seeds(Path(name)))], one_input)
        atheris.Fuzz()
