"""One thread for small tables: operations on a few thousand numbers are too short to be shared, and
on a busy machine threads that wait for each other burn several times the work."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

FEW_CELLS = 500_000  # numbers of all parties' rows together


def is_small(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether rows of these shapes (n, ...) are tables of few numbers; pictures never are.

    >>> is_small([(1_000, 20), (5_000, 8)]), is_small([(60_000, 20)]), is_small([(50, 1, 8, 8)])
    (True, False, False)
    """
    known = list(shapes)
    tables = all(len(shape) == 2 for shape in known)
    return tables and sum(rows * width for rows, width in known) < FEW_CELLS


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Torch and the linear algebra below it on one thread, if `wanted`; as it was afterwards."""
    from threadpoolctl import threadpool_limits

    if not wanted:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
