"""What a notebook shows: parameters before `fit`; afterwards parties, what crossed, and whether
joining pays, all escaped."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import torch

from protoevfl import ProtoEVFLClassifier
from protoevfl.estimator.card import NOT_MEASURED, card

RATES = {"auc": 0.75, "accuracy": 0.8, "balanced_accuracy": 0.7, "brier": 0.125}


def fitted(**more: Any) -> ProtoEVFLClassifier:
    """A model as `fit` leaves it, as far as it is shown."""
    model = ProtoEVFLClassifier()
    party = SimpleNamespace(
        encoder=SimpleNamespace(columns=["a", "b"]), method=SimpleNamespace(columns="few")
    )
    model.parties_ = {"bank": party, "<insurer>": party}
    model.party_names_ = tuple(model.parties_)
    model.owner_ = SimpleNamespace(labels=torch.zeros(1200))
    model.cost_ = {"seconds": 3.0, "bytes": {"up": 4810, "down": 0}, "epsilon": {"1": 0.63}}
    for name, value in more.items():
        setattr(model, name, value)
    return model


def figures(low: float) -> dict[str, Any]:
    share = {"party": "<insurer>", "value": 0.04, "low": low, "high": 0.055}
    return {
        "rows": 2399,
        "test": RATES,
        "alone": {**RATES, "auc": None},
        "gain": {"measure": "auc", "difference": 0.04, "low": low, "high": 0.055},
        "value": {"metric": "auc", "parties": [share]},
    }


def words(html: str) -> str:
    """The text of a page, whose tags must close in the order they open."""

    class Text(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.text = ""

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_data(self, data: str) -> None:
            if self.open and self.open[-1] != "style":
                self.text += f"{data} "

    reader = Text()
    reader.feed(html)
    assert not reader.open
    return re.sub(r"\s+", " ", reader.text)


def test_before_fit_it_shows_every_parameter() -> None:
    text = words(ProtoEVFLClassifier(parties={"<b>": ["x"]}, seed=7)._repr_html_())
    assert "not fitted yet" in text
    assert "seed 7" in text
    assert "{'<b>': ['x']}" in text
    for name in ProtoEVFLClassifier().get_params():
        assert name in text


def test_after_fit_it_shows_parties_and_what_crossed() -> None:
    text = words(card(fitted()))
    assert "1,200 labelled rows" in text
    assert NOT_MEASURED in text
    assert "<insurer>" in text
    assert "4.81 kB to bank, 0 from it" in text
    assert "few rounded numbers per shared row" in text
    assert "epsilon: <insurer> 0.63" in text


def test_when_measured_it_says_whether_joining_pays() -> None:
    text = words(card(fitted(measured_=figures(0.02))))
    assert "Joining pays: 4.0 points of AUC over bank alone (95 % interval 2.0 to 5.5)" in text
    assert "+4.0 (+2.0 to +5.5)" in text
    assert "all parties 75.0 80.0 70.0 0.125" in text
    assert "bank alone – 80.0" in text
    assert "Joining is not shown to pay" in words(card(fitted(measured_=figures(-0.02))))


def test_a_notebook_gets_both_kinds() -> None:
    model = ProtoEVFLClassifier()
    shown = model._repr_mimebundle_()
    assert shown == {"text/plain": repr(model), "text/html": model._repr_html_()}
    assert not re.search(r'(src|href)="', shown["text/html"])
