"""One thread: tests run side by side, and sums in one order give the same numbers on every machine
size.

OMP_NUM_THREADS asks for more (`make test-cpus`, which runs the tests marked `trains`). A property
is not false because the machine was busy: no deadline for an example.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.precision import double_precision

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Folders and files whose results go through training or long chains of floating point numbers, so
# that another
# instruction set or another number of threads changes their last digits and what follows from them.
TRAINS = (
    "audit",
    "core",
    "methods",
    "federation/engines/test_in_process.py",
    "federation/engines/test_cpu_threads.py",
    "federation/engines/test_stacked.py",
    "pipeline/test_evaluate.py",
    "pipeline/test_importance.py",
    "rows/test_encoders.py",
    "artifacts/test_head_io.py",
    "rows/test_in_memory.py",
    "pipeline/test_predict.py",
    "artifacts/test_run_dir.py",
    "pipeline/test_simulate.py",
    "pipeline/test_small_parties.py",
    "artifacts/test_owner.py",
    "artifacts/test_party.py",
    "pipeline/test_train.py",
    "pipeline/test_value.py",
    "privacy/attacks",
    "privacy/defences",
    "privacy/test_bounds.py",
    "privacy/test_learners.py",
    "privacy/test_policy.py",
    "privacy/test_protocol.py",
    "privacy/test_regression.py",
    "deploy/test_lead.py",
    "deploy/test_local.py",
    "cli/test_own_data.py",
    "estimator/test_classifier.py",
    "test_fit.py",
    "federation/test_border.py",
    "test_head.py",
    "test_method.py",
    "test_models.py",
    "federation/test_party.py",
    "test_same_numbers.py",
    "test_same_seed.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    trains = [here / name for name in TRAINS]
    assert all(some.exists() for some in trains), "a file of TRAINS was moved"
    for item in items:
        if any(item.path.is_relative_to(some) for some in trains):
            item.add_marker("trains")


@pytest.fixture
def doubles() -> Iterator[None]:
    with double_precision():
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
