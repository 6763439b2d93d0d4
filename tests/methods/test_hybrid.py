"""FedHSSL's networks: which layers are shared, and the vector they travel in."""

import pytest
import torch

from protoevfl.methods.hybrid import Branch, Pair, Perceptron, load_vector, vector
from protoevfl.models import extractor
from tests.tiny import keys


@pytest.mark.parametrize("shape", [(2, 8, 8), (11,)])
def test_the_vector_brings_weights_and_running_figures_over(shape: tuple[int, ...]) -> None:
    one, other = Branch(shape, keys(2), 16), Branch(shape, keys(2, "other"), 16)
    one(torch.randn(2, 9, *shape))  # moves the running figures
    sent = vector(one.shareable())
    load_vector(other.shareable(), sent)
    torch.testing.assert_close(vector(other.shareable()), sent)
    names = {"mean", "var"} & {n.split(".")[-1] for m in one.shareable() for n in m.state_dict()}
    assert names == {"mean", "var"}
    # the bottom stays private
    assert not torch.allclose(vector([one.encoder]), vector([other.encoder]))


def test_the_shared_part_has_one_size_for_parties_with_different_columns() -> None:
    assert (
        vector(Branch((5,), keys(1), 16).shareable()).shape
        == vector(Branch((40,), keys(1), 16).shareable()).shape
    )


def test_private_layers_of_images_are_the_convolutions() -> None:
    branch = Branch((2, 8, 8), keys(1), 16)
    shared = {id(p) for m in branch.shareable() for p in m.parameters()}
    private = {n.split(".")[1] for n, p in branch.named_parameters() if id(p) not in shared}
    assert private == {"conv1", "conv2", "bn1", "bn2"}


def test_a_projector_normalises_its_output_over_the_rows() -> None:
    z = Perceptron(keys(3), "p", (6, 8, 8, 4), True)(torch.randn(3, 50, 6))
    torch.testing.assert_close(z.mean(1), torch.zeros(3, 4), atol=1e-5, rtol=0)
    assert len(Perceptron(keys(1), "q", (4, 2, 4), False).linears) == 2


def test_a_pair_is_the_mean_of_both_encoders() -> None:
    x, (a, b) = torch.randn(2, 7, 5), (extractor((5,), keys(2, n)) for n in "ab")
    torch.testing.assert_close(Pair(a, b)(x), (a(x) + b(x)) / 2)
