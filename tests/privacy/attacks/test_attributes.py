"""Attributes: found where the embedding carries them, not beyond the yardstick where it does not."""

import torch

from protoevfl.privacy.attacks.attributes import infer_category, infer_number


def test_a_column_inside_the_embedding_is_found() -> None:
    g = torch.Generator().manual_seed(0)
    f, labels, leaked = torch.randn(400, 8, generator=g), torch.arange(400) % 2, torch.arange(400) < 200
    category, number = (f[:, 0] > 0).long() + (f[:, 1] > 1).long(), f[:, 2] * 3 + 1
    found = infer_category(f, category, leaked, labels)
    assert (found["from embeddings"].accuracy or 0) > (found["commonest value"].accuracy or 0) + 0.2
    assert (infer_number(f, number, leaked, labels)["from embeddings"].r2 or 0) > 0.9


def test_a_column_outside_it_is_not() -> None:
    g = torch.Generator().manual_seed(1)
    f, labels, leaked = torch.randn(400, 8, generator=g), torch.arange(400) % 2, torch.arange(400) < 200
    number = torch.randn(400, generator=g)
    assert (infer_number(f, number, leaked, labels)["from embeddings"].r2 or 0) < 0.1
    balanced = infer_category(f, (number > 0).long(), leaked, labels)["from embeddings"].balanced
    assert abs((balanced or 0) - 0.5) < 0.1
