"""What leaves of a picture at the sealed level: exact scores with the least noise that keeps pixels
within the party's bound, the same noise whenever the same picture is asked for."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from protoevfl.federation.party import Party
from protoevfl.messages import Embed, OpenLabels, values
from protoevfl.methods import answers, sealed
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.sealed_choice import MOST_NOISE, NEAR, PICTURES, Audit, Candidate, choose
from protoevfl.methods.sealed_grain import NOWHERE, Grain, SealedSettings
from protoevfl.privacy.gives_away import STRENGTHS, SelfAuditError, _ridge, gives_away
from tests.tiny import ALIGNED, CLASSES, image_table, labels, quick

ROWS, PIXELS, SCORES = 900, 12, 4


def noisy(amounts: list[float], salt: int = 1) -> Grain:
    plain = Grain.of(torch.zeros(2, len(amounts)).double(), NOWHERE, 0.0, salt)
    return replace(plain, noise=torch.tensor(amounts).double())


def features() -> tuple[Tensor, dict[str, Tensor]]:
    """(n, d) of which pictures (n, p) are a blurred map, so that scores tell much of the pixels."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, SCORES, generator=source).double()
    map_ = torch.randn(SCORES, PIXELS, generator=source).double()
    blur = 0.5 * torch.randn(ROWS, PIXELS, generator=source).double()
    return x, {"picture": (x @ map_ + blur).float()}


def chosen(bound: float, levels: int = 0, spread: float = 3.0) -> tuple[Candidate, Audit, Tensor]:
    own, columns = features()
    settings = SealedSettings(levels=levels, most_of_number=bound)
    directions = spread * torch.eye(SCORES).double().expand(3, -1, -1).contiguous()
    directions[1, 0, 0] = 0.1  # another fold's
    found = choose(own, columns, directions, None, 1, settings)
    return found, Audit(columns, settings, PICTURES), own


# ---------------------------------------------------------------- noise


def test_noise_is_the_row_s_whatever_batch_it_is_in_and_another_row_s_or_salt_s_is_another() -> (
    None
):
    rows = torch.arange(40).view(10, 4).to(torch.uint8)
    scores = torch.ones(10, 3).double()
    grain = noisy([1.0, 2.0, 3.0])
    sent = grain(scores, rows)
    for at in range(10):
        assert torch.equal(grain(scores[at : at + 1], rows[at : at + 1])[0], sent[at])
    assert torch.equal(grain(scores.flip(0), rows.flip(0)).flip(0), sent)
    assert len(sent.unique()) == sent.numel(), "no two rows, no two scores have the same"
    assert not (noisy([1.0, 2.0, 3.0], salt=2)(scores, rows) == sent).any()
    changed = rows.clone()
    changed[3, 2] += 1  # one pixel by one step
    assert (grain(scores, changed) == sent).all(1).sum() == 9


def test_noise_is_normal_of_the_spread_asked_for_and_says_nothing_of_other_scores() -> None:
    rows = torch.arange(20_000)[:, None]
    added = noisy([0.5, 2.0, 0.0])(torch.zeros(20_000, 3).double(), rows)
    assert not added[:, 2].any()
    unit = added[:, :2] / torch.tensor([0.5, 2.0]).double()
    torch.testing.assert_close(unit.mean(0), torch.zeros(2).double(), atol=0.03, rtol=0)
    torch.testing.assert_close(unit.std(0), torch.ones(2).double(), atol=0.03, rtol=0)
    normal = torch.tensor([0.6827, 0.9545, 0.9973])
    shares = torch.stack([(unit.abs() < k).float().mean() for k in (1, 2, 3)])
    torch.testing.assert_close(shares, normal, atol=0.01, rtol=0)
    assert abs(float((unit[:, 0] * unit[:, 1]).mean())) < 0.03
    assert abs(float((unit[1:, 0] * unit[:-1, 0]).mean())) < 0.03


# ---------------------------------------------------------------- the choice


def test_the_choice_is_within_the_bound_in_every_direction_and_not_far_from_it() -> None:
    found, audit, own = chosen(0.5)
    noise = found.grain.noise
    assert noise is not None
    assert not found.grain.levels.numel()
    for direction in found.directions:
        left = audit.scores(own, direction[None], found.grain)["picture"]
        assert left <= 1
    assert left > NEAR - 0.05
    less = replace(found.grain, noise=0.8 * noise)
    assert audit.scores(own, found.directions, less)["picture"] > 1
    wider, _, _ = chosen(0.7)
    assert wider.grain.noise is not None
    assert (wider.grain.noise < noise).all()


def test_noise_grows_with_a_score_s_own_spread() -> None:
    one, three = (chosen(0.5, spread=spread)[0].grain.noise for spread in (1.0, 3.0))
    assert one is not None
    assert three is not None
    torch.testing.assert_close(3 * one, three, rtol=0.1, atol=0)


def test_exact_scores_leave_where_the_bound_takes_them() -> None:
    found, _, own = chosen(1.0)
    scores = own @ found.directions[-1]
    assert torch.equal(found.grain(scores, own), scores)


def test_where_the_most_noise_is_too_little_nothing_is_sent() -> None:
    with pytest.raises(SelfAuditError, match=f"noise of {MOST_NOISE:g} times their spread"):
        chosen(0.01)


def test_levels_that_are_asked_for_are_levels_of_pictures_too() -> None:
    found, audit, own = chosen(0.5, levels=3)
    assert found.grain.noise is None
    assert found.grain.levels.shape[1] in (2, 3)
    assert audit.scores(own, found.directions, found.grain)["picture"] < 1.1


def test_more_than_a_few_hundred_rows_are_decoded_as_the_few_are() -> None:
    """The ridge of many rows is computed in another way: both give the same figure."""
    own, columns = features()
    own = own + torch.randn(own.shape, generator=torch.Generator().manual_seed(1)).double()
    few = gives_away(columns, own)["picture"]
    many = gives_away(columns, own, ROWS)["picture"]
    assert abs(few - many) < 0.03
    x, y = own[:100], columns["picture"][:100].double()
    for strength, weights in zip(STRENGTHS, _ridge(x, y), strict=True):
        gram = x @ x.T / SCORES + strength * torch.eye(100).double()
        torch.testing.assert_close(x @ weights, x @ x.T / SCORES @ torch.linalg.solve(gram, y))


# ---------------------------------------------------------------- a party


def party(**settings: object) -> Party:
    asked = {"columns": "sealed", "sealed__levels": 0, "sealed__most_of_number": 0.5}
    method = quick("proto_evfl", **asked | {"layers": ["output", "hidden"]} | settings)
    table = image_table(pool=200)
    mine = Party(method, table, 7)
    mine.handle(OpenLabels(torch.arange(ALIGNED), labels(0, ALIGNED), torch.ones(CLASSES)))
    return mine


def sent_alone(mine: Party, at: int) -> Tensor:
    rows = mine.rows.query[:, at : at + 1]
    assert isinstance(mine.method, ProtoEVFL)
    return sealed.new_scores(mine, answers.embeddings(mine.method, mine, rows), rows)[0, 0]


def test_a_party_s_picture_has_the_same_noise_in_any_batch() -> None:
    """The network rounds differently in another batch, so the noise must not hang on its output."""
    mine = party()
    assert float(mine.memory["sealed.noise"].min()) > 0.1
    sent = values(mine.handle(Embed("query")))
    for at in range(len(sent)):
        torch.testing.assert_close(sent_alone(mine, at), sent[at], atol=1e-3, rtol=0)


def test_a_party_that_is_restored_adds_the_same_noise_and_an_older_one_none() -> None:
    mine = party()
    sent = values(mine.handle(Embed("query")))
    again = Party(mine.method, mine.table, 7)
    again.restore(mine.state())
    assert torch.equal(values(again.handle(Embed("query"))), sent)
    state = {n: t for n, t in mine.state().items() if n != "memory.sealed.noise"}
    older = Party(mine.method, mine.table, 7)
    older.restore(state)
    assert (values(older.handle(Embed("query"))) - sent).abs().max() > 0.1


def test_a_party_that_is_asked_for_levels_sends_levels() -> None:
    mine = party(sealed__levels=4, sealed__most_of_number=1.0)
    assert "sealed.noise" not in mine.memory
    sent = values(mine.handle(Embed("query")))
    assert max(len(score.unique()) for score in sent.T) <= 4
