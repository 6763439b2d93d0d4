"""`protoevfl check`: read the files, count what matters, and list every problem with what to do
about it.

Problems are collected rather than raised, so that one call shows all of them: an *error* is what
`train` would refuse, a *warning* what it would accept and a person should know.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protoevfl.distributed import choose_device
from protoevfl.errors import ColumnsError, UserError, listed
from protoevfl.pipeline.estimate import Size, estimate
from protoevfl.pipeline.one_process import ids_of, party_order, sharing
from protoevfl.pipeline.own_half import by_level
from protoevfl.pipeline.prepare import check_labels, cut_rows, read_labels
from protoevfl.pipeline.simulate import method_and_privacy
from protoevfl.pipeline.suspicious import are_row_numbers, giving_away, rows_to_look_at
from protoevfl.rows.align import suspects
from protoevfl.rows.encoders import (
    Encoder,
    ImageEncoder,
    column_lines,
    encode_rows,
    fit_encoder,
    recognise_columns,
    row_shape,
)
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import iter_batches
from protoevfl.rows.ids import Ids
from protoevfl.settings.config import Config, PartyConfig, PartyFile, resolve
from protoevfl.settings.method_choice import method_facts

FEW_ROWS, FEW_OF_CLASS, FEW_TEST = 100, 10, 50
MOST_LINES = 20  # about the columns of a party that are not used
SPELLINGS = 200_000  # ids up to which nearly matching spellings are looked for


@dataclass
class PartyReport:
    """What a party's file holds."""

    name: str
    file: str
    format: str
    bytes: int
    rows: int = 0
    columns: dict[str, str] = field(default_factory=dict)  # feature column -> type
    # feature column -> missing values, where there are any
    missing: dict[str, int] = field(default_factory=dict)
    features: tuple[int, ...] = ()  # shape of an encoded row
    # feature column of texts -> what it is read as, with an example
    readings: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)  # feature column -> why it is not used
    missing_ids: int = 0
    duplicate_ids: int = 0
    # tables: level -> column -> what a decoder rebuilds, 0 nothing to 1 exact (privacy/gives_away.py)
    gives_away: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class Report:
    """Everything `check` found; `errors` stop a run."""

    parties: list[PartyReport] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)  # class -> rows of the label party
    unlabelled: int = 0
    common: int | None = None
    common_classes: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, int] = field(default_factory=dict)
    # shared with all, some, nobody -> rows
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    estimate: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def refuse(self, error: UserError) -> None:
        """Add the line or lines of an error, each once."""
        for line in error.lines if isinstance(error, ColumnsError) else [str(error)]:
            if line not in self.errors:
                self.errors.append(line)


def check(config: Config, with_estimate: bool = True) -> Report:
    """Look at every file and the run they would make."""
    report = Report()
    files: dict[str, PartyFile] = {}
    ids: dict[str, Ids] = {}
    sizes: dict[str, Size] = {}
    encoders: dict[str, Encoder] = {}
    for party in config.parties:
        try:
            files[party.name] = resolve(replace(config, parties=(party,)))[party.name]
        except UserError as error:
            report.refuse(error)
    start = time.perf_counter()
    for name, file in files.items():
        summary = PartyReport(name, file.info.path.name, file.info.format, file.info.bytes)
        report.parties.append(summary)
        if (own_ids := _ids(config, file, summary, report)) is not None:
            ids[name] = own_ids
        try:
            sizes[name], encoders[name] = _columns(config, file, summary, report)
        except UserError as error:
            report.refuse(error)
    _labels(config, files, ids, sizes, encoders, report)
    reading = time.perf_counter() - start
    try:
        method, privacy = method_and_privacy(config)
    except UserError as error:
        report.refuse(error)
        return report
    for summary in report.parties:
        encoder = encoders.get(summary.name)
        if summary.name != config.label.party and isinstance(encoder, TableEncoder):
            path = files[summary.name].info.path
            summary.gives_away = by_level(encoder, path, method, privacy)
    if with_estimate and not report.errors:
        used = [sizes[name] for name in party_order(config)]
        classes = len(report.common_classes)
        device = choose_device(config.device)
        extra = sum(report.kinds[who]["labelled"] for who in ("some", "nobody"))
        every = extra > 0 and getattr(method, "uses_every_label", False)
        facts = method_facts(method)
        expected = estimate(facts, used, classes, device, every, reading, privacy)
        report.estimate = asdict(expected)
    return report


def _ids(config: Config, file: PartyFile, summary: PartyReport, report: Report) -> Ids | None:
    """The party's ids; bad ones are an error or, where they are to be dropped, a warning."""
    try:
        ids = ids_of(config, file)
    except UserError as error:
        report.refuse(error)
        try:
            ids = ids_of(config, file, "drop")  # go on with those that can be used
        except UserError as same:
            report.refuse(same)
            return None
    summary.rows = ids.counts.input
    summary.missing_ids, summary.duplicate_ids = ids.counts.missing, ids.counts.repeated
    if ids.counts.dropped and config.alignment.on_bad_ids == "drop":
        report.warnings.append(
            f"{summary.name}: {ids.counts.dropped} rows have no id or share one with another row; "
            "they cannot be matched"
        )
    if are_row_numbers(ids):
        report.warnings.append(
            f"{summary.name}: the ids in {listed([repr(c) for c in file.config.id])} count the rows "
            "of the file: they match rows by their place, not people; name the column that holds "
            "the customer's number"
        )
    return ids


def _columns(
    config: Config, file: PartyFile, summary: PartyReport, report: Report
) -> tuple[Size, Encoder]:
    """One pass over the features: types, missing values, width after encoding."""
    image = file.config.image
    names = [image.column] if image else list(file.spec.features)
    types = dict(zip(file.info.names, file.info.types, strict=True))
    summary.columns = {name: types[name] for name in names}
    path = file.info.path
    encoder: Encoder
    if image:
        encoder = ImageEncoder.fit(_counted(iter_batches(path, names), summary), image)
    else:
        encoder = _fitted(file, summary, report)
        summary.dropped = encoder.dropped
        report.warnings += column_lines(summary.name, encoder.remarks)
    summary.features = row_shape(encoder)
    _about_columns(config, file.config, summary, file, report)
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    return Size(summary.features, encoder.spans, summary.rows, 0, 0, numbers), encoder


def _fitted(file: PartyFile, summary: PartyReport, report: Report) -> TableEncoder:
    """The encoder of all columns that can be used; the others are errors."""
    path, spec = file.info.path, file.spec
    for _ in _counted(iter_batches(path, spec.features), summary):
        pass
    recognition = recognise_columns(path, spec)
    summary.readings = {
        name: f"{reading.words} ({recognition.examples[name]})"
        for name, reading in recognition.readings.items()
    }
    if recognition.errors:
        report.refuse(ColumnsError(column_lines(summary.file, recognition.errors)))
        usable = tuple(name for name in spec.features if name not in recognition.errors)
        if not usable:
            raise UserError(f"{summary.file}: no feature column is left that can be used")
        spec = replace(spec, features=usable)
        recognition = replace(recognition, errors={})
    encoder = fit_encoder(path, spec, None, recognition=recognition)
    assert isinstance(encoder, TableEncoder)
    return encoder


def _counted(batches: Iterator[Any], summary: PartyReport) -> Iterator[Any]:
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            gone = column.null_count
            if pa.types.is_floating(column.type):
                gone += int(pc.sum(pc.is_nan(column)).as_py() or 0)
            if gone:
                summary.missing[name] = summary.missing.get(name, 0) + gone
        summary.columns |= {f.name: str(f.type) for f in batch.schema}
        yield batch


def _about_columns(
    config: Config, party: PartyConfig, summary: PartyReport, file: PartyFile, report: Report
) -> None:
    empty = [
        name
        for name, gone in summary.missing.items()
        if 2 * gone > summary.rows and name not in summary.dropped
    ]
    if empty:
        report.warnings.append(
            f"{summary.name}: more than half of {_names(empty)} is missing; exclude it if it means "
            "nothing"
        )
    for name, why in list(summary.dropped.items())[:MOST_LINES]:
        report.warnings.append(f"{summary.name}: column '{name}' is not used: {why}")
    if (more := len(summary.dropped) - MOST_LINES) > 0:
        report.warnings.append(
            f"{summary.name}: {more:,} more columns are not used (`check --json` names them)"
        )
    label = config.label
    if party.name != label.party and label.column in file.spec.features:
        report.warnings.append(
            f"{summary.name} has a feature called '{label.column}' like the label; exclude it if it "
            "gives the answer away"
        )


def _labels(
    config: Config,
    files: dict[str, PartyFile],
    ids: dict[str, Ids],
    sizes: dict[str, Size],
    encoders: dict[str, Encoder],
    report: Report,
) -> None:
    """Class counts, the common rows, and how they would be cut."""
    active = config.label.party
    if active in files:
        try:
            labels, classes = read_labels(config.label, files[active])
        except UserError as error:
            report.refuse(error)
            return
        report.classes = _per_class(labels, classes)
        report.unlabelled = int((labels < 0).sum())
        _about_leaks(files[active], encoders.get(active), labels, config.label.column, report)
    if active not in files or len(ids) < len(config.parties):
        return
    ordered = {name: ids[name] for name in party_order(config)}
    own = set(ids[active].values)
    report.pairs = {n: len(own & set(other.values)) for n, other in ids.items() if n != active}
    try:
        shared = sharing(config, ordered, kept=False)
        report.common = len(shared.common)
        rows = cut_rows(ids[active], labels, shared, config.seed, config.test, config.validation)
        report.warnings += check_labels(labels, rows, classes, config.label)
    except UserError as error:
        report.refuse(error)
        return
    has = shared.place >= 0
    report.kinds = _kinds(labels, has)
    report.common_classes = _per_class(labels[shared.common], classes)
    _about_common(report, len(rows.test))
    for place, name in enumerate(list(ordered)[1:]):
        known = np.full(ids[name].counts.input, -1)
        matched = has[place]
        known[shared.place[place, matched]] = labels[matched]
        _about_leaks(files[name], encoders.get(name), known, config.label.column, report)
    if max(len(spelled.values) for spelled in ids.values()) <= SPELLINGS:
        report.warnings += suspects(ordered)
    for name, size in sizes.items():
        place = list(ordered).index(name)
        further = int(has[place - 1, rows.further].sum()) if place else len(rows.further)
        learnt = len(rows.train) + further
        pool = min(config.pool, size.pool - learnt - len(rows.kept_aside))
        sizes[name] = replace(size, pool=max(0, pool), aligned=learnt, query=len(rows.kept_aside))


def _per_class(labels: NDArray[np.int64], classes: Sequence[str]) -> dict[str, int]:
    counts = np.bincount(labels[labels >= 0], minlength=len(classes))
    return dict(zip(classes, counts.tolist(), strict=True))


def _about_leaks(
    file: PartyFile,
    encoder: Encoder | None,
    labels: NDArray[np.int64],
    label: str,
    report: Report,
) -> None:
    """Warn of columns from which alone the label (rows of the file,) can be told."""
    if not isinstance(encoder, TableEncoder):
        return
    rows = rows_to_look_at(labels, len(encoder.columns))
    x = encode_rows(encoder, file.info.path, rows, len(labels)).numpy()
    spans = dict(zip(encoder.columns, encoder.spans, strict=True))
    for column, score in giving_away(x, labels[rows], spans).items():
        report.warnings.append(
            f"{file.config.name}: column '{column}' alone tells '{label}' ({100 * score:.0f} % "
            "balanced accuracy); exclude it if it is only known after the fact"
        )


def _kinds(labels: NDArray[np.int64], has: NDArray[np.bool_]) -> dict[str, dict[str, int]]:
    """How many rows of the active party are shared with all, some or none of the others, labelled
    or not."""
    kinds = {"all": has.all(0), "some": has.any(0) & ~has.all(0), "nobody": ~has.any(0)}
    return {
        who: {
            "labelled": int((labels[rows] >= 0).sum()),
            "unlabelled": int((labels[rows] < 0).sum()),
        }
        for who, rows in kinds.items()
    }


def _about_common(report: Report, test: int) -> None:
    labelled = sum(report.common_classes.values())
    if labelled < FEW_ROWS:
        report.warnings.append(
            f"only {labelled} common rows have a label; results will vary a lot from seed to seed"
        )
    few = [name for name, rows in report.common_classes.items() if 0 < rows < FEW_OF_CLASS]
    if few:
        report.warnings.append(
            f"few common rows are of the class {_names(few)}; more labels of it help most"
        )
    if 0 < test < FEW_TEST:
        spread = 100 * (0.25 / test) ** 0.5
        report.warnings.append(
            f"{test} test rows only: accuracy will be known to about ± {spread:.0f} points"
        )


def _names(names: Sequence[str]) -> str:
    return listed([f"'{name}'" for name in names])
