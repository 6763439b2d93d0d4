"""What a party's standing process answers, to whom, and what it writes down."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protoevfl.deploy import line
from protoevfl.deploy.audit_log import AuditLog, verify
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.seal import Keys, seal, unseal
from protoevfl.deploy.standing_worker import Diary, StandingParties
from tests.deploy.standing import Standing, standing


@pytest.fixture
def companies(tmp_path: Path) -> Standing:
    return standing(tmp_path)


def hello(companies: Standing, sender: str = "bank", body: bytes | None = None) -> bytes:
    spec = companies.spec
    keys = Keys.of_kit(companies.folder / sender, sender)
    header = Envelope("hello", spec.run, spec.digest(), sender, "shop", 0)
    return seal(keys, header, json.dumps(spec.to_dict()).encode() if body is None else body)


def said(companies: Standing, frame: bytes, caller: str = "bank") -> tuple[str, str]:
    answer = companies.party("shop").answer(caller, frame)
    opened = unseal(Keys.of_kit(companies.folder / caller, caller), answer)
    return opened.envelope.kind, opened.body.decode()


def test_a_greeting_opens_the_run_and_its_specification_is_there_to_review(
    companies: Standing,
) -> None:
    kind, body = said(companies, hello(companies))
    assert kind == "welcome"
    assert json.loads(body)["rows_per_request"] == 1000
    path = companies.kit("shop").run_folder("train-serve") / "spec.json"
    assert json.loads(path.read_text()) == companies.spec.to_dict()


def test_as_delivered_a_party_does_not_serve_and_says_where_to_change_that(
    companies: Standing,
) -> None:
    companies.rules("shop", allow=False)
    kind, text = said(companies, hello(companies))
    assert kind == "refusal"
    assert "it does not serve single rows (allow under [serve] in its policy.toml)" in text
    log = companies.kit("shop").run_folder("train-serve") / "audit.jsonl"
    assert verify(log)[0] == 1
    assert (companies.kit("shop").run_folder("train-serve") / "spec.json").exists()


def test_permission_withdrawn_ends_it_at_once(companies: Standing) -> None:
    lead = companies.lead()
    shop = lead.partners[1]
    identity = next(iter(shop.greeting.places)) if shop.greeting else ""
    assert len(shop.embeddings([identity], 1.0)) == 1
    companies.rules("shop", runs=["another"])
    with pytest.raises(Exception, match="run train is not among those it serves"):
        shop.embeddings([identity], 1.0)


def test_only_the_active_party_is_answered(companies: Standing) -> None:
    assert "may not ask" in said(companies, hello(companies, "tele"), "tele")[1]
    # the hub says it is the bank's
    answer = companies.party("shop").answer("bank", hello(companies, "tele"))
    assert unseal(Keys.of_kit(companies.folder / "tele", "tele"), answer).envelope.kind == "refusal"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"run": "train-serve"}'])
def test_a_greeting_without_a_specification_is_refused(companies: Standing, body: bytes) -> None:
    assert said(companies, hello(companies, body=body))[0] == "refusal"


def test_noise_is_answered_with_a_refusal(companies: Standing) -> None:
    assert said(companies, b"PEV2 and noise")[0] == "refusal"


def test_what_was_served_is_loaded_when_the_process_starts_again(companies: Standing) -> None:
    said(companies, hello(companies))
    again = StandingParties(companies.kit("shop"))
    again.reload()
    assert list(again._parties) == ["train-serve"]


def test_the_diary_has_a_line_per_reason_and_minute(tmp_path: Path) -> None:
    diary = Diary(AuditLog(tmp_path / "audit.jsonl"), "run")
    for _ in range(3):
        diary.answered("bank", "reply", 10)
        diary.refused("bank", "no")
    assert verify(tmp_path / "audit.jsonl")[0] == 1
    diary.since -= 100
    diary.answered("bank", "reply", 10)
    lines = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert lines[-1]["reason"] == "4 requests answered"
    assert lines[-1]["bytes"] == 40


def test_as_a_process_it_answers_and_ends_with_its_parent(companies: Standing) -> None:
    command = [sys.executable, "-m", "protoevfl.deploy.standing_worker"]
    with subprocess.Popen(
        [*command, str(companies.folder / "shop")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        caller = line.Caller(process.stdout, process.stdin)  # type: ignore[arg-type]
        _, answer = caller.ask({"caller": "bank"}, hello(companies), 120)
        opened = unseal(Keys.of_kit(companies.folder / "bank", "bank"), answer)
        assert opened.envelope.kind == "welcome"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
