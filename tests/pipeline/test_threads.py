"""Small work stays on one thread, and afterwards everything is as it was."""

import pytest
import torch

from protoevfl.pipeline.threads import is_small, one_thread


@pytest.mark.usefixtures("one_thread")  # which puts the number back after the test
def test_one_thread_within_and_all_of_them_after() -> None:
    torch.set_num_threads(2)

    def stopped() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert torch.get_num_threads() == 2
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 2


def test_pictures_and_large_tables_take_all_threads() -> None:
    assert is_small([(2_000, 20), (3_000, 9)])
    assert not is_small([(40_000, 20)])
    assert not is_small([(100, 20), (100, 3, 8, 8)])
