"""A party's side of a standing service: what leaves is what `deploy predict` would send, for rows that
are shared, within the policy, once per frame."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from protoevfl.codec import decode, encode
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.host import RefusedError
from protoevfl.deploy.row_ledger import LimitError
from protoevfl.deploy.standing import Shelf, StandingParty, Window
from protoevfl.messages import Embed, EmbedAt, Embeddings
from tests.deploy.standing import Standing, standing
from tests.deploy.test_site_job import SHARED, SOME


@pytest.fixture
def companies(tmp_path: Path) -> Standing:
    return standing(tmp_path)


@pytest.fixture
def shop(companies: Standing) -> StandingParty:
    found = StandingParty(companies.kit("shop"), companies.spec, companies.party("shop").log)
    found.load()
    return found


def ask(shop: StandingParty, *places: int, counter: int = 1, **changes: object) -> Embeddings:
    envelope = Envelope(
        "request", shop.spec.run, shop.spec.digest(), "bank", "shop", 1, shop.session, counter
    )
    body = encode(EmbedAt(torch.tensor(places, dtype=torch.int64)))
    policy = replace(shop.local.policy, serve=replace(shop.local.policy.serve, **changes))
    reply = decode(shop.answer(envelope, body, policy)[1])
    assert isinstance(reply, Embeddings)
    return reply


def test_the_shared_rows_of_the_training_run_need_no_new_alignment(shop: StandingParty) -> None:
    assert len(shop.universe.ids) == SHARED + SOME
    assert shop.shelf is not None
    assert shop.shelf.here.all()


def test_a_row_gives_what_a_prediction_by_file_gives(shop: StandingParty) -> None:
    source = shop.local.source()
    rows = shop.universe.rows(source.ids())
    made = shop.local.served(source, rows)
    whole = decode(made.handle_bytes(encode(Embed("query"))))
    assert isinstance(whole, Embeddings)
    assert torch.equal(ask(shop, 4, 0).values, whole.values[[4, 0]])
    # the order of a file, or rows that were added, change nothing
    path = shop.kit.folder / "rows.csv"
    head, *lines = path.read_text().splitlines()
    new = lines[0].split(",", 1)[1]
    path.write_text("\n".join([head, f"somebody,{new}", *reversed(lines)]) + "\n")
    shop.load()
    assert torch.allclose(ask(shop, 4, 0).values, whole.values[[4, 0]], atol=1e-6)


def test_a_row_that_left_the_file_is_gone_and_not_sent(shop: StandingParty) -> None:
    path = shop.kit.folder / "rows.csv"
    gone = shop.universe.ids[3]
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f'"{gone}"')]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RefusedError, match="the rows here have changed"):
        ask(shop, 3)
    assert shop.welcome(shop.local.policy)["gone"] == [3]
    with pytest.raises(RefusedError, match="no longer here"):
        ask(shop, 3)
    assert len(ask(shop, 4, counter=2).values) == 1


@pytest.mark.parametrize("places", [(), (1, 1), (10_000,)])
def test_other_places_are_refused(shop: StandingParty, places: tuple[int, ...]) -> None:
    with pytest.raises(RefusedError):
        ask(shop, *places)
    assert shop.log.used() == (0, 0)


def test_limits_hold_and_every_row_is_counted(shop: StandingParty) -> None:
    ask(shop, 0, 1, 2)
    with pytest.raises(RefusedError, match="at most 2"):
        ask(shop, 0, 1, 2, counter=2, rows_per_request=2)
    with pytest.raises(LimitError, match="rows_per_day"):
        ask(shop, 0, counter=3, rows_per_day=3)
    with pytest.raises(LimitError, match="requests_per_day"):
        ask(shop, 0, counter=4, requests_per_day=1)
    assert shop.log.used() == (1, 3)


def test_other_messages_are_not_answered(shop: StandingParty) -> None:
    envelope = Envelope("request", shop.spec.run, "", "bank", "shop", 1, shop.session, 1)
    with pytest.raises(RefusedError, match="not allowed"):
        shop.answer(envelope, encode(Embed("aligned")), shop.local.policy)
    with pytest.raises(RefusedError, match="not asked"):
        shop.answer(replace(envelope, kind="finish", counter=2), b"", shop.local.policy)


def test_a_frame_is_good_once_in_its_session(shop: StandingParty) -> None:
    ask(shop, 0)
    with pytest.raises(RefusedError, match="replay"):
        ask(shop, 0)
    assert len(ask(shop, 0, counter=7).values) == len(ask(shop, 0, counter=5).values) == 1


def test_a_window_forgets_nothing_that_it_would_let_in_again() -> None:
    rng = np.random.default_rng(0)
    window, taken = Window(size=16), set[int]()
    for base in range(1, 400):
        counter = max(1, base + int(rng.integers(-30, 10)))
        if window.take(counter):
            assert counter not in taken
            taken.add(counter)


def test_a_recall_is_told_with_the_next_greeting(shop: StandingParty) -> None:
    before = shop.welcome(shop.local.policy)["recalled"]
    (shop.local.folder / "recalled").write_bytes(b"")
    assert shop.welcome(shop.local.policy)["recalled"] != before
    assert isinstance(shop.shelf, Shelf)
