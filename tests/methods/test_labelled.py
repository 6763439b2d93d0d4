"""Baselines with every label of the active party."""

import pytest
import torch

from protoevfl.methods.labelled import LabelledSettings, rate_offsets
from tests.methods.play import play

TINY = {"epochs": 1, "models": 2, "labelled.steps": 3}
METHODS = {
    "vanilla": TINY,
    "ss_vfl_c": TINY | {"moco.epochs": 1},
    "fedcvt": TINY,
}


@pytest.mark.parametrize("name", METHODS)
def test_labels_go_to_the_active_party_alone_and_change_its_extractor(name: str) -> None:
    run = play(name, METHODS[name], labels="all")
    asked = [(party, type(request).__name__) for _, party, request, _ in run.transcript]
    assert {party for party, kind in asked if kind == "LearnLabels"} == {0}
    assert not any(kind == "LearnLabels" for _, kind in run.crossed())
    shared = play(name, METHODS[name])
    assert not torch.equal(run.predict()[0], shared.predict()[0])


@pytest.mark.parametrize("name", METHODS)
def test_both_engines_give_the_same(name: str) -> None:
    stacked = play(name, METHODS[name], labels="all").predict()
    loop = play(name, METHODS[name], "loop", wire=True, labels="all").predict()
    for a, b in zip(stacked, loop, strict=True):
        torch.testing.assert_close(a, b, atol=5e-3, rtol=0)


def test_offsets_are_the_log_ratio_of_class_rates() -> None:
    labels = torch.tensor([0] * 8 + [1])
    assert torch.equal(rate_offsets(labels, labels, 2), torch.zeros(2))
    even = torch.tensor([0, 1] * 4)
    offsets = rate_offsets(labels, even, 2)
    assert offsets[0] > 0 > offsets[1]
    torch.testing.assert_close(offsets.exp(), torch.tensor([9 / 11, 2 / 11]) / 0.5)


def test_steps_become_epochs() -> None:
    settings = LabelledSettings(steps=1000, batch=256)
    assert settings.epochs(2560) == 100
    assert settings.epochs(100) == 1000
    assert LabelledSettings(steps=1).epochs(10_000) == 1
