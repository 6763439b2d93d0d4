"""Predictions for single customers: the active party's rows, the other parties' answers, the model of
a run. No HTTP here.

    ids or rows -> own columns encoded -> who shares which customer? -> asked, with a deadline
    -> probabilities from the parties that answered

Customers are known by their id in the active party's file of today; a caller may give the columns
instead, with or without an id. A row of which no other party has anything is predicted by the own
model alone.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protoevfl.deploy.standing_active import StandingActive
from protoevfl.deploy.standing_lead import AwayError, StandingLead
from protoevfl.errors import UserError
from protoevfl.rows.encoders import encode_rows
from protoevfl.rows.frames import Frame

ALIGN_EVERY_S = 60.0  # looks whether there are new customers


class UnknownCustomerError(UserError):
    """An id that the active party's file does not have."""


@dataclass(frozen=True)
class Row:
    """What a caller asks about: a customer by id, or columns of the active party."""

    id: Any = None
    columns: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """The prediction of one row."""

    id: Any
    choice: str
    probabilities: dict[str, float]
    parties: tuple[str, ...]  # took part
    absent: dict[str, str]  # should have taken part and did not: why


@dataclass
class Table:
    """The active party's rows of today."""

    encoded: Tensor  # (n, ...)
    embedded: Tensor  # (n, d) of the active party's own model
    place: dict[str, int]  # {id: line}
    stamp: tuple[int, int]


@dataclass
class Model:
    """One run that is served."""

    active: StandingActive
    lead: StandingLead
    reload_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.table = self._read()
        # threads that compute side by side take turns anyway: one after the other ends sooner
        self._computing = threading.Lock()

    @property
    def version(self) -> dict[str, str]:
        return {"run": self.active.base, "digest": self.active.digest}

    def _read(self) -> Table:
        source = self.active.source()
        facts = source.path.stat()
        ids = source.ids()
        encoded = source.encoded(ids.rows)
        place = {value: k for k, value in enumerate(ids.values)}
        stamp = facts.st_mtime_ns, facts.st_size
        return Table(encoded, self.active.embed(encoded), place, stamp)

    def refresh(self) -> None:
        """Take up a changed file, then ask the parties about customers that are new; never raises."""
        with self.reload_lock:
            try:
                source = self.active.source()
                facts = source.path.stat()
                if (facts.st_mtime_ns, facts.st_size) != self.table.stamp:
                    self.table = self._read()
                ids = source.ids()
            except (UserError, OSError):
                return  # being replaced: the rows of before stay
            for partner in self.lead.partners.values():
                try:
                    if partner.up:
                        partner.align(ids)
                except (AwayError, UserError) as error:
                    partner.note = str(error)

    # ------------------------------------------------------------ predictions

    def predict(
        self, rows: Sequence[Row], seconds: float, over_limit: str = "refuse"
    ) -> list[Answer]:
        """One answer per row, in their order.

        seconds      by when the other parties must have answered
        over_limit   refuse: OverLimitError where a party's day is used up; degrade: go on without it
        """
        ids = self._ids(rows)
        encoded, embedded = self._views(rows, ids)
        partners = self.lead.partners
        names = self.active.owner.parties
        present = torch.zeros(len(names), len(rows), dtype=torch.bool)
        present[0] = True
        ids_of: dict[int, list[str]] = {}
        lines: dict[int, list[int]] = {}
        for number, partner in partners.items():
            lines[number] = [k for k, i in enumerate(ids) if i is not None and partner.has(i)]
            if lines[number]:
                ids_of[number] = [str(ids[k]) for k in lines[number]]
        if over_limit == "refuse":
            self.lead.check_limits([i for i in ids if i is not None])
        by_party, absent = self.lead.ask(ids_of, seconds)
        embeddings = {0: embedded}
        for number, values in by_party.items():
            at = torch.tensor(lines[number])
            filled = torch.zeros(len(rows), values.shape[1])
            filled[at] = values
            embeddings[number] = filled
            present[number, at] = True
        owner = self.active.owner
        own = encoded if owner.has_own_model else None
        with self._computing:
            probabilities = owner.probabilities(embeddings, present, own)
        choice = owner.choose(probabilities).tolist()
        names_of_classes = owner.class_names()
        missing = self._missing(ids, lines, absent)
        return [
            Answer(
                rows[k].id,
                names_of_classes[choice[k]],
                dict(zip(owner.classes, probabilities[k].tolist(), strict=True)),
                tuple(name for m, name in enumerate(names) if present[m, k]),
                missing[k],
            )
            for k in range(len(rows))
        ]

    def _missing(
        self,
        ids: Sequence[str | None],
        lines: Mapping[int, Sequence[int]],
        absent: Mapping[int, str],
    ) -> list[dict[str, str]]:
        """Per row: parties that did not take part, and why."""
        missing: list[dict[str, str]] = [{} for _ in ids]
        for number, partner in self.lead.partners.items():
            has_row = set(lines[number])
            for k, identity in enumerate(ids):
                if k in has_row and number in absent:
                    missing[k][partner.name] = absent[number]
                elif k not in has_row and partner.greeting is None:
                    missing[k][partner.name] = partner.reason
                elif k not in has_row:
                    why = "the row has no id" if identity is None else "does not have this customer"
                    missing[k][partner.name] = why
        return missing

    def _ids(self, rows: Sequence[Row]) -> list[str | None]:
        given = [k for k, row in enumerate(rows) if row.id is not None]
        spelt = self.active.spelt([rows[k].id for k in given])
        ids: list[str | None] = [None] * len(rows)
        for k, value in zip(given, spelt, strict=True):
            ids[k] = value
        return ids

    def _views(self, rows: Sequence[Row], ids: Sequence[str | None]) -> tuple[Tensor, Tensor]:
        """(n, ...) the active party's view of each row, of its file or as the caller gave it, and
        (n, d) its own embeddings of them."""
        table = self.table
        by_id = [k for k, row in enumerate(rows) if row.columns is None]
        unknown = [k for k in by_id if ids[k] not in table.place]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise UnknownCustomerError(
                f"no customer has the id {rows[unknown[0]].id!r}{more}; give its columns instead"
            )
        encoded = torch.zeros((len(rows), *table.encoded.shape[1:]), dtype=table.encoded.dtype)
        embedded = torch.zeros(len(rows), table.embedded.shape[1])
        if by_id:
            at = torch.tensor([table.place[str(ids[k])] for k in by_id])
            encoded[torch.tensor(by_id)] = table.encoded[at]
            embedded[torch.tensor(by_id)] = table.embedded[at]
        given = [k for k, row in enumerate(rows) if row.columns is not None]
        if given:
            views = self._from_columns([dict(rows[k].columns or {}) for k in given])
            encoded[torch.tensor(given)] = views
            embedded[torch.tensor(given)] = self.active.embed(views)
        return encoded, embedded

    def _from_columns(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """Rows as callers give them, encoded; UserError for a column that is missing or unknown."""
        import pyarrow as pa

        encoder = self.active.party.encoder
        columns = list(encoder.columns)
        for row in rows:
            if lacking := [name for name in columns if name not in row]:
                raise UserError(
                    f"a row lacks the column {lacking[0]!r}; null says that it is unknown"
                )
            if unknown := [name for name in row if name not in columns]:
                raise UserError(f"{unknown[0]!r} is not a column that this model uses")
        try:
            table = pa.table({name: [row[name] for row in rows] for name in columns})
        except (pa.ArrowException, ValueError, TypeError):
            raise UserError("a column mixes numbers and text") from None
        return encode_rows(encoder, Frame("the request", table))


@dataclass
class Service:
    """The models that are served: the current one, and others side by side."""

    models: dict[str, Model] = field(default_factory=dict)
    current: str = ""
    started: float = field(default_factory=time.time)

    def add(self, model: Model, current: bool = True) -> Model | None:
        """Serve a model; the one that it takes over from, if any. Requests that are under way end
        with the model they began with."""
        before = self.models.get(self.current)
        self.models = {**self.models, model.active.base: model}
        if current:
            self.current = model.active.base
        return before if current and before is not model else None

    def drop(self, model: Model) -> None:
        """Stop serving a model, unless it has become the current one again."""
        if self.models.get(self.current) is model:
            return
        self.models = {run: kept for run, kept in self.models.items() if kept is not model}
        model.lead.close()

    def model(self, run: str | None = None) -> Model:
        model = self.models.get(run or self.current)
        if model is None:
            raise UserError(f"run {run!r} is not served; these are: {', '.join(self.models)}")
        return model

    def watch(self, stop: threading.Event) -> None:
        """Take up changed files and new customers in the background, until `stop`."""
        while not stop.wait(ALIGN_EVERY_S):
            for model in list(self.models.values()):
                model.refresh()


MOST_WARMED = 64  # subsets of parties


def warm_up(model: Model) -> None:
    """Predict one row from every subset of the parties: some methods fit a model for each when it is
    first used, and that must not be the first caller's wait."""
    owner = model.active.owner
    rest = len(owner.parties) - 1
    widths = {0: 0} | {m: p.width or 0 for m, p in model.lead.partners.items()}
    if len(model.table.encoded) == 0:
        return
    encoded = model.table.encoded[:1]
    for code in range(min(2**rest, MOST_WARMED)):
        numbers = [m for m in range(1, rest + 1) if code >> (m - 1) & 1 and widths.get(m)]
        present = torch.zeros(len(owner.parties), 1, dtype=torch.bool)
        present[[0, *numbers]] = True
        embeddings = {0: model.table.embedded[:1]}
        embeddings |= {m: torch.zeros(1, widths[m]) for m in numbers}
        owner.probabilities(embeddings, present, encoded if owner.has_own_model else None)


def open_model(active: StandingActive, greet_s: float = 20.0) -> Model:
    """A model whose parties were greeted, and asked about customers that are new, as far as they
    answer within `greet_s`."""
    model = Model(active, active.lead())
    warm_up(model)
    end = time.monotonic() + greet_s
    partners = model.lead.partners.values()
    while time.monotonic() < end and not all(p.up or p.failures for p in partners):
        time.sleep(0.05)
    model.refresh()
    return model
