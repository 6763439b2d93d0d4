"""What one company gives away, measured with its own file alone: no other company is needed for it.

The company's rows stand in for the shared ones: what it would send of them at each level of columns,
and how much of each column a decoder rebuilds from that.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protoevfl.artifacts.party import StoredParty
from protoevfl.core import random as rnd
from protoevfl.errors import UserError
from protoevfl.federation.party import Party
from protoevfl.messages import OpenLabels, SendFeatures, WarmUp, values
from protoevfl.method import Method
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.methods.sealed_choice import Audit
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

ROWS = 2000  # of the file that are looked at
STEERED = 12  # columns that an owner is taken to steer sealed scores to, one after the other
STEERED_ROWS = 1000
Levels = dict[str, dict[str, float]]  # level -> column -> score


def by_level(
    encoder: Encoder, path: Path, method: Method, privacy: PrivacySettings, steer: bool = False
) -> Levels:
    """What the first rows of a file would give away at each level; {} for other methods.

    steer   measure the sealed level with an owner that steers the scores, which takes a second per
            column; else it is the bounds, which the party keeps whoever steers
    """
    if not isinstance(method, ProtoEVFL):
        return {}
    rows = _first_rows(encoder, path)
    numbers = encoder.numbers if isinstance(encoder, TableEncoder) else ()
    table = PartyTable("own rows", rows, rows, rows[:0], encoder.spans, numbers)
    request = WarmUp() if encoder.spans is None else SendFeatures()
    levels: Levels = {}
    with one_thread():  # a few hundred rows
        for level in MEASURED:
            party = Party(replace(method, columns=level), table, rnd.key("own half"))
            guard = PartyGuard(privacy, 1, SeededNoise(rnd.key("own half", "noise")))
            reply = guard.up(party.handle(request))
            levels[level] = party.gives_away(request, reply, encoder.columns)
        if encoder.spans is not None:
            columns = columns_of(rows, encoder.spans, numbers, encoder.columns)
            levels["sealed"] = Audit(columns, method.sealed).bound
            if steer:
                most = sorted(columns, key=lambda name: levels["few"].get(name, 0.0), reverse=True)
                levels["sealed"] |= steered(table, encoder.columns, method, most[:STEERED])
    return levels


def steered(
    table: PartyTable, names: Sequence[str], method: ProtoEVFL, aims: Sequence[str]
) -> dict[str, float]:
    """The most that sealed scores of these rows tell an owner that steers them: it knows a column of
    the shared rows and makes the labels of it, in turn for the columns `aims`. A party alone has no
    labels to measure with, and honest ones tell less.
    """
    rows = table.aligned[:STEERED_ROWS]
    table = replace(table, pool=rows, aligned=rows)
    columns = columns_of(table.aligned, table.spans, table.numbers, names)
    most = dict.fromkeys(aims, 0.0)
    for name in aims:
        column = columns[name]
        middle = column.median() if column.is_floating_point() else column.mode().values
        labels = (column > middle if column.is_floating_point() else column == middle).long()
        request = OpenLabels(torch.arange(len(labels)), labels, torch.ones(2))
        party = Party(replace(method, columns="sealed"), table, rnd.key("own half"))
        try:
            sent = values(party.handle(request))
        except SelfAuditError:
            continue  # the party would send nothing
        scores = gives_away(columns, sent)
        most = {aim: max(score, scores.get(aim, 0.0)) for aim, score in most.items()}
    return most


def of_file(file: PartyFile, method: Method, privacy: PrivacySettings) -> Levels:
    """The same of a company's file as its configuration names it."""
    everything = np.ones(count_rows(file.info.path), np.bool_)
    encoder = fit_encoder(file.info.path, file.spec, file.config.image, everything)
    return by_level(encoder, file.info.path, method, privacy, steer=True)


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


def _first_rows(encoder: Encoder, path: Path) -> Tensor:
    """Up to ROWS encoded rows from the beginning of a file."""
    return next(encoded_batches(encoder, path))[:ROWS]
