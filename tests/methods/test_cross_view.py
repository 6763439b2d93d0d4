"""FedCVT's arithmetic against slow, obvious versions."""

import torch
import torch.nn.functional as F

from protoevfl.head import ThreeHeads
from protoevfl.methods import cross_view as cv
from protoevfl.methods.ss_vfl import PlainHead
from tests.tiny import keys

E_, P, B, D, Z = 2, 3, 5, 4, 3


def test_estimate_is_attention_over_the_aligned_rows() -> None:
    query, own, other = torch.randn(2 * D), torch.randn(B, 2 * D), torch.randn(B, 2 * D)
    got = cv.estimate(query[None], own, other)[0]
    unique = F.softmax(own[:, :D] @ query[:D] / D**0.5, 0) @ other[:, :D]
    common = F.softmax(other[:, D:] @ query[D:] / D**0.5, 0) @ other[:, D:]
    torch.testing.assert_close(got, torch.cat([unique, common]))


def test_leaving_out_a_row_hides_its_own_answer() -> None:
    own, other = torch.randn(B, 2 * D), torch.randn(B, 2 * D)
    before = cv.estimate(own, own, other, leave_out=True)
    changed = other.clone()
    changed[2] += 5
    after = cv.estimate(own, own, changed, leave_out=True)
    torch.testing.assert_close(before[2], after[2])
    assert not torch.allclose(before[1], after[1])


def test_agreement_needs_one_answer_and_three_confident_heads() -> None:
    sure, unsure = torch.tensor([4.0, 0.0, 0.0]), torch.tensor([0.3, 0.0, 0.0])
    other = torch.tensor([0.0, 4.0, 0.0])
    cases = [(sure, sure, sure), (sure, sure, other), (sure, unsure, sure), (unsure, sure, sure)]
    logits = torch.stack([torch.stack(c) for c in cases], 1)[:, None, None]  # (3, 1, 1, rows, Z)
    label, counts = cv.agreement(logits, (0.8, 0.7, 0.7))
    assert counts.flatten().tolist() == [True, False, False, False]
    assert int(label[0, 0, 0]) == 0


def test_losses_against_loops() -> None:
    logits = torch.randn(3, E_, P, B, Z)
    labels = torch.randint(0, Z, (E_, B))
    got = cv.supervised(logits, F.one_hot(labels, Z).float())
    slow = [
        sum(F.cross_entropy(logits[h, e, p], labels[e]) for h in range(3) for p in range(P)) / P
        for e in range(E_)
    ]
    torch.testing.assert_close(got, torch.stack(slow))
    pseudo, counts = torch.randint(0, Z, (E_, P, B)), torch.rand(E_, P, B) > 0.5
    got = cv.pseudo_labelled(logits, pseudo, counts)
    slow = []
    for e in range(E_):
        terms = [
            F.cross_entropy(logits[h, e, p, b], pseudo[e, p, b]) * counts[e, p, b] / (P * B)
            for h in range(3) for p in range(P) for b in range(B)
        ]  # fmt: skip
        slow.append(torch.stack(terms).sum())
    torch.testing.assert_close(got, torch.stack(slow))


def test_apart_is_zero_for_orthogonal_halves_and_alike_for_equal_ones() -> None:
    r = torch.tensor([[[1.0, 0.0, 0.0, 2.0]]])
    assert float(cv.apart(r)) == 0
    torch.testing.assert_close(cv.apart(torch.ones(1, 1, 4)), torch.ones(1))
    assert float(cv.alike(r, r)) == 0


def test_the_guest_head_is_one_for_all_pairs() -> None:
    heads = ThreeHeads(keys(E_), P, 2 * D, Z, PlainHead(hidden=0))
    a, b = torch.randn(E_, 1, B, 2 * D).expand(-1, P, -1, -1), torch.randn(E_, P, B, 2 * D)
    joint, guest, host = heads(a, b)
    torch.testing.assert_close(guest[:, 0], guest[:, 2])
    assert not torch.allclose(host[:, 0], host[:, 2])
    assert not torch.allclose(joint[:, 0], joint[:, 2])
