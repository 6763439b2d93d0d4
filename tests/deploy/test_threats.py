"""What a malicious partner tried (threats D1 to D5), repeated: each attack worked before parties had a
secret, bounds, a ledger, sealed frames and limits of their own.

The attacker is the active party: it has its own valid key, signs what it likes, and has the party's
software at home. The party is a real kit with a file, behind its border.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import torch
from torch import Tensor

from protoevfl.codec import decode, encode
from protoevfl.deploy import site_job
from protoevfl.deploy.aligning import RESPOND, SETUP
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.host import PartyHost
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.local import Local
from protoevfl.deploy.policy import TEMPLATE
from protoevfl.deploy.spec import JobSpec
from protoevfl.federation.federation import party_key
from protoevfl.federation.party import Party
from protoevfl.messages import (
    Describe,
    Embed,
    Embeddings,
    Learn,
    Learned,
    Message,
    Statistics,
    WarmUp,
)
from protoevfl.pipeline.prepare import rows_of
from tests.deploy.keyring import opened, put, said, sealed
from tests.deploy.test_local import alignment

NAMES = ("bank", "shop")
PEOPLE, SHARED = 300, 60
IDS = [f"C{i:03d}" for i in range(PEOPLE)]


def kit(folder: Path, name: str, policy: str) -> Kit:
    home = folder / name
    home.mkdir(exist_ok=True)
    rng = np.random.default_rng(NAMES.index(name))
    columns: dict[str, Any] = {"customer": IDS}
    columns |= {f"x{i}": rng.normal(size=PEOPLE).round(6) for i in range(6)}
    if name == "bank":
        columns["risk"] = [("good", "bad")[i % 2] for i in range(PEOPLE)]
    pacsv.write_csv(pa.table(columns), home / "rows.csv")
    label = 'label = "risk"\ntest = 0.0\n' if name == "bank" else ""
    (home / "party.toml").write_text(f'file = "rows.csv"\nid = "customer"\nminimum = 5\n{label}')
    (home / "policy.toml").write_text(policy)
    put(home, name)
    return Kit(home, Identity("p", name, "party", name, "hub:1", "bank", NAMES))


class Attack:
    """The bank against the shop, in one run; both sides hold the alignment of the first rows."""

    def __init__(self, folder: Path, spec: JobSpec, policy: str = "") -> None:
        self.spec = spec
        kits = [kit(folder, n, policy or TEMPLATE.format(active="bank")) for n in NAMES]
        self.bank, self.shop = (Local(k, spec) for k in kits)
        self.round = 0

    def aligned(self) -> "Attack":
        from protoevfl.deploy.aligning import pack_uses

        rows = list(range(SHARED))
        side = self.bank.active
        side.pair("shop").save(alignment("bank", self.bank, rows))
        self.shop.pair.save(alignment("shop", self.shop, rows))
        kept = side.pair("shop").load()
        assert kept is not None
        message = pack_uses(rows_of(side.rows, side.shared, 1, predict=True), kept, side.ids)
        self.shop.pair.keep_uses(message)
        return self

    @property
    def host(self) -> PartyHost:
        if not hasattr(self, "_host"):
            self._host = site_job.make_host(self.shop.kit, self.spec)
        return self._host

    def frame(self, kind: str, number: int, body: bytes) -> bytes:
        made = Envelope(kind, self.spec.run, self.spec.digest(), "bank", "shop", number)
        made = replace(made, session=self.host.session, counter=self.host.counter + 1)
        return sealed(made, body)

    def ask(self, request: Message) -> Message | str:
        """What the shop sends, or the words of its refusal."""
        self.round += 1
        answer = self.host.answer(self.frame("request", self.round, encode(request)), "bank")
        found = opened(answer)
        if found.envelope.kind == "refusal":
            self.round -= 1
            return said(answer)
        return decode(found.body)


def job(run: str = "r", **changes: Any) -> JobSpec:
    return complete(JobSpec(run, NAMES, **{"rounds": 200, **changes}))


def widened(*lines: str) -> str:
    return TEMPLATE.format(active="bank") + "\n".join(lines) + "\n"


# ------------------------------------------------------------ D1: columns rebuilt from embeddings

QUICK = {"warm.epochs": 5, "warm.batch": 256}
UNTRAINED = {"warm.epochs": 0, "rounds.count": 0}
PRETENDED = {"epsilon": 0.1, "prototype_noise": 0.0, "class_noise": 0.0}


def test_d1_settings_that_leave_the_network_as_it_began_are_refused(tmp_path: Path) -> None:
    strict = TEMPLATE.format(active="bank").replace("max_epsilon = 8.0", "max_epsilon = 0.5")
    strict = strict.replace("require_privacy = false", "require_privacy = true")
    attack = Attack(tmp_path, job(settings=UNTRAINED, privacy=PRETENDED), strict).aligned()
    answer = attack.ask(WarmUp())
    assert isinstance(answer, str)
    for reason in ("warm.epochs = 0", "would not be noisy", "no proven guarantee"):
        assert reason in answer


def test_d1_what_the_active_party_knows_does_not_give_it_the_network(tmp_path: Path) -> None:
    """Even a party that lets an untrained network answer: the columns come out with its own network
    (the attack works) and not with the one that the job's seed would give."""
    attack = Attack(tmp_path, job(settings=UNTRAINED), widened('"warm.epochs" = [0, 9]')).aligned()
    sent = attack.ask(WarmUp())
    assert not isinstance(sent, str)
    f = sent.values  # type: ignore[attr-defined]
    truth = attack.shop.part().table
    true_net = attack.host.party.party.net  # type: ignore[attr-defined]
    guessed = Party(attack.shop.method(), truth, party_key(attack.spec.seed, 1)).net
    some = truth.aligned[:20]
    assert float(r_squared(inverted(true_net, f[:20], some), some).min()) > 0.99
    assert float(r_squared(inverted(guessed, f[:20], some), some).max()) < 0.5


def test_d1_a_network_that_has_learnt_nothing_is_not_shown_whatever_is_asked_first(
    tmp_path: Path,
) -> None:
    attack = Attack(tmp_path, job(settings=QUICK)).aligned()
    fresh = attack.shop._learning().party.net.state_dict()
    assert isinstance(attack.ask(Embed("aligned")), Embeddings)
    learnt = attack.host.party.state()
    assert not torch.equal(learnt["net.fc1.weight"], fresh["fc1.weight"])
    again = attack.ask(Embed("aligned"))
    assert isinstance(again, Embeddings)
    assert torch.equal(attack.host.party.state()["net.fc1.weight"], learnt["net.fc1.weight"])


def inverted(net: torch.nn.Module, f: Tensor, like: Tensor) -> Tensor:
    """Rows that this network maps to the embeddings f (N, d)."""
    net.eval()
    x = torch.zeros(1, *like.shape, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=150, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (net(x)[0] - f).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return x.detach()[0]


def r_squared(found: Tensor, truth: Tensor) -> Tensor:
    """Of each column, 1 - error / variance."""
    return 1 - (found - truth).square().mean(0) / truth.var(0).clamp(min=1e-9)


# ------------------------------------------------------------ D2: asked again and again


def test_d2_a_party_stops_answering_over_rounds_restarts_and_run_names(tmp_path: Path) -> None:
    policy = TEMPLATE.format(active="bank").replace("max_sends = 200", "max_sends = 50")
    answered = 0
    for run in ("r1", "r1", "r2", "r3"):  # the second is a restart
        attack = Attack(tmp_path, job(run, settings=QUICK), policy).aligned()
        attack.round = attack.host.last
        reason: Message | str = ""
        for _ in range(60):
            reason = attack.ask(Embed("aligned"))
            if isinstance(reason, str):
                break
            answered += 1
        assert isinstance(reason, str)
        assert "max_sends" in reason
    assert answered == 50  # 40 of the first run, 10 of the second, none of the third
    line = attack.shop.row_ledger.summary()[0]
    assert line == f"bank: {SHARED} rows left, each at most 50 of 50 times"


# ------------------------------------------------------------ D3: the pool as statistics


def test_d3_a_job_of_thousands_of_components_is_refused(tmp_path: Path) -> None:
    attack = Attack(tmp_path, job(settings={"unseen.components": 5000})).aligned()
    assert "unseen.components = 5000, accepted is 1 to 40" in str(attack.ask(Describe(0)))


def test_d3_no_mean_is_nearly_a_row_however_many_are_asked_for(tmp_path: Path) -> None:
    settings = {**QUICK, "unseen.components": 5000}
    policy = widened('"unseen.components" = [1, 5000]')
    attack = Attack(tmp_path, job(settings=settings), policy).aligned()
    sent = attack.ask(Describe(0))
    assert isinstance(sent, Statistics)
    party = attack.host.party.party  # type: ignore[attr-defined]
    rows = attack.shop.method().embed(party, party.rows.pool)[0]  # type: ignore[attr-defined]
    means = sent.means[0][sent.weights[0] > 0]
    assert 1 <= len(means) <= len(rows) // 10
    assert sent.weights[0][sent.weights[0] > 0].min() * len(rows) >= 10 - 1e-2
    nearest = torch.cdist(means, rows).amin(1)
    spacing = torch.cdist(rows, rows).fill_diagonal_(float("inf")).amin(1).median()
    assert float(nearest.min()) > 0.01
    assert float(nearest.median()) > 0.2 * float(spacing)
    again = attack.ask(Describe(1))
    assert isinstance(again, str)
    assert "max_statistics_per_run" in again
    assert "there are fewer classes" in str(attack.ask(Describe(7)))


# ------------------------------------------------------------ D5: who are your customers?


def test_d5_guessed_ids_are_answered_up_to_the_limit_and_no_further(tmp_path: Path) -> None:
    psi = pytest.importorskip("private_set_intersection")
    assert psi
    from protoevfl.rows.align import Active
    from protoevfl.rows.ids import IdRules, collect
    from protoevfl.rows.psi import curve

    policy = TEMPLATE.format(active="bank").replace("max_ids = 10_000", "max_ids = 100")
    policy = policy.replace("max_alignments_per_day = 20", "max_alignments_per_day = 3")
    found = dict[str, Any]()
    for count in (2000, 5, 100, 100):  # guesses
        attack = Attack(tmp_path, job(f"r{len(found)}"), policy)
        guesses = collect([[f"C{i:03d}" for i in range(count)]], IdRules(), "guesses")
        with curve(0, count) as on:
            bank = Active("bank", guesses, on, 1)
            setup = attack.host.answer(attack.frame("align", SETUP, b""), "bank")
            if opened(setup).envelope.kind == "refusal":
                found[f"{len(found)}: {count}"] = said(setup)
                continue
            request = bank.request("shop", opened(setup).body)
            answer = attack.host.answer(attack.frame("align", RESPOND, request), "bank")
        found[f"{len(found)}: {count}"] = (
            said(answer) if opened(answer).envelope.kind == "refusal" else "answered"
        )
    words = list(found.values())
    assert "asks about 2,000 ids, at most 100" in words[0]
    assert "asks about 5 ids, at least 10" in words[1]
    assert words[2] == "answered"
    assert "3 alignments with bank in 24 hours" in words[3]
    assert attack.shop.row_ledger.summary()[-1] == "  alignments: 1, 100 ids asked about"


# ------------------------------------------------------------ require_privacy means it


def test_with_require_privacy_all_that_leaves_is_clipped_noisy_and_on_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the closed form is enough here, and quicker
    monkeypatch.setattr("protoevfl.privacy.ledger.by_dp_accounting", lambda mus, delta: None)
    strict = TEMPLATE.format(active="bank").replace(
        "require_privacy = false", "require_privacy = true"
    )
    privacy = {"clip": 1.0, "embedding_noise": 4.0, "epsilon": 3.0}
    spec = job(settings={**QUICK, "unseen.slot": False, "rounds.epochs": 1}, privacy=privacy)
    attack = Attack(tmp_path, spec, strict).aligned()
    sent = attack.ask(WarmUp())
    assert not isinstance(sent, str)
    values = sent.values  # type: ignore[attr-defined]
    assert abs(float(values.std()) - 4.0) < 0.4
    mu, half = torch.zeros(2, 64), torch.full((2,), 0.5)
    learned = attack.ask(Learn(0, mu, torch.ones(2), torch.tensor([0.9, 0.1])))
    assert isinstance(learned, Learned)
    assert torch.equal(learned.prior, half)  # class rates of the pool are withheld
    again = attack.ask(Embed("aligned"))
    assert torch.equal(again.values, learned.values)  # type: ignore[union-attr]  # says nothing new
    stop = attack.ask(Learn(1, mu, torch.ones(2), half))
    assert "privacy budget reached" in str(stop)
    assert 2.0 < attack.shop._ledger().epsilon(1, "up") <= 3.0
