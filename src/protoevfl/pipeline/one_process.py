"""The files of all parties, read in one process: how `check`, `train` and an audit of own files come to
what training needs. Between companies each party does its own part (`prepare.py`) at home."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from protoevfl.errors import UserError
from protoevfl.observer import SILENT, Observer
from protoevfl.pipeline.prepare import (
    Prepared,
    Sharing,
    assemble,
    check_labels,
    cut_rows,
    prepare_party,
    read_ids,
    read_labels,
    rows_of,
)
from protoevfl.rows.align import plain_intersection
from protoevfl.rows.alignment import Alignment, same_order, verify
from protoevfl.rows.ids import Ids
from protoevfl.settings.config import Config, PartyFile, resolve
from protoevfl.settings.method_choice import kind_of


def party_order(config: Config) -> list[str]:
    """The label party first, the others as they are listed."""
    names = [p.name for p in config.parties]
    return [config.label.party, *(name for name in names if name != config.label.party)]


def kind_of_run(config: Config) -> str:
    """ "table", "images" or "mixed"."""
    return kind_of("images" if p.image else "table" for p in config.parties)


def ids_of(config: Config, file: PartyFile, on_bad: str | None = None) -> Ids:
    """The same for a party of a configuration."""
    return read_ids(
        file.info.path, file.config.id, config.id_rules, on_bad or config.alignment.on_bad_ids
    )


def sharing(config: Config, ids: Mapping[str, Ids], kept: bool = True) -> Sharing:
    """Each pair's alignment as `protoevfl align` left it (if `kept` ones are wanted), checked
    against the files; else the plain intersection. The active party comes first among `ids`."""
    active, *others = ids
    folder = alignment_folder(config)
    place = np.full((len(others), ids[active].counts.input), -1, np.int64)
    alignments = {}
    for m, other in enumerate(others):
        pair = {name: ids[name] for name in (active, other)}
        if kept and folder.is_dir():
            aligned = _kept_pair(config, folder / other, pair)
        else:
            aligned = plain_intersection(pair, config.alignment.minimum)
        place[m, aligned[active].rows] = aligned[other].rows
        alignments[other] = aligned[other]
    return Sharing(place, alignments)


def _kept_pair(config: Config, folder: Path, pair: Mapping[str, Ids]) -> dict[str, Alignment]:
    """The two sides of a pair that `protoevfl align` wrote; the files must not have changed
    since."""
    aligned = {name: Alignment.load(folder / name) for name in pair}
    same_order(aligned.values())
    for name, alignment in aligned.items():
        if alignment.rules != config.id_rules:
            raise UserError(
                f"the alignment in {folder} was made with other id rules; run align again"
            )
        verify(alignment, pair[name])
    return aligned


def alignment_folder(config: Config) -> Path:
    """Where `protoevfl align` puts its result: beside the run directory."""
    return config.output.with_name(f"{config.output.name}-alignment")


def prepare(config: Config, observer: Observer = SILENT) -> Prepared:
    """Read the files of all parties in this process (simulation)."""
    files = resolve(config)
    names = party_order(config)
    ids = {}
    for i, name in enumerate(names):
        observer.progress("reading ids", i, len(names))
        ids[name] = ids_of(config, files[name])
    shared = sharing(config, ids)
    active = names[0]
    labels, classes = read_labels(config.label, files[active])
    rows = cut_rows(ids[active], labels, shared, config.seed, config.test, config.validation)
    notes = check_labels(labels, rows, classes, config.label)
    parties = []
    for i, name in enumerate(names):
        observer.progress("encoding columns", i, len(names))
        own = rows_of(rows, shared, i)
        alignment = shared.alignments.get(name)
        total = ids[name].counts.input
        parties.append(
            prepare_party(files[name], own, alignment, total, config.pool, config.seed, notes)
        )
    return assemble(parties, labels, classes, rows, shared, notes)
