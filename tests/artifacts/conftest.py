"""The small trained example of the pipeline's tests."""

from tests.pipeline.conftest import config, new, run, trained

__all__ = ["config", "new", "run", "trained"]
