"""Scalers see a party's own training rows only; columns keep their spans."""

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Column
from protoevfl.rows.encode import encode_table

RNG = np.random.default_rng(0)
AGE = Column("age", RNG.normal(40, 10, 50))
GAIN = Column("gain", RNG.lognormal(5, 3, 50) * RNG.choice([-1, 1], 50), log=True)
JOB = Column("job", RNG.integers(-1, 3, 50), ("?", "a", "b"))
FIT = torch.arange(30)


def test_fitted_rows_have_mean_zero_and_deviation_one() -> None:
    encoded = encode_table([AGE, GAIN], FIT)
    own = encoded.values[FIT]
    assert encoded.values.dtype == torch.float32
    assert torch.allclose(own.mean(0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(own.std(0, correction=0), torch.ones(2), atol=1e-5)


def test_other_rows_do_not_change_the_scaler() -> None:
    changed = AGE.values.copy()
    changed[30:] = 1e6
    before = encode_table([AGE], FIT).values[FIT]
    after = encode_table([Column("age", changed)], FIT).values[FIT]
    assert torch.equal(before, after)


def test_log_keeps_order_and_sign() -> None:
    values = encode_table([GAIN], FIT).values[:, 0].numpy()
    assert (np.argsort(values) == np.argsort(GAIN.values)).all()


def test_one_hot_rows_sum_to_one_and_unknown_values_to_zero() -> None:
    values = encode_table([JOB], FIT).values
    assert torch.equal(values.sum(1), torch.from_numpy((JOB.values >= 0).astype(np.float32)))
    assert torch.equal(values.argmax(1)[JOB.values >= 0], torch.from_numpy(JOB.values[JOB.values >= 0]))


def test_spans_cut_the_columns_apart() -> None:
    columns = [JOB, AGE, GAIN]
    encoded = encode_table(columns, FIT)
    assert encoded.spans == ((0, 3), (3, 4), (4, 5))
    for column, (start, end) in zip(columns, encoded.spans, strict=True):
        assert torch.equal(encoded.values[:, start:end], encode_table([column], FIT).values)


def test_missing_numbers_become_the_mean_with_a_flag() -> None:
    values = encode_table([Column("age", np.array([1.0, 3.0, np.nan]))], torch.tensor([0, 1])).values
    assert values.tolist() == [[-1, 0], [1, 0], [0, 1]]


def test_constant_column_is_zero_not_nan() -> None:
    assert encode_table([Column("one", np.ones(4))], torch.arange(4)).values.abs().max() == 0


def test_infinite_value_names_the_column() -> None:
    with pytest.raises(UserError, match="'age' holds an infinite value"):
        encode_table([Column("age", np.array([1.0, np.inf]))], torch.arange(2))
