"""Predictions one by one are those of the file, from whoever is there."""

import pytest
import torch

from protoevfl.deploy.standing_lead import OverLimitError
from protoevfl.errors import UserError
from protoevfl.serve.service import Model, Row, UnknownCustomerError, warm_up
from tests.deploy.test_site_job import NAMES
from tests.serve.conftest import Served


def test_alone_in_a_batch_and_by_columns_a_row_has_the_same_prediction(served: Served) -> None:
    ids = served.shared(5)
    batch = served.model.predict([Row(i) for i in ids], 5.0)
    assert [a.id for a in batch] == ids
    single = served.model.predict([Row(ids[2])], 5.0)[0]
    assert single.probabilities == pytest.approx(batch[2].probabilities, abs=1e-5)
    assert single.parties == NAMES
    assert single.absent == {}
    encoder = served.model.active.party.encoder
    line = next(
        text.split(",")
        for text in (served.companies.folder / "bank" / "rows.csv").read_text().splitlines()
        if text.startswith(f'"{ids[2]}"')
    )
    columns = {name: float(line[1 + k]) for k, name in enumerate(encoder.columns)}
    given = served.model.predict([Row(ids[2], columns)], 5.0)[0]
    assert given.probabilities == pytest.approx(single.probabilities, abs=1e-5)


def test_without_an_id_the_own_model_predicts_and_nobody_is_asked(served: Served) -> None:
    columns = dict.fromkeys(served.model.active.party.encoder.columns, 0.5)
    sent = len(served.companies.sent)
    (found,) = served.model.predict([Row(None, columns)], 5.0)
    assert found.parties == ("bank",)
    assert set(found.absent.values()) == {"the row has no id"}
    assert len(served.companies.sent) == sent


def test_any_subset_answers_and_says_who_was_missing(served: Served) -> None:
    (one,) = served.shared()
    served.companies.cut("tele")
    (found,) = served.model.predict([Row(one)], 5.0)
    assert found.parties == ("bank", "shop")
    assert "the line is cut" in found.absent["tele"]
    owner = served.model.active.owner
    assert sum(found.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert set(found.probabilities) == set(owner.classes)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Row("nobody"), "no customer has the id 'nobody'"),
        (Row(None, {"x": 1}), "lacks the column"),
        (Row(None, {"x": 1, "y": 2, "z": 3}), "'z' is not a column"),
        (Row(" "), "no id"),
    ],
)
def test_what_cannot_be_predicted_is_said_and_nothing_is_sent(
    served: Served, row: Row, text: str
) -> None:
    sent = len(served.companies.sent)
    with pytest.raises(UserError, match=text):
        served.model.predict([row, Row(served.shared()[0])], 5.0)
    assert len(served.companies.sent) == sent
    assert issubclass(UnknownCustomerError, UserError)


def test_a_party_s_day_stops_the_request_or_is_gone_without(served: Served) -> None:
    served.companies.rules("shop", rows_per_day=0)
    served.model.lead.partners[1].greet()
    (one,) = served.shared()
    with pytest.raises(OverLimitError):
        served.model.predict([Row(one)], 5.0)
    (found,) = served.model.predict([Row(one)], 5.0, "degrade")
    assert found.parties == ("bank", "tele")
    assert "rows_per_day" in found.absent["shop"]


def test_a_changed_file_is_taken_up(served: Served) -> None:
    path = served.companies.folder / "bank" / "rows.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *lines, '"late",' + lines[0].split(",", 1)[1]]) + "\n")
    served.model.refresh()
    assert served.model.predict([Row("late")], 5.0)[0].parties == ("bank",)


def test_a_new_run_takes_over_and_the_one_before_ends(served: Served) -> None:
    other = Model(served.companies.active(), served.companies.lead())
    assert served.service.add(other) is served.model
    assert served.service.model() is other
    with pytest.raises(UserError, match="is not served"):
        served.service.model("another")
    served.service.drop(other)  # the current one stays
    assert served.service.models == {"train": other}
    served.service.models |= {"before": served.model}
    served.service.drop(served.model)
    assert served.service.models == {"train": other}


def test_warming_up_fits_what_the_first_request_would_wait_for(served: Served) -> None:
    warm_up(served.model)
    (found,) = served.model.predict([Row(served.shared()[0])], 5.0)
    assert torch.isfinite(torch.tensor(list(found.probabilities.values()))).all()
