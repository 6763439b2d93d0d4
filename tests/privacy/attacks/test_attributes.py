"""Attributes: found where the embedding carries them, not beyond the yardstick where it does
not."""

import torch

from protoevfl.privacy.attacks.attributes import infer_category, infer_number, infer_table


def test_a_column_inside_the_embedding_is_found() -> None:
    g = torch.Generator().manual_seed(0)
    f, labels, leaked = (
        torch.randn(400, 8, generator=g),
        torch.arange(400) % 2,
        torch.arange(400) < 200,
    )
    category, number = (f[:, 0] > 0).long() + (f[:, 1] > 1).long(), f[:, 2] * 3 + 1
    found = infer_category(f, category, leaked, labels)
    assert (found["from embeddings"].accuracy or 0) > (found["commonest value"].accuracy or 0) + 0.2
    assert (infer_number(f, number, leaked, labels)["from embeddings"].r2 or 0) > 0.9


def test_a_column_outside_it_is_not() -> None:
    g = torch.Generator().manual_seed(1)
    f, labels, leaked = (
        torch.randn(400, 8, generator=g),
        torch.arange(400) % 2,
        torch.arange(400) < 200,
    )
    number = torch.randn(400, generator=g)
    assert (infer_number(f, number, leaked, labels)["from embeddings"].r2 or 0) < 0.1
    balanced = infer_category(f, (number > 0).long(), leaked, labels)["from embeddings"].balanced
    assert abs((balanced or 0) - 0.5) < 0.1


def test_a_whole_table_column_by_column() -> None:
    f = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    codes = (f[:, 0] > 0).long()
    rows = torch.cat(
        [torch.nn.functional.one_hot(codes, 2).float(), f[:, 1:2], torch.ones(200, 1)], 1
    )
    leaked = torch.arange(200) % 2 == 0
    found = infer_table(f, rows, [(0, 2), (2, 3), (3, 4)], leaked, torch.arange(200) % 3)
    assert set(found) == {"column 1, category", "column 2, number"}  # the last one never changes
    assert found["column 1, category"]["from embeddings"] > 0.85
    assert found["column 2, number"]["from embeddings"] > 0.8
    assert found["column 2, number"]["from the label alone"] < 0.2
