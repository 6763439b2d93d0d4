"""What a job does at a site: the active party leads it to an end that is written down, the others
answer.

Kits lie in folders of one process and a function carries the frames; NVFlare's part (who calls,
which job) is made up.
"""

import csv
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import torch
from safetensors.torch import load_file

from protoevfl.artifacts.run_dir import open_run
from protoevfl.codec import decode
from protoevfl.deploy import durable, policy, site_job
from protoevfl.deploy import lead as lead_module
from protoevfl.deploy.audit_log import AuditLog
from protoevfl.deploy.envelope import Envelope
from protoevfl.deploy.host import PartyHost
from protoevfl.deploy.job_file import complete
from protoevfl.deploy.kit import Identity, Kit, write_identity
from protoevfl.deploy.lead import LostError
from protoevfl.deploy.local import Local
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare
from protoevfl.messages import MessageError
from protoevfl.method import Report
from protoevfl.pipeline.evaluate import evaluate
from tests.deploy.keyring import opened, put, said, sealed
from tests.faults.federation import expected
from tests.tiny import short

NAMES = ("bank", "shop", "tele")
PROBE = JobSpec(
    "run-1",
    NAMES,
    method="probe",
    settings={"rounds": 3, "rows": 2, "width": 2},
    rounds=20,
    down=("Learn", "Embed"),
    up=("Embeddings", "Learned"),
    deadline_s=0.1,
    wait_s=0.0,
)


# these jobs are cut short, and their files have few people
POLICY = policy.TEMPLATE.format(active="bank").replace("min_ids = 10", "min_ids = 2") + (
    '"warm.epochs" = [1, 9]\n"warm.batch" = [1, 99]\n"rounds.batch" = [1, 99]\n'
)


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVFlare's number of this job."""
    monkeypatch.setattr(nvflare, "job_id", lambda: "job-1")
    monkeypatch.setattr(lead_module, "RETRY_S", 0.01)


def status(kit: Kit, run: str = "run-1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kit.run_folder(run) / "status.json").read_text())
    return found


@dataclass
class Companies:
    """Kits of all parties and the wire between them; `meet` sees every frame on its way and may
    raise."""

    folder: Path
    spec: JobSpec = PROBE
    meet: Callable[[str, Envelope], None] = lambda name, envelope: None
    # (party, kind of frame, type of message)
    sent: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hosts: dict[str, PartyHost] = {}
        for name in NAMES:
            self.kit(name).folder.mkdir(parents=True, exist_ok=True)
            write_identity(self.kit(name).folder, self.kit(name).identity)
            put(self.kit(name).folder, name)
            (self.kit(name).folder / "policy.toml").write_text(POLICY)
        submitted = self.kit("bank").run_folder(self.spec.run) / "submitted.json"
        durable.write(submitted, json.dumps(self.spec.to_dict()).encode())

    def kit(self, name: str) -> Kit:
        return Kit(self.folder / name, Identity("p", name, "party", name, "hub:1", "bank", NAMES))

    def host(self, name: str) -> PartyHost:
        if name not in self.hosts:
            self.hosts[name] = site_job.make_host(self.kit(name), self.spec)
        return self.hosts[name]

    def send(self, name: str, frame: bytes, seconds: float) -> bytes:
        found = opened(frame)
        envelope = found.envelope
        kind = type(decode(found.body)).__name__ if envelope.kind == "request" else ""
        self.sent.append((name, envelope.kind, kind))
        self.meet(name, envelope)
        return self.host(name).answer(frame, "bank")

    def lead(self, absent: frozenset[str] = frozenset()) -> str:
        log = AuditLog(self.kit("bank").run_folder(self.spec.run) / "lead.jsonl")
        return site_job.lead(self.kit("bank"), self.spec, absent, self.send, log)

    def result(self) -> torch.Tensor:
        path = self.kit("bank").run_folder(self.spec.run) / "predictions.safetensors"
        found: torch.Tensor = load_file(path)["probabilities"]
        return found


# ------------------------------------------------------------ status.json


def test_the_status_is_whole_at_every_step_and_forgets_nothing(tmp_path: Path) -> None:
    kit = Companies(tmp_path).kit("bank")
    note = site_job.Status(kit, PROBE)
    note.write("running")
    first = status(kit)
    assert first["time"] > 0
    assert {n: v for n, v in first.items() if n != "time"} == {
        "run": "run-1", "job": "job-1", "round": 0, "absent": {}, "state": "running",
    }  # fmt: skip
    note.round(2, {"shop": "cut"})
    assert (status(kit)["round"], status(kit)["absent"]) == (2, {"shop": "cut"})
    note.report(Report("rounds", 1, 4))
    assert [status(kit)[n] for n in ("phase", "step", "steps", "round")] == ["rounds", 1, 4, 2]
    note.round(3, {})
    assert (status(kit)["absent"], status(kit)["phase"]) == ({}, "rounds")
    note.write("failed", error="disk")
    assert (status(kit)["state"], status(kit)["error"], status(kit)["round"]) == (
        "failed",
        "disk",
        3,
    )


def test_whoever_reads_during_a_run_sees_where_it_is(tmp_path: Path) -> None:
    seen: list[tuple[str, int, Any]] = []
    companies = Companies(tmp_path)

    def look(name: str, envelope: Envelope) -> None:
        if name == "shop":
            now = status(companies.kit("bank"))
            seen.append((now["state"], now["round"], now.get("step")))

    companies.meet = look
    assert companies.lead() == "done"
    assert seen == [
        ("running", 0, None),
        ("running", 0, None),
        ("running", 1, 1),
        ("running", 2, 2),
        ("running", 3, 0),
    ]


# ------------------------------------------------------------ how a run ends


def test_a_run_ends_with_its_result_and_says_so(tmp_path: Path) -> None:
    companies = Companies(tmp_path)
    assert companies.lead() == "done"
    assert torch.equal(companies.result(), expected(PROBE, tmp_path))
    found = status(companies.kit("bank"))
    assert (found["state"], found["rounds"], found["predicted"]) == ("done", 4, 4)
    assert len(found["exchange_s"]) == 4
    assert "error" not in found
    told = json.loads((companies.kit("shop").run_folder("run-1") / "spec.json").read_text())
    assert JobSpec.from_dict(told) == PROBE


def test_a_refusal_is_the_outcome_in_the_words_of_the_party(tmp_path: Path) -> None:
    companies = Companies(tmp_path)
    (tmp_path / "tele" / "policy.toml").write_text('active = "bank"\nmax_rounds = 5\n')
    said = companies.lead()
    assert said == "party tele refused round 0: refused by policy: 20 rounds, at most 5 accepted"
    found = status(companies.kit("bank"))
    assert (found["state"], found["error"], found["round"]) == ("failed", said, 0)
    # nothing was sent before all agreed
    assert {kind for _, kind, _ in companies.sent} == {"hello"}


def test_a_lost_party_is_named_and_the_run_can_be_taken_up(tmp_path: Path) -> None:
    def cut(name: str, envelope: Envelope) -> None:
        if name == "shop" and envelope.round == 2:
            raise LostError("connection refused")

    companies = Companies(tmp_path, meet=cut)
    said = companies.lead()
    assert said.startswith("party shop did not answer in round 2: connection refused")
    found = status(companies.kit("bank"))
    assert (found["state"], found["error"], found["round"]) == ("lost", said, 1)
    assert not (companies.kit("bank").run_folder("run-1") / "predictions.safetensors").exists()
    again = Companies(tmp_path)
    assert again.lead() == "done"
    assert torch.equal(again.result(), expected(PROBE, tmp_path))


def test_who_is_skipped_stands_in_the_status(tmp_path: Path) -> None:
    companies = Companies(tmp_path, replace(PROBE, on_party_loss="skip"))
    assert companies.lead(frozenset({"tele"})) == "done"
    assert status(companies.kit("bank"))["absent"] == {"tele": "away in this attempt"}
    assert not companies.result()[:, 2].any()
    assert "tele" not in companies.hosts


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("mend the file"), "mend the file"),
        (ValueError("no such row"), "ValueError: no such row"),
        (TypeError("not a number"), "TypeError: not a number"),
        (MessageError("cut short"), "MessageError: cut short"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
    ],
)
def test_any_other_end_is_written_down_too(tmp_path: Path, error: Exception, said: str) -> None:
    def fail(name: str, envelope: Envelope) -> None:
        if name == "bank" and envelope.round == 1:
            raise error

    companies = Companies(tmp_path, meet=fail)
    assert companies.lead() == said
    assert (status(companies.kit("bank"))["state"], status(companies.kit("bank"))["error"]) == (
        "failed",
        said,
    )


def test_an_attempt_that_nvflare_takes_down_has_not_failed(tmp_path: Path) -> None:
    """A worker died: the supervisor must see a run that goes on, and make another attempt."""
    from nvflare.collab.api.exceptions import RunAborted

    def abort(name: str, envelope: Envelope) -> None:
        if envelope.round == 1:
            raise RunAborted("run is aborted")

    companies = Companies(tmp_path, meet=abort)
    with pytest.raises(RunAborted):
        companies.lead()
    assert status(companies.kit("bank"))["state"] == "running"


# ------------------------------------------------------------ files of their own


PEOPLE, SHARED, SOME, UNKNOWN, NEW = 40, 30, 3, 4, 6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"))


def write_files(folder: Path) -> Path:
    """party.toml and two files of every party: their people overlap in all but the last ten. The
    bank also has SOME people of the shop's own."""
    rng = np.random.default_rng(1)
    for at, name in enumerate(NAMES):
        (folder / name).mkdir()
        people = [f"C{i}" for i in range(SHARED)] + [f"{name}{i}" for i in range(PEOPLE - SHARED)]
        if at == 0:
            people[-SOME:] = [f"shop{i}" for i in range(SOME)]
        order = rng.permutation(PEOPLE)
        risk = rng.permutation(["yes", "no"] * (PEOPLE // 2)).tolist()
        label = (
            {"risk": [None if i < UNKNOWN else risk[i] for i in range(PEOPLE)]} if at == 0 else {}
        )
        table = pa.table(
            {"id": people, "x": rng.normal(size=PEOPLE), "y": rng.normal(size=PEOPLE), **label}
        )
        pacsv.write_csv(table.take(pa.array(order)), folder / name / "rows.csv")
        new = {
            "id": [f"N{i}" for i in range(NEW)],
            "x": rng.normal(size=NEW),
            "y": rng.normal(size=NEW),
        }
        pacsv.write_csv(
            pa.table(new).take(pa.array(rng.permutation(NEW))), folder / name / "new.csv"
        )
        text = 'file = "rows.csv"\nid = "id"\nminimum = 5\npredict_file = "new.csv"\n'
        (folder / name / "party.toml").write_text(text + ('label = "risk"\n' if at == 0 else ""))
    return folder


TRAIN = complete(JobSpec("train", NAMES, settings=short("proto_evfl"), rounds=20, wait_s=0.0))
PREDICT = complete(
    replace(TRAIN, run="predict", task="predict", base="train", rounds=1, down=(), up=())
)


def predicted(companies: Companies) -> dict[str, list[str]]:
    with (companies.kit("bank").run_folder(companies.spec.run) / "predictions.csv").open(
        newline=""
    ) as file:
        return {line[0]: line[1:] for line in list(csv.reader(file))[1:]}


@pytest.fixture(scope="module")
def trained(files: Path) -> Companies:
    return train(files)


def train(files: Path) -> Companies:
    """A training run on these files, done."""
    pytest.importorskip("private_set_intersection")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvflare, "job_id", lambda: "job-1")
        companies = Companies(files, TRAIN)
        assert companies.lead() == "done"
        # as `deploy submit` leaves it
        path = companies.kit("bank").run_folder("train") / "submitted.json"
        path.write_text(json.dumps(TRAIN.to_dict()))
    return companies


def count(companies: Companies, kind: str) -> int:
    return sum(found == kind for _, found, _ in companies.sent)


def test_the_parties_align_before_anything_is_asked_and_unlabelled_people_are_predicted(
    trained: Companies,
) -> None:
    kinds = [kind for _, kind, _ in trained.sent]
    assert kinds.index("request") == 3 + count(trained, "align")
    assert count(trained, "align") == 2 * 4  # two pairs, four steps
    assert set(predicted(trained)) == {f"C{i}" for i in range(UNKNOWN)}
    assert status(trained.kit("bank"), "train")["predicted"] == UNKNOWN
    bank = Local(trained.kit("bank"), TRAIN)
    for name in ("shop", "tele"):
        assert Local(trained.kit(name), TRAIN).pair.digest == bank.active.pair(name).digest != ""


def test_people_shared_with_one_and_with_nobody_count_too(trained: Companies) -> None:
    owner = Local(trained.kit("bank"), TRAIN).owner()
    known = SHARED - UNKNOWN
    # a fifth of each class is kept aside, rounded down
    assert known * 0.75 < len(owner.labels) < known
    assert owner.further is not None
    assert owner.further.shared.tolist() == [[True] * SOME, [True] * SOME, [False] * SOME]
    assert owner.own is not None
    assert int((owner.own.labels >= 0).sum()) == len(owner.labels) + PEOPLE - SHARED


def test_the_run_is_kept_where_its_parts_belong(trained: Companies) -> None:
    run = open_run(trained.kit("bank").run_folder("train"))
    owner = run.need_owner()
    assert list(run.parties) == ["bank"]
    assert (owner.parties, owner.classes, owner.label_column) == (NAMES, ("no", "yes"), "risk")
    assert len(owner.test.labels) + len(owner.labels) == SHARED - UNKNOWN
    assert {"test", "subsets", "gain", "bytes", "rounds", "history", "class_rows"} <= set(
        owner.metrics
    )
    assert evaluate(run, {})["test"]["accuracy"] == owner.metrics["test"]["accuracy"]
    for name in ("shop", "tele"):
        other = open_run(trained.kit(name).run_folder("train"))
        assert (list(other.parties), other.owner) == ([name], None)


def test_parties_that_hold_the_same_rows_are_not_aligned_again(
    trained: Companies, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "again")
    # so that the parties are asked again
    shutil.rmtree(tmp_path / "again" / "bank" / "runs" / "train" / "journal")
    for name in NAMES:
        shutil.rmtree(tmp_path / "again" / name / "runs" / "train" / "checkpoints")
    again = Companies(tmp_path / "again", TRAIN)
    assert again.lead() == "done"
    assert count(again, "align") == 0
    assert count(again, "request") > 0
    assert torch.equal(again.result(), trained.result())


def test_a_crash_in_the_middle_of_alignment_aligns_that_pair_anew(
    trained: Companies, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "bank" / "runs" / "train" / "journal")
    for name in NAMES:
        shutil.rmtree(tmp_path / "again" / name / "runs" / "train" / "checkpoints")
    shutil.rmtree(tmp_path / "again" / "tele" / "runs" / "train" / "alignment")
    again = Companies(tmp_path / "again", TRAIN)
    assert again.lead() == "done"
    assert count(again, "align") == count(trained, "align") // 2
    tele = [Local(c.kit("tele"), TRAIN).pair.digest for c in (trained, again)]
    assert tele[0] != tele[1]  # under fresh keys
    shop = [Local(c.kit("shop"), TRAIN).pair.digest for c in (trained, again)]
    assert shop[0] == shop[1]
    assert torch.equal(again.result(), trained.result())


@pytest.mark.parametrize(
    ("name", "change"), [("bank", "a row fewer"), ("tele", "a row more"), ("tele", "another value")]
)
def test_a_file_that_changes_in_the_middle_stops_the_run_and_the_old_one_ends_it(
    trained: Companies, tmp_path: Path, name: str, change: str
) -> None:
    shutil.copytree(trained.folder, tmp_path / "again")
    for party in NAMES:
        shutil.rmtree(tmp_path / "again" / party / "runs" / "train")
        shutil.rmtree(tmp_path / "again" / party / "ledger", ignore_errors=True)

    def cut(to: str, envelope: Envelope) -> None:
        if (to, envelope.kind, envelope.round) == ("shop", "request", 2):
            raise UserError("cut")

    assert "cut" in Companies(tmp_path / "again", TRAIN, meet=cut).lead()
    path = tmp_path / "again" / name / "rows.csv"
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    extra = ",".join(["new1", *lines[1].split(",")[1:]])
    changed = {
        "a row more": [*lines, extra],
        "a row fewer": lines[:-1],
        "another value": [lines[0], lines[1].replace(".", ".9", 1), *lines[2:]],
    }
    path.write_text("".join(changed[change]))
    said_ = Companies(tmp_path / "again", TRAIN).lead()
    assert f"the data file of {name} changed since run train began; put back" in said_
    path.write_text(before)
    again = Companies(tmp_path / "again", TRAIN)
    assert again.lead() == "done"
    assert torch.equal(again.result(), trained.result())


def test_new_people_are_predicted_with_the_kept_run_alone(
    trained: Companies, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "later")
    shutil.rmtree(tmp_path / "later" / "bank" / "runs" / "train" / "journal")
    # it was away when training ended
    shutil.rmtree(tmp_path / "later" / "tele" / "runs" / "train" / "tele")
    for name in NAMES:
        (tmp_path / "later" / name / "rows.csv").unlink()
    later = Companies(tmp_path / "later", PREDICT)
    assert later.lead() == "done"
    assert set(predicted(later)) == {f"N{i}" for i in range(NEW)}
    assert {kind for _, _, kind in later.sent if kind} == {"Embed"}  # nobody trains
    assert later.result().sum(1) == pytest.approx(1.0)
    assert {line[-1] for line in predicted(later).values()} == {"bank+shop+tele"}


def test_people_whom_only_some_companies_know_are_predicted_by_those(
    trained: Companies, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "later")
    shop = tmp_path / "later" / "shop" / "new.csv"
    table = pacsv.read_csv(shop)
    pacsv.write_csv(table.slice(0, 2), shop)
    tele = tmp_path / "later" / "tele" / "new.csv"
    pacsv.write_csv(table.set_column(0, "id", pa.array([f"T{i}" for i in range(NEW)])), tele)
    later = Companies(tmp_path / "later", PREDICT)
    assert later.lead() == "done"
    parties = [line[-1] for line in predicted(later).values()]
    assert (parties.count("bank+shop"), parties.count("bank")) == (2, NEW - 2)
    assert ("tele", "request", "Embed") not in later.sent  # it has none of them


def test_a_prediction_goes_on_without_a_company_that_is_away(
    trained: Companies, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "later")
    later = Companies(tmp_path / "later", replace(PREDICT, on_party_loss="skip"))
    assert later.lead(frozenset({"tele"})) == "done"
    assert {line[-1] for line in predicted(later).values()} == {"bank+shop"}


def test_a_run_that_was_not_finished_cannot_predict(trained: Companies, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "later")
    shutil.rmtree(tmp_path / "later" / "bank" / "runs" / "train" / "owner")
    assert (
        Companies(tmp_path / "later", PREDICT).lead()
        == "run train was not finished; resume it before predicting with it"
    )


def test_made_up_numbers_cannot_be_predicted_with(tmp_path: Path) -> None:
    companies = Companies(tmp_path, replace(PROBE, run="later", task="predict", base="run-1"))
    assert companies.lead().startswith("only a run on files can predict new rows")


# ------------------------------------------------------------ what NVFlare calls


@dataclass
class Lock:
    """A run's lock that holds no process back."""

    folder: Path
    taken: list[str] = field(default_factory=list)

    def take(self, attempt: str) -> None:
        self.taken.append(attempt)


@dataclass
class Flare:
    """NVFlare as one site's job process sees it."""

    companies: Companies
    here: str
    caller: str = "bank"
    remote: dict[str, Callable[..., Any]] = field(default_factory=dict)
    watched: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> "Flare":
        patch.setattr(site_job, "RunLock", Lock)
        patch.setattr(site_job, "die_with_parent", self.watch)
        patch.setattr(nvflare, "caller", lambda: self.caller)
        patch.setattr(nvflare, "kit_folder", lambda: self.companies.kit(self.here).folder)
        patch.setattr(nvflare, "calls", lambda method: self.remote)
        return self

    def watch(self) -> None:
        self.watched += 1

    def site(self, absent: str = "") -> site_job.Site:
        return site_job.Site(json.dumps(self.companies.spec.to_dict()), absent)


def hello() -> bytes:
    return sealed(Envelope("hello", "run-1", PROBE.digest(), "bank", "shop", 0))


def test_a_site_answers_its_caller_as_nvflare_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = Flare(Companies(tmp_path), "shop").install(monkeypatch)
    shop = flare.site()
    assert said(shop.answer(hello())) == "welcome: "
    flare.caller = "tele"  # whatever the frame says
    assert "tele may not ask" in said(shop.answer(hello()))


def test_the_border_of_a_site_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = Flare(Companies(tmp_path), "shop").install(monkeypatch)
    shop, found = flare.site(), set[int]()
    threads = [threading.Thread(target=lambda: found.add(id(shop.host()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert flare.watched == 1


def test_a_site_that_cannot_answer_says_no_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = Flare(Companies(tmp_path), "shop").install(monkeypatch)
    (tmp_path / "shop" / "policy.toml").unlink()
    found = opened(flare.site().answer(hello()))
    envelope = found.envelope
    assert (envelope.kind, envelope.sender, envelope.to) == ("refusal", "shop", "bank")
    assert found.body == b"the party failed (UserError); its own log says more"


def test_only_the_hub_may_ask_and_only_the_active_party_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for here, caller in (("bank", "shop"), ("bank", "bank"), ("shop", "server")):
        flare = Flare(Companies(tmp_path), here, caller).install(monkeypatch)
        assert flare.site().lead() == "this site does not lead"
    assert not (tmp_path / "bank" / "runs" / "run-1" / "status.json").exists()


def test_a_job_that_the_hub_made_up_is_not_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub hands jobs out; with the active party's key behind it, it could ask what it likes."""
    companies = Companies(tmp_path)
    flare = Flare(companies, "bank", "server").install(monkeypatch)
    companies.spec = replace(PROBE, rounds=19)
    assert "was submitted with another specification: not led" in flare.site().lead()
    companies.spec = replace(PROBE, run="never")
    with pytest.raises(UserError, match="no run 'never' was submitted"):
        flare.site().lead()
    assert not companies.hosts


def test_the_leader_asks_itself_at_home_and_the_others_through_nvflare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    companies, called = Companies(tmp_path), set[str]()

    def ask(name: str) -> Callable[..., bytes]:
        def call(seconds: float, frame: bytes) -> bytes:
            called.add(name)
            return companies.host(name).answer(frame, "bank")

        return call

    flare = Flare(companies, "bank", "server", {name: ask(name) for name in NAMES}).install(
        monkeypatch
    )
    assert flare.site().lead() == "done"
    assert called == {"shop", "tele"}
    assert torch.equal(companies.result(), expected(PROBE, tmp_path))


def test_a_call_that_fails_and_a_party_outside_the_attempt_are_lost_parties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    companies = Companies(tmp_path)

    def broken(seconds: float, frame: bytes) -> bytes:
        raise nvflare.CallError("peer gone")

    flare = Flare(
        companies, "bank", "server", {"tele": lambda s, f: companies.host("tele").answer(f, "bank")}
    )
    said = flare.install(monkeypatch).site().lead()
    assert said.startswith("party shop did not answer in round 0: not part of this attempt")
    flare.remote["shop"] = broken
    assert flare.site().lead().startswith("party shop did not answer in round 0: peer gone")
    assert status(companies.kit("bank"))["state"] == "lost"


def test_a_site_is_told_who_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = Flare(Companies(tmp_path), "bank").install(monkeypatch)
    assert flare.site("shop,tele").absent == {"shop", "tele"}
    assert flare.site().absent == set()
