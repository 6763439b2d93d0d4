"""The official UCI files of Adult and Credit, turned into the CSV layout that `sources` reads.

`adult.csv`: the rows of adult.data (split = train), then those of adult.test (split = test); spaces
after commas and the full stop after test labels removed. `credit.csv`: UCI's data.csv (ID, X1 to
X23, Y) under its usual column names, all values whole numbers. No value is changed, so the result
is known by its sha256.
"""

import csv
import io
import zipfile

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *(
        "relationship",
        "race",
        "sex",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
        "native-country",
    ),
    *("income", "split"),
)
CREDIT_COLUMNS = (
    *("ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
    "default.payment.next.month",
)
LARGEST_MEMBER = 64 * 2**20  # bytes


def adult_csv(archive: bytes) -> bytes:
    """adult.zip -> the content of adult.csv."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        train, test = (_member(files, name) for name in ("adult.data", "adult.test"))
    lines = [",".join(ADULT_COLUMNS)]
    for text, split in ((train, "train"), (test, "test")):
        lines += [f"{row},{split}" for row in map(_adult_row, text.splitlines()) if row]
    return ("\n".join(lines) + "\n").encode()


def _member(files: zipfile.ZipFile, name: str) -> str:
    if name not in files.namelist() or files.getinfo(name).file_size > LARGEST_MEMBER:
        raise ValueError(f"the archive has no usable {name}")
    return files.read(name).decode("ascii")


def _adult_row(line: str) -> str:
    """One row without the spaces after commas and the full stop of test labels; '' for comments and
    blanks."""
    if not line.strip() or line.startswith("|"):
        return ""
    return ",".join(value.strip() for value in line.rstrip().removesuffix(".").split(","))


def credit_csv(table: bytes) -> bytes:
    """UCI's data.csv (ID, X1..X23, Y) -> the content of credit.csv."""
    rows = csv.reader(io.StringIO(table.decode("utf-8-sig")))
    header = next(rows, [])
    if len(header) != len(CREDIT_COLUMNS):
        raise ValueError(f"expected {len(CREDIT_COLUMNS)} columns, got {len(header)}")
    lines = [",".join(CREDIT_COLUMNS)]
    lines += [",".join(str(int(float(value))) for value in row) for row in rows if row]
    return ("\n".join(lines) + "\n").encode()
