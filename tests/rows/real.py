"""Tests on real data: skipped where the files are absent."""

import pytest

from protoevfl.rows import sources


def requires(name: str) -> pytest.MarkDecorator:
    """Skips a test when loading the data set would need a download."""
    return pytest.mark.skipif(not sources.available(name), reason=f"{name} is not on this machine")
