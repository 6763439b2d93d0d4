"""The official UCI files become our CSV layout."""

import gzip
import hashlib
import io
import zipfile

import pytest

from protoevfl.rows import fetch, table_sources, uci

from .real import requires

TRAIN = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K"
TEST = (
    "25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 38, ?, >50K."
)


def archive(**members: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for name, text in members.items():
            files.writestr(name.replace("_", "."), text)
    return packed.getvalue()


def test_adult_rows_of_both_files() -> None:
    text = uci.adult_csv(
        archive(adult_data=TRAIN + "\n\n", adult_test="|1x3 Cross validator\n" + TEST + "\n\n")
    ).decode()
    header, train, test = text.splitlines()
    assert header == ",".join(uci.ADULT_COLUMNS)
    assert train == TRAIN.replace(", ", ",") + ",train"
    assert test == TEST.replace(", ", ",").removesuffix(".") + ",test"


def test_adult_archive_without_the_files_is_refused() -> None:
    with pytest.raises(ValueError, match=r"adult\.test"):
        uci.adult_csv(archive(adult_data=TRAIN))


def test_credit_columns_get_their_names() -> None:
    names = ["ID", *(f"X{i}" for i in range(1, 24)), "Y"]
    text = uci.credit_csv(
        (",".join(names) + "\r\n" + ",".join(["1", "20000.0", *["-2"] * 22, "1"])).encode()
    )
    header, row = text.decode().splitlines()
    assert header.split(",")[:3] == ["ID", "LIMIT_BAL", "SEX"]
    assert row == ",".join(["1", "20000", *["-2"] * 22, "1"])


def test_credit_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 25 columns"):
        uci.credit_csv(b"a,b\n1,2\n")


@requires("adult")
def test_adult_sha256_is_that_of_the_converted_official_files() -> None:
    """The stored file turned back into the two official ones converts to the expected content."""
    path = fetch.find(table_sources.ADULT.file)
    assert path is not None
    rows = [
        line.rsplit(",", 1) for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    ]
    official = {
        part: [row.replace(",", ", ") for row, split in rows if split == part]
        for part in ("train", "test")
    }
    content = uci.adult_csv(
        archive(
            adult_data="\n".join(official["train"]) + "\n\n",
            adult_test="|1x3 Cross validator\n"
            + "\n".join(row + "." for row in official["test"])
            + "\n\n",
        )
    )
    assert hashlib.sha256(content).hexdigest() == table_sources.ADULT.sha256


@requires("credit")
def test_credit_sha256_is_that_of_the_converted_official_file() -> None:
    path = fetch.find(table_sources.CREDIT.file)
    assert path is not None
    body = gzip.decompress(path.read_bytes()).decode().split("\n", 1)[1]
    header = ",".join(["ID", *(f"X{i}" for i in range(1, 24)), "Y"])
    content = uci.credit_csv((header + "\n" + body).encode())
    assert hashlib.sha256(content).hexdigest() == table_sources.CREDIT.sha256
