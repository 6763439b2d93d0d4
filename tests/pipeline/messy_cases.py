"""The table of messy files: encodings, separators, decimals, dates, ids, labels, sizes."""

import unicodedata
from typing import Any

from tests.pipeline.messy import (
    IDS,
    LABEL,
    Case,
    Columns,
    added,
    comma,
    dated,
    early,
    edited,
    every_other,
    gap,
    grouped,
    indian,
    packed,
    parquet,
    plain,
    replaced,
    table,
    thousands,
    with_gaps,
    written,
)

WAY_OUT = "or list the column under categorical, or exclude it"


def head(columns: Columns, rows: int) -> Columns:
    return {name: values[:rows] for name, values in columns.items()}


def second_date(columns: Columns) -> list[Any]:
    return columns["since"][::-1]


ENCODINGS = {
    "plain": Case("same", written()),
    "byte-order mark": Case("same", written("utf-8-sig")),
    "Latin-1": Case("refused", written("latin-1"), words="is not UTF-8 .*save it as UTF-8"),
    "Windows-1252 with euro signs": Case(
        "refused", written("cp1252", income=lambda v: f"€ {v}"), words="save it as UTF-8"
    ),
    "UTF-16": Case("refused", written("utf-16"), words="looks like UTF-16.*save it as UTF-8"),
    "Windows line ends": Case("same", written(end="\r\n")),
    "decomposed umlauts": Case("same", written(town=lambda v: unicodedata.normalize("NFD", v))),
    "blank lines at the end": Case("same", edited(lambda text: text + "\n\n")),
}
SEPARATORS = {
    "semicolons": Case("same", written(mark=";")),
    "tabs": Case("same", written(mark="\t")),
    "bars": Case("same", written(mark="|")),
    "everything in quotes": Case(
        "same", lambda columns: table(columns, quoted=list(columns)).encode()
    ),
    "gzip, semicolons, decimal commas": Case("same", packed, name="bank.csv.gz"),
    "Parquet": Case("same", parquet, name="bank.parquet"),
    "Parquet of texts with decimal commas": Case(
        "same",
        lambda c: parquet({**c, "income": [comma(v) for v in c["income"]]}),
        name="bank.parquet",
    ),
    "spaces around numbers": Case("same", written(income=lambda v: f"  {v} ")),
    "a line with a further value": Case(
        "refused",
        edited(lambda text: text.replace(",Ulm,", ",Ulm,,", 1)),
        words="line .* has 9 values, the header 8; mend that line",
    ),
    "a quote that is never closed": Case(
        "refused", edited(lambda text: text.replace(",Ulm,", ',"Ulm,', 1)), words="never closed"
    ),
    "two columns of one name": Case(
        "refused",
        edited(lambda text: text.replace("rate", "income", 1)),
        words="'income' occurs more than once; rename one",
    ),
}
DECIMALS = {
    "decimal commas": Case("same", written(mark=";", income=comma, rate=comma, balance=comma)),
    "decimal commas in quotes": Case("same", written(income=comma, rate=comma)),
    "1.234,50": Case("same", written(mark=";", income=grouped(".", ","), rate=comma)),
    "1,234.50": Case("same", written(income=grouped(",", "."), balance=grouped(",", "."))),
    "1 234,50 with hard spaces": Case(
        "same", written(mark=";", income=grouped("\u00a0", ","), balance=grouped("\u202f", ","))
    ),
    "1'234.50": Case("same", written(income=grouped("'", "."), balance=grouped("’", "."))),
    "12,34,567.00": Case(
        "same",
        written(income=indian),
        replaced("income", lambda values: [1000 * v for v in values]),
    ),
    "thousands with points beside decimal commas": Case(
        "same",
        written(mark=";", income=comma, turnover=grouped(".", ",", 0)),
        added("turnover", thousands),
    ),
    "thousands with points alone": Case(
        "same",
        written(mark=";", turnover=grouped(".", ",", 0)),
        lambda c: added(
            "turnover", lambda d: [v if i % 3 else v % 1000 for i, v in enumerate(thousands(d))]
        )({n: v for n, v in c.items() if n not in ("income", "rate", "balance")}),
    ),
    "thousands with commas beside decimal points": Case(
        "same", written(turnover=grouped(",", ".", 0)), added("turnover", thousands)
    ),
    "three decimals or thousands, settled": Case(
        "same",
        written(mark=";", turnover=grouped(",", ".", 0)),
        lambda c: added("turnover", thousands)(
            {n: v for n, v in c.items() if n not in ("income", "rate", "balance")}
        ),
        party={"decimal": "point"},
    ),
    "three decimals or thousands, guessed": Case(
        "said",
        written(turnover=grouped(",", ".", 0)),
        lambda c: added("turnover", thousands)(
            {n: v for n, v in c.items() if n not in ("income", "rate", "balance")}
        ),
        words="'turnover' could be written with .* point is taken; decimal = \"comma\"",
    ),
    "percentages": Case("same", written(rate=lambda v: f"{100 * v:.1f}%")),
    "percentages with commas": Case(
        "same", written(mark=";", rate=lambda v: comma(f"{100 * v:.1f} %"))
    ),
    "euros": Case("same", written(income=lambda v: f"€ {v:,.2f}")),
    "EUR behind": Case("same", written(mark=";", income=lambda v: comma(f"{v:.2f} EUR"))),
    "kilograms": Case("same", written(visits=lambda v: f"{v} kg")),
    "accountants' brackets": Case(
        "same", written(balance=lambda v: f"({-v:.2f})" if v < 0 else f"{v:.2f}")
    ),
    "minus signs behind": Case(
        "same",
        written(mark=";", balance=lambda v: comma(f"{-v:.2f}-" if v < 0 else f"{v:.2f}")),
    ),
    "typographic minus signs": Case(
        "same", written(balance=lambda v: f"{v:.2f}".replace("-", "\u2212"))
    ),
    "powers of ten with commas": Case(
        "same", written(mark=";", income=lambda v: comma(f"{v:.9E}"))
    ),
    "dashes for missing numbers": Case(
        "said",
        written(income=gap("-")),
        with_gaps("income"),
        words="'income' .*marks such as '-' or '#N/A' count as missing",
    ),
    "spreadsheet errors": Case(
        "said",
        written(mark=";", income=gap("#DIV/0!", comma)),
        with_gaps("income"),
        words="'income' .*count as missing",
    ),
    "infinities": Case(
        "said",
        written(income=gap("inf")),
        with_gaps("income"),
        words="'income' 44 infinite values count as missing",
    ),
    "infinities among commas": Case(
        "said",
        written(mark=";", income=gap("-Infinity", comma)),
        with_gaps("income"),
        words="'income' 44 infinite values count as missing",
    ),
    "commas and points mixed": Case(
        "refused",
        written(mark=";", income=every_other(comma, plain)),
        words=f"'income' mixes decimal commas and decimal points .*{WAY_OUT}",
    ),
    "euros and dollars": Case(
        "refused",
        written(income=every_other(lambda v: f"€ {v}", lambda v: f"$ {v}")),
        words=f"'income' mixes units .*{WAY_OUT}",
    ),
    "percent signs now and then": Case(
        "refused",
        written(rate=every_other(lambda v: f"{100 * v:.1f}%", plain)),
        words=f"'rate' mixes units .*{WAY_OUT}",
    ),
    "words among numbers": Case(
        "refused",
        written(income=gap("about 300")),
        with_gaps("income", 50),
        words=f"'income' mixes numbers and text .*{WAY_OUT}",
    ),
}
DATES = {
    "31/01/2020": Case("same", written(since=dated("%d/%m/%Y"))),
    "01/31/2020": Case("same", written(since=dated("%m/%d/%Y"))),
    "31.01.2020": Case("same", written(since=dated("%d.%m.%Y"))),
    "31.01.20": Case("said", written(since=dated("%d.%m.%y")), words="'since' years of two digits"),
    "2020/01/31": Case("same", written(since=dated("%Y/%m/%d"))),
    "31 Jan 2020": Case("same", written(since=dated("%d %b %Y"))),
    "January 31, 2020": Case("same", written(mark=";", since=dated("%B %d, %Y"))),
    "31/01/2020 00:00:00": Case("same", written(since=dated("%d/%m/%Y %H:%M:%S"))),
    "day or month, settled by another column": Case(
        "same",
        written(since=dated("%m/%d/%Y"), paid=dated("%m/%d/%Y")),
        lambda c: replaced("since", early)(added("paid", second_date)(c)),
    ),
    "day or month, settled": Case(
        "same",
        written(since=dated("%m/%d/%Y")),
        replaced("since", early),
        party={"dates": "month_first"},
    ),
    "day or month, guessed": Case(
        "said",
        written(since=dated("%d/%m/%Y")),
        replaced("since", early),
        words="'since' .*day first is taken; dates = \"month_first\"",
    ),
    "day and month mixed": Case(
        "refused",
        written(since=every_other(dated("%d/%m/%Y"), dated("%m/%d/%Y"))),
        words=f"'since' mixes ways of writing dates .*{WAY_OUT}",
    ),
}
IDENTIFIERS = {
    "spaces around ids": Case("same", written(**{IDS: lambda v: f" {v}\u00a0"})),
    "ids as fractions": Case("same", written(**{IDS: lambda v: f"{v}.0"})),
    "invisible characters around ids": Case("same", written(**{IDS: lambda v: f"\ufeff{v}\u200b"})),
    "repeated ids": Case(
        "refused",
        edited(lambda text: text + text.splitlines()[-1] + "\n"),
        words="1 rows repeat an id .*keep one row an id",
    ),
    "missing ids": Case(
        "refused",
        written(**{IDS: lambda v: "" if v == "100007" else v}),
        words="1 rows have no id .row 2.; fill them in",
    ),
    "ids rounded by a spreadsheet": Case(
        "refused",
        written(**{IDS: lambda v: f"{int(v) * 10**13:.5E}"}),
        words="ids are rounded numbers .*export the id column as text",
    ),
    "long ids as floats": Case(
        "refused",
        written(**{IDS: lambda v: f"{int(v) * 10**13}.0"}),
        words="ids are rounded numbers .*export the id column as text",
    ),
    "ids with leading zeros": Case(
        "refused",
        written(**{IDS: lambda v: f"00{v}"}),
        words="only 0 rows in common.*leading zeros",
    ),
}
LABELS = {
    "labels with spaces": Case("same", written(**{LABEL: lambda v: f"{v} "})),
    "labels as fractions": Case(
        "same", written(**{LABEL: lambda v: "1.0" if v == "yes" else "0.0"})
    ),
    "labels as true and false": Case(
        "same", written(**{LABEL: lambda v: "TRUE" if v == "yes" else "FALSE"})
    ),
    "Yes, yes and no": Case(
        "refused",
        written(**{LABEL: every_other(plain, str.title)}),
        words=f"column '{LABEL}' spells a class in several ways .*make them one",
    ),
    "labels that are amounts": Case(
        "refused",
        lambda c: written()({**c, LABEL: c["income"]}),
        words=f"column '{LABEL}' holds many different fractions.*cut it into classes",
    ),
    "one class": Case(
        "refused",
        written(**{LABEL: lambda v: "no"}),
        words=f"column '{LABEL}' holds one class only",
    ),
    "a copy of the label": Case(
        "said",
        written(),
        added("status", lambda c: ["gone" if v == "yes" else "here" for v in c[LABEL]]),
        words=f"column 'status' alone tells '{LABEL}'.*exclude it if",
    ),
}
SIZES = {
    "a header alone": Case(
        "refused", edited(lambda text: text.splitlines()[0] + "\n"), words="no rows"
    ),
    "nothing": Case("refused", lambda columns: b"", words="is empty; it needs columns and rows"),
    "three rows": Case(
        "refused", lambda c: written()(head(c, 3)), words="only 3 rows in common.*minimum"
    ),
    "a column of remarks": Case(
        "said",
        written(),
        added("remark", lambda c: [f"called on day {i} no answer" for i in c[IDS]]),
        words="'remark' is not used: free text",
        twin=lambda c: c,
    ),
    "a constant column": Case(
        "said",
        written(),
        added("country", lambda c: ["DE"] * len(c[IDS])),
        words="'country' is not used: it has the same value everywhere",
        twin=lambda c: c,
    ),
    "an empty column": Case(
        "said",
        written(),
        added("fax", lambda c: [""] * len(c[IDS])),
        words="'fax' is not used: it has no values",
        twin=lambda c: c,
    ),
    "house numbers": Case(
        "said",
        written(),
        added("house", lambda c: [f"{v}{'ab'[v % 2]}" if v % 3 else str(v) for v in c["visits"]]),
        words="'house' is taken as categories: .*list it under categorical",
    ),
}
CASES: dict[str, Case] = {
    **ENCODINGS,
    **SEPARATORS,
    **DECIMALS,
    **DATES,
    **IDENTIFIERS,
    **LABELS,
    **SIZES,
}
