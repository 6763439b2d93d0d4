"""job.toml: what it leaves out is filled in, what it says stays, what is wrong is one line that
names the file."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protoevfl.deploy import job_file
from protoevfl.deploy.kit import Identity, Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.settings import presets

KIT = Kit(
    Path("kit"), Identity("p", "bank", "party", "Bank", "hub:1", "bank", ("bank", "shop", "tele"))
)
PROBE = 'run = "a"\nmethod = "probe"\n'


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def reader(text: str) -> JobSpec:
        (tmp_path / "job.toml").write_text(text)
        return job_file.read_job(tmp_path / "job.toml", KIT)

    return reader


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_text(job_file.TEMPLATE)
    return job_file.read_job(path, KIT)


def test_the_template_is_read_as_it_is_written(template: JobSpec) -> None:
    said = tomllib.loads(job_file.TEMPLATE)
    assert {n: v for n, v in template.to_dict().items() if n in said and n != "privacy"} == {
        n: v for n, v in said.items() if n != "privacy"
    }
    assert template.parties == KIT.identity.parties


def test_a_job_that_is_read_is_complete_and_the_same_for_everyone(template: JobSpec) -> None:
    again = job_file.complete(template)
    assert again == template
    assert JobSpec.from_dict(template.to_dict()).digest() == template.digest()
    assert template.down
    assert template.up


def test_the_template_shows_settings_that_exist(template: JobSpec) -> None:
    """The two examples in its comments work when they are copied out of them."""
    lines = job_file.TEMPLATE.splitlines()
    setting, defence = (
        next(line.split("e.g. ")[1].split(";")[0] for line in lines if p in line)
        for p in ("[s", "[p")
    )
    found = job_file.complete(
        replace(
            template,
            settings=tomllib.loads(setting.strip()),
            privacy=tomllib.loads(defence.strip()),
        )
    )
    assert found.settings == {"head.epochs": 50}
    assert found.epsilon == 4.0


def test_the_parties_are_all_of_the_project_unless_some_are_named(read: Any) -> None:
    assert read(PROBE).parties == ("bank", "shop", "tele")
    assert read(PROBE + 'parties = ["bank", "tele"]\n').parties == ("bank", "tele")


def test_message_types_that_are_named_stay_and_those_left_out_are_found(read: Any) -> None:
    assert read(PROBE).down == ("Learn", "Embed")
    spec = read(PROBE + 'up = ["Learned"]\n')
    assert (spec.down, spec.up) == (("Learn", "Embed"), ("Learned",))


def test_a_probe_has_no_defence_of_a_preset(read: Any) -> None:
    assert read(PROBE).privacy == {}
    assert read(PROBE + "[privacy]\nepsilon = 1.0\n").privacy == {"epsilon": 1.0}


def test_of_three_places_for_a_defence_the_privacy_table_counts_most(template: JobSpec) -> None:
    of_preset = presets.settings("proto_evfl", "default", "table")
    low, high = of_preset["privacy.rank"], of_preset["privacy.prototype_noise"]
    assert (template.privacy["rank"], template.privacy["prototype_noise"]) == (low, high)
    said = {"privacy.rank": low + 1, "privacy.prototype_noise": high + 1}
    found = job_file.complete(replace(template, settings=said, privacy={"rank": low + 2}))
    assert (found.privacy["rank"], found.privacy["prototype_noise"]) == (low + 2, high + 1)
    assert found.settings == {}


def test_a_class_of_few_rows_is_not_shown_unless_the_job_says_so(template: JobSpec) -> None:
    assert template.privacy["min_class_count"] == 5
    assert (
        job_file.complete(replace(template, privacy={"min_class_count": 2})).privacy[
            "min_class_count"
        ]
        == 2
    )


def test_a_job_that_a_program_made_is_checked_when_it_is_completed() -> None:
    for wrong in ({"run": "A b"}, {"rounds": 0}, {"max_bytes": 1 << 40}):
        with pytest.raises(UserError, match=f"specification: {next(iter(wrong))} must be"):
            job_file.complete(
                JobSpec(**{"run": "a", "parties": ("bank", "shop"), "method": "probe", **wrong})
            )


def test_a_prediction_sends_only_what_predicting_needs() -> None:
    spec = JobSpec("b", ("bank", "shop"), method="probe", task="predict", base="a")
    assert (job_file.complete(spec).down, job_file.complete(spec).up) == (
        ("Embed",),
        ("Embeddings",),
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("run = ", "is not valid TOML"),
        ('run = "a"\nrouns = 3\n', "has no key 'rouns'; did you mean 'rounds'"),
        ('method = "probe"\n', "needs the key 'run'"),
        ('run = "A b"\n', "run must be small letters, digits and dashes, not 'A b'"),
        (PROBE + 'rounds = "3"\n', "rounds must be a whole number from 1 to 1000000, not '3'"),
        (PROBE + 'parties = "bank"\n', "parties must be a list"),
        (PROBE + "[settings]\nround = 3\n", "probe has no setting 'round'; did you mean 'rounds'"),
        (PROBE + '[settings]\nrounds = "3"\n', "probe.rounds must be a whole number, not '3'"),
        (
            PROBE + '[privacy]\nprototype_noise = "a"\n',
            "privacy.prototype_noise must be a number, not 'a'",
        ),
        (PROBE + "[privacy]\nrank = 2.5\n", "privacy.rank must be a whole number, not 2.5"),
        (PROBE + "[privacy]\nepsilon = -1.0\n", "privacy.epsilon must be above 0"),
        (PROBE + "[privacy]\ndelta = 2.0\n", "privacy.delta must lie"),
        (PROBE + "[privacy]\nepsilom = 1.0\n", "privacy has no setting 'epsilom'"),
        (
            'run = "a"\n[settings]\n"head.epoch" = 3\n',
            "no setting 'head.epoch'; did you mean 'head.epochs'",
        ),
    ],
)
def test_mistakes_are_one_line_that_names_the_file(read: Any, text: str, word: str) -> None:
    with pytest.raises(UserError, match=rf"job\.toml.*{word}") as caught:
        read(text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.toml: No such file"):
        job_file.read_job(tmp_path / "none.toml", KIT)
    with pytest.raises(UserError, match="Is a directory"):
        job_file.read_job(tmp_path, KIT)
