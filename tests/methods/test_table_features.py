"""What a party sends of a table: bins and thermometers of its numbers, centred on its own rows, row
by row."""

import torch
from torch import Tensor

from protoevfl.methods.table_features import BINS, EDGES, FEW, ROOT, learn_features, table_features

NUMBERS = (0, 2)  # column 1 is 0/1
BINNED = 2 * EDGES + 1


def rows(seed: int, count: int = 400) -> Tensor:
    """(1, n, 3): a number of many values, a 0/1 column, a number of three values."""
    generator = torch.Generator().manual_seed(seed)
    many = torch.randn(count, generator=generator)
    flag = (torch.rand(count, generator=generator) < 0.3).float()
    few = torch.randint(0, 3, (count,), generator=generator).float()
    return torch.stack([many, flag, few], 1)[None]


def parts(x: Tensor, learnt: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One-hot bins (n, C, EDGES + 1) and thermometers (n, C, EDGES), before they were centred and
    scaled."""
    raw = (table_features(x, NUMBERS, **learnt) + learnt["centre"][:, None])[0, :, x.shape[-1] :]
    binned = (raw / ROOT).view(len(raw), len(NUMBERS), BINNED)
    return binned[..., : EDGES + 1], binned[..., EDGES + 1 :]


def test_every_number_lies_in_one_bin_and_above_all_edges_below_it() -> None:
    x = rows(0)
    x[0, 0, 0], x[0, 1, 0] = -1e6, 1e6  # beyond everything that was learnt from
    onehot, thermometer = parts(x, learn_features(rows(1), NUMBERS))
    torch.testing.assert_close(onehot.sum(-1), torch.ones(400, 2))
    torch.testing.assert_close(onehot.amax(-1), torch.ones(400, 2))
    assert (thermometer.diff(dim=-1) < 1e-4).all()  # once below an edge, below all higher ones
    torch.testing.assert_close(thermometer.sum(-1).round().long(), onehot.argmax(-1))


def test_a_larger_number_is_never_below_more_edges() -> None:
    x = rows(0)
    _, thermometer = parts(x, learn_features(x, NUMBERS))
    by_size = thermometer[x[0, :, 0].argsort(), 0].sum(-1)
    assert (by_size.diff() > -1e-4).all()


def test_features_are_centred_on_the_rows_they_were_learnt_from() -> None:
    x = rows(0)
    f = table_features(x, NUMBERS, **learn_features(x, NUMBERS))
    assert f.shape == (1, 400, 3 + 2 * BINNED)
    torch.testing.assert_close(f.mean(1), torch.zeros(1, f.shape[-1]), atol=1e-5, rtol=0)


def test_few_values_have_bins_of_their_own_and_many_have_equally_full_ones() -> None:
    x = rows(0, 600)
    learnt = learn_features(x, NUMBERS)
    many, few = learnt["edges"][0]
    assert few.isfinite().sum() == 2
    torch.testing.assert_close(few[:2], torch.tensor([0.5, 1.5]))
    assert many.isfinite().sum() == BINS - 1
    assert many[BINS - 1 :].isinf().all()
    onehot, _ = parts(x, learnt)
    torch.testing.assert_close(
        onehot[:, 0].sum(0)[:BINS], torch.full((BINS,), 100.0), atol=2, rtol=0
    )
    assert (onehot[:, 0].sum(0)[BINS:] == 0).all()


def test_values_that_hardly_occur_and_constant_numbers_get_no_edge() -> None:
    x = torch.zeros(1, 400, 1)
    x[0, :3] = 5.0  # three rows of 400
    assert learn_features(x, (0,))["edges"].isinf().all()
    constant = torch.full((1, 400, 1), 3.0)
    f = table_features(constant, (0,), **learn_features(constant, (0,)))
    assert (f.abs() < 1e-5).all()
    # one value more than get bins of their own
    values = torch.arange(400).view(1, -1, 1) % (FEW + 1)
    assert learn_features(values.float(), (0,))["edges"].isfinite().sum() == BINS - 1


def test_two_parties_in_one_model_get_what_each_gets_alone() -> None:
    x = torch.cat([rows(0), 3 * rows(1) + 1])
    x[:, :, 1] = (x[:, :, 1] > 1).float()
    together = learn_features(x, NUMBERS)
    f = table_features(x, NUMBERS, **together)
    for g in (0, 1):
        alone = learn_features(x[g : g + 1], NUMBERS)
        torch.testing.assert_close(table_features(x[g : g + 1], NUMBERS, **alone), f[g : g + 1])


def test_the_features_of_a_row_depend_on_that_row_only() -> None:
    learnt = learn_features(rows(0), NUMBERS)
    x = rows(2)
    one = table_features(x[:, 7:8], NUMBERS, **learnt)
    torch.testing.assert_close(table_features(x, NUMBERS, **learnt)[:, 7:8], one)
    assert torch.equal(
        table_features(x.flip(1), NUMBERS, **learnt).flip(1), table_features(x, NUMBERS, **learnt)
    )


def test_a_table_without_numbers_is_sent_as_it_is_less_its_mean() -> None:
    x = (rows(0)[..., 1:2] > 0).float()
    f = table_features(x, (), **learn_features(x, ()))
    torch.testing.assert_close(f, x - x.mean(1, keepdim=True))
