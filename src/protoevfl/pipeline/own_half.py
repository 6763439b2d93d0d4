"""What one company gives away, measured with its own file alone: no other company is needed for it.

The company's rows stand in for the shared ones: what it would send of them at each level of columns,
and how much of each column a decoder rebuilds from that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protoevfl.artifacts.party import StoredParty
from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.party import Party
from protoevfl.messages import OpenLabels, SendFeatures, WarmUp, values
from protoevfl.method import Method
from protoevfl.pipeline.threads import one_thread
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.gives_away import SelfAuditError, columns_of, gives_away
from protoevfl.privacy.levels import MEASURED
from protoevfl.privacy.policy import PartyGuard, PrivacySettings
from protoevfl.rows.encoders import Encoder, encoded_batches, fit_encoder
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.files import count_rows
from protoevfl.rows.table import PartyTable
from protoevfl.settings.config import PartyFile
from protoevfl.settings.method_choice import method_facts, method_from

ROWS = 2000  # of the file that are looked at
STEERED = 3  # columns that an owner is taken to steer sealed scores to
STEERED_ROWS = 1000
Levels = dict[str, dict[str, float]]  # level -> column -> score


def by_level(encoder: Encoder, path: Path, method: Method, privacy: PrivacySettings) -> Levels:
    """What the first rows of a file would give away at each level; {} for other methods."""
    if method.name != "proto_evfl":
        return {}
    rows = first_rows(encoder, path)
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    table = PartyTable("own rows", rows, rows, rows[:0], encoder.spans, numbers)
    request = WarmUp() if encoder.spans is None else SendFeatures()
    facts = method_facts(method)
    found: Levels = {}
    for level in MEASURED:
        chosen = method_from({**facts, "settings": {**facts["settings"], "columns": level}})
        party = Party(chosen, table, rnd.key("own half"))
        guard = PartyGuard(privacy, 1, SeededNoise(rnd.key("own half", "noise")))
        with one_thread():  # a few hundred rows
            reply = guard.up(party.handle(request))
            found[level] = party.gives_away(request, reply, encoder.columns)
    if encoder.spans is not None:
        with one_thread():
            found["sealed"] = sealed(table, encoder.columns, facts, found["few"])
    return found


def sealed(
    table: PartyTable, names: Sequence[str], facts: Mapping[str, Any], rebuilt: Mapping[str, float]
) -> dict[str, float]:
    """The most that sealed scores of these rows tell an owner that steers them: it knows a column of
    the shared rows and makes the labels of it, in turn for the columns `rebuilt` most at another
    level. A party alone has no labels to measure with, and honest ones tell less.
    """
    settings = {**facts["settings"], "columns": "sealed"}
    method = method_from({**facts, "settings": settings})
    rows = table.aligned[:STEERED_ROWS]
    table = replace(table, pool=rows, aligned=rows)
    columns = columns_of(table.aligned, table.spans, table.numbers, names)
    most = dict.fromkeys(columns, 0.0)
    aims = sorted(columns, key=lambda name: rebuilt.get(name, 0.0), reverse=True)[:STEERED]
    for name in aims:
        column = columns[name]
        middle = column.median() if column.is_floating_point() else column.mode().values
        labels = (column > middle if column.is_floating_point() else column == middle).long()
        request = OpenLabels(torch.arange(len(labels)), labels, torch.ones(2))
        party = Party(method, table, rnd.key("own half"))
        try:
            sent = values(party.handle(request))
        except SelfAuditError:
            continue  # the party would send nothing
        for other, score in gives_away(columns, sent).items():
            most[other] = max(most[other], score)
    return most


def of_file(file: PartyFile, method: Method, privacy: PrivacySettings) -> Levels:
    """The same of a company's file as its configuration names it."""
    everything = np.ones(count_rows(file.info.path), np.bool_)
    encoder = fit_encoder(file.info.path, file.spec, file.config.image, everything)
    return by_level(encoder, file.info.path, method, privacy)


def of_run(party: StoredParty, path: Path) -> Levels:
    """What a trained party sent of the rows it shares, rebuilt from its file and its own part of
    the run."""
    if party.alignment is None:
        raise UserError(
            f"{party.name} holds the labels: nothing of its columns leaves it; audit the run "
            "without --party"
        )
    shared = torch.from_numpy(np.asarray(party.alignment.rows, np.int64))
    whole = torch.cat(list(encoded_batches(party.encoder, path)))
    if len(shared) and int(shared.max()) >= len(whole):
        raise UserError(f"{path.name} has fewer rows than when the run was made; give the old file")
    rows = whole[shared]
    encoder = party.encoder
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    columns = columns_of(rows, encoder.spans, numbers, encoder.columns)
    level = str(getattr(party.method, "columns", "open"))
    return {level: gives_away(columns, party.embed([rows]))}


def first_rows(encoder: Encoder, path: Path) -> Tensor:
    """Up to ROWS encoded rows from the beginning of a file."""
    return next(encoded_batches(encoder, path))[:ROWS]
