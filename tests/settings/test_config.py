"""The configuration file: what is written comes out, what is wrong is named before any data is
read."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protoevfl.errors import UserError
from protoevfl.settings import config
from protoevfl.settings.config import load, resolve, template
from protoevfl.settings.presets import build


@pytest.fixture
def home(tmp_path: Path) -> Path:
    bank = {"customer_id": [1, 2], "income": [1.0, 2.0], "branch": [7, 8], "default": ["no", "yes"]}
    pq.write_table(pa.table(bank), tmp_path / "bank.parquet")
    (tmp_path / "insurer.csv").write_text("customer_id,claims\n1,0\n2,3\n")
    pixels = pa.array([[0] * 784] * 2, pa.list_(pa.uint8(), 784))
    pq.write_table(pa.table({"customer_id": [1, 2], "pixels": pixels}), tmp_path / "clinic.parquet")
    (tmp_path / "protoevfl.toml").write_text(template())
    return tmp_path


def edit(home: Path, *changes: tuple[str, str]) -> Path:
    text = template()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (home / "protoevfl.toml").write_text(text)
    return home / "protoevfl.toml"


def test_template_parses_and_resolves(home: Path) -> None:
    loaded = load(home / "protoevfl.toml")
    assert loaded.output == home / "run"
    assert loaded.party("insurer").file == home / "insurer.csv"
    files = resolve(loaded)
    assert files["bank"].spec.features == ("income", "branch")  # neither id nor label
    assert files["insurer"].spec.features == ("claims",)
    assert (loaded.alignment.minimum, loaded.seed, loaded.validation) == (50, 0, 0.0)
    assert loaded.id_rules.columns == 1


def test_every_optional_line_of_the_template_is_valid_and_shows_the_default(home: Path) -> None:
    text = re.sub(r"(?m)^# (?=\[|[\w.]+ = )", "", template())
    text = text.replace("categorical = []", 'categorical = ["branch"]', 1)
    (home / "all.toml").write_text(text)
    full, plain = load(home / "all.toml"), load(home / "protoevfl.toml")
    assert (full.alignment, full.seed, full.test, full.device) == (
        plain.alignment,
        0,
        plain.test,
        plain.device,
    )
    assert full.method.overrides == {"rounds.count": 2, "head.epochs": 100, "columns": "open"}
    # settings that exist
    build(full.method.name, full.method.preset, "table", full.method.overrides)
    assert resolve(full)["clinic"].config.image == config.ImageSpec("pixels", (1, 28, 28))
    assert resolve(full)["bank"].spec.categorical == ("branch",)


def test_a_level_of_columns_is_given_in_one_place_and_for_the_method_that_has_levels(
    home: Path,
) -> None:
    plain = (home / "protoevfl.toml").read_text()
    path = home / "few.toml"
    path.write_text(f'columns = "few"\n{plain}')
    assert load(path).method.overrides["columns"] == "few"
    path.write_text(f'columns = "few"\n{plain}\n[method]\nname = "vanilla"\n')
    with pytest.raises(UserError, match="vanilla has no levels of columns"):
        load(path)
    path.write_text(f'columns = "few"\n{plain}\n[method.overrides]\ncolumns = "open"\n')
    with pytest.raises(UserError, match="differ; leave one of them out"):
        load(path)
    path.write_text(f'columns = "fw"\n{plain}')
    with pytest.raises(UserError, match="columns = 'fw' is unknown"):
        load(path)


UNKNOWN = [
    ("output = ", "ouput = ", "no key 'ouput'; did you mean 'output'"),
    (
        'column = "default"',
        'colum = "default"',
        r"\[label\] has no key 'colum'; did you mean 'column'",
    ),
    ('id = "customer_id"', 'idd = "customer_id"', "no key 'idd'; did you mean 'id'"),
    (
        "# [alignment]\n# casefold",
        "[alignment]\ncasfold",
        "no key 'casfold'; did you mean 'casefold'",
    ),
    (
        '# [privacy]\n# preset = "default"',
        '[privacy]\npreset = "defualt"',
        "unknown; did you mean 'default'",
    ),
    (
        '# [method]\n# name = "proto_evfl"',
        '[method]\nname = "proto_vfl"',
        "did you mean 'proto_evfl'",
    ),
    ('party = "bank"', 'party = "bnak"', "did you mean 'bank'"),
]


@pytest.mark.parametrize(("old", "new", "message"), UNKNOWN)
def test_unknown_names_come_with_the_nearest(home: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(edit(home, (old, new)))


WRONG = [
    ("version = 1", "version = 2", "reads version 1"),
    ("# test = 0.2", "test = 1.5", "test must be a number from 0 to 0.9"),
    ("# seed = 0", "seed = -1", "seed must be a whole number"),
    ('name = "bank"', 'name = "../bank"', "starting with a letter"),
    ('name = "insurer"', 'name = "bank"', "two parties are named 'bank'"),
    ('file = "bank.parquet"', 'file = "bank.xlsx"', "unknown kind of file"),
    ('file = "bank.parquet"', 'file = "bamk.parquet"', "did you mean 'bank.parquet'"),
    ('id = "customer_id"', 'id = ["customer_id", "branch"]', "has 1 id columns, bank 2"),
    ('id = "customer_id"', "id = []", "id must be the name of a column"),
    (
        "# exclude = []",
        'categorical = ["branch"]\nnumeric = ["branch"]',
        "as categorical and as numeric",
    ),
    ('features = "all"', 'features = ["income"]\nexclude = ["branch"]', "leave one of the two out"),
    ("[label]", "[label", "not valid TOML"),
    ("# decision", 'decision = "careful"\n#', "decision must be one of likeliest, balanced, or"),
    ("# decision", "decision = { yes = 1.5 }\n#", "thresholds between 0 and 1"),
    ('name = "bank"', 'name = "owner"', "another one than 'owner'"),
    ('id = "customer_id"', "id = 5", r"\[\[party\]\] 1: id must be the name of a column, not 5"),
    ("# [method]", "[method]\noverrides = 3\n# [method]", r"\[method\]: overrides must be a table"),
    ("[label]", 'path = "x"\n[label]', "has no key 'path'"),
    ("# seed = 0", "seed = nan", "nan and inf are no settings"),
    ("# seed = 0", "seed = 2020-01-01", "is no number, text, true, false or list"),
    (
        'features = "all"',
        'image = {column = "p", shape = [0, 3]}',
        r"shape must be \[height, width\]",
    ),
    (
        'features = "all"',
        "image = {colum = 3}",
        r"\[\[party\]\] 1 image has no key 'colum'; did you mean 'column'",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_wrong_values_are_refused_without_reading_data(
    home: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(config, "scan", never)
    with pytest.raises(UserError, match=message):
        load(edit(home, (old, new)))


COLUMNS = [
    ('id = "customer_id"', 'id = "customer"', "bank.parquet has no column 'customer'"),
    ('column = "default"', 'column = "defalt"', r"no column 'defalt' \(did you mean 'default'\?\)"),
    (
        'features = "all"',
        'features = ["income", "default"]',
        "'default' is an id, label or image column",
    ),
    ("# exclude = []", 'exclude = ["income", "branch"]', "bank has no feature columns left"),
    ("# categorical = []", 'categorical = ["brunch"]', "did you mean 'branch'"),
]


@pytest.mark.parametrize(("old", "new", "message"), COLUMNS)
def test_columns_are_checked_against_the_headers(
    home: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resolve(load(edit(home, (old, new))))


def test_missing_file_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="protoevfl init"):
        load(tmp_path / "protoevfl.toml")


def test_parties_are_needed(home: Path) -> None:
    text = template()
    (home / "one.toml").write_text(text[: text.rindex('\n[[party]]\nname = "insurer"')])
    with pytest.raises(UserError, match="two or more"):
        load(home / "one.toml")
