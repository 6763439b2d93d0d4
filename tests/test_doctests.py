"""Every example in a docstring runs and gives what it shows."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import protoevfl

# needs an optional package, is a program
EXTRA = {"protoevfl.federation.engines.nvflare", "protoevfl.__main__"}
NEEDS = {"protoevfl.privacy.ledger": "dp_accounting"}


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(protoevfl.__path__, "protoevfl."):
        if found.name not in EXTRA and not found.name.startswith("protoevfl.cli"):
            yield found.name


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    pytest.importorskip(NEEDS.get(name, "torch"))
    result = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert not result.failed


@pytest.mark.parametrize(
    "name", ["transport", "priors", "prototypes", "gating", "imbalance", "losses", "random"]
)
def test_core_has_examples(name: str) -> None:
    found = doctest.DocTestFinder().find(importlib.import_module(f"protoevfl.core.{name}"))
    assert sum(len(test.examples) for test in found) > 0
