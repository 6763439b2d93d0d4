"""`ProtoEVFLClassifier`, a classifier with scikit-learn's habits on tables that belong to several
parties.

    model = ProtoEVFLClassifier(preset="default").fit({"bank": bank, "insurer": insurer}, labels)
    model.predict({"bank": new_rows})                  # any party may be missing

A table is a pandas or polars frame, a pyarrow Table, a numpy array (n, columns), or images (n, c,
h, w). Row i of every table is the same customer; the first party holds the labels. Rows that only
one party has go into `pools`; so do rows whose label is missing. For `cross_val_score` and
`GridSearchCV`, which cut rows out, wrap the tables in `Parties`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import MANIFEST, open_run, write_run
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError
from protoevfl.observer import for_a_fit
from protoevfl.pipeline.train import Trained, train
from protoevfl.rows.encoders import Encoder, ImageEncoder
from protoevfl.rows.frames import Parties, row_count
from protoevfl.rows.ids import IdRules
from protoevfl.rows.in_memory import (
    RowKinds,
    encode,
    encode_labels,
    named,
    own_rows,
    prepare,
    who_has,
)
from protoevfl.rows.table import PartyTable
from protoevfl.settings.config import LabelConfig
from protoevfl.settings.method_choice import choose_method, kind_of, method_facts, privacy_of
from protoevfl.validation import checked

__all__ = ["Parties", "ProtoEVFLClassifier"]


class ProtoEVFLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Vertical federated classifier, simulated in this process.

    method, preset   as in protoevfl.toml; `overrides` sets single fields, such as {"head.epochs":
    50}
    seed             of everything random; the same seed gives the same model
    device           "auto", "cpu" or "cuda"
    decision         which class `predict` names: "likeliest", "balanced" (as if classes were
                     equally frequent), or {class: threshold}
    progress         "auto" shows a bar in a notebook or terminal, True always, False never
    """

    def __init__(
        self,
        method: str = "proto_evfl",
        preset: str = "default",
        overrides: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
        progress: bool | str = "auto",
        decision: str | Mapping[Any, float] = "likeliest",
    ) -> None:
        self.method = method
        self.preset = preset
        self.overrides = overrides
        self.seed = seed
        self.device = device
        self.progress = progress
        self.decision = decision

    # ------------------------------------------------------------ fit

    def fit(
        self,
        parties: Any,
        labels: Any,
        pools: Mapping[str, Any] | None = None,
        pool_labels: Any = None,
        present: Mapping[str, Any] | None = None,
    ) -> Self:
        """Train on tables with the same rows in the same order.

        labels        (n,) of these rows, None or NaN where unknown
        pools         each party's own rows that the others do not have
        pool_labels   labels of the first party's pool: its own model learns from them
        present       {name: (n,) true or false}: which rows a party has; those named by nobody
                      count as everybody's. Other values of its table are not looked at.
        """
        tables = named(parties)
        has = who_has(tables, present)
        rows = has.shape[1]
        codes, own_codes = self._class_numbers(
            labels, rows, pool_labels, pools or {}, next(iter(tables))
        )
        self._label().rule([str(c) for c in self.classes_])  # refuses what is no class
        kinds = RowKinds.of(has, codes)
        pools = dict(pools or {})
        if stray := sorted(set(pools) - set(tables)):
            raise UserError(
                f"pools has '{stray[0]}', which is not among the parties {', '.join(tables)}"
            )
        prepared = {
            name: prepare(name, table, pools.get(name), kinds, m)
            for m, (name, table) in enumerate(tables.items())
        }
        kind = kind_of(
            "images" if isinstance(e, ImageEncoder) else "table" for e, _ in prepared.values()
        )
        wanted = dict(self.overrides or {})
        method = choose_method(self.method, self.preset, kind, wanted)
        privacy = privacy_of(
            self.method, self.preset, "images" if kind == "images" else "table", wanted
        )
        device = choose_device(self.device)
        active = next(iter(prepared.values()))[1]
        own, further = own_rows(active, kinds, codes, own_codes)
        with for_a_fit(self.progress) as observer:
            trained = train(
                method,
                [t for _, t in prepared.values()],
                torch.from_numpy(codes[kinds.aligned]),
                len(self.classes_),
                own=own,
                further=further,
                privacy=privacy,
                seed=self.seed,
                device=device,
                observer=observer,
            )
        self._keep(
            trained, {n: e for n, (e, _) in prepared.items()}, [t for _, t in prepared.values()]
        )
        return self

    def _class_numbers(
        self, labels: Any, rows: int, pool_labels: Any, pools: Mapping[str, Any], active: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Class numbers of the shared rows and of the first party's pool, over one list of
        classes."""
        if pool_labels is None:
            codes, self.classes_ = encode_labels(labels, rows)
            return codes, None
        if pools.get(active) is None:
            raise UserError(
                f"pool_labels belong to the pool of {active}, which pools does not have"
            )
        more = row_count(pools[active])
        both = [*np.asarray(labels, object).tolist(), *np.asarray(pool_labels, object).tolist()]
        if len(both) != rows + more:
            raise UserError(f"pool_labels must be one value per row of the pool ({more})")
        codes, self.classes_ = encode_labels(np.array(both, object), rows + more)
        return codes[:rows], codes[rows:]

    def _label(self) -> LabelConfig:
        """`decision`, checked as in a configuration file."""
        if isinstance(self.decision, str):
            given: str | dict[str, float] = self.decision
        else:
            given = {str(name): threshold for name, threshold in self.decision.items()}
        values = {"party": "first", "column": "label", "decision": given}
        return checked(LabelConfig, values, "ProtoEVFLClassifier")

    def _keep(
        self, trained: Trained, encoders: Mapping[str, Encoder], tables: Sequence[PartyTable]
    ) -> None:
        nothing = torch.zeros(0, dtype=torch.int64)
        names = [str(c) for c in self.classes_]
        self.owner_: StoredOwner = trained.stored_owner(
            list(encoders), names, self._label(), nothing, {}
        )
        self.party_names_ = tuple(encoders)
        self.parties_ = {
            name: StoredParty(
                name=name,
                index=m,
                id_columns=(),
                id_rules=IdRules(),
                on_bad_ids="refuse",
                encoder=encoder,
                method=trained.method,
                privacy=trained.privacy,
                dtype=str(tables[m].pool.dtype).removeprefix("torch."),
                state={n: t.cpu() for n, t in trained.parties[m].state().items()},
            )
            for m, (name, encoder) in enumerate(encoders.items())
        }
        self.history_ = trained.history
        self.cost_ = trained.cost

    # ------------------------------------------------------------ predict

    def predict_proba(
        self, parties: Any, present: Mapping[str, Any] | None = None
    ) -> NDArray[np.float64]:
        """(n, classes) from the parties given; `present` {name: (n,) true or false} says which rows
        each one has."""
        check_is_fitted(self, "owner_")
        tables = named(parties, least=1)
        if stray := sorted(set(tables) - set(self.parties_)):
            raise UserError(
                f"'{stray[0]}' is not a party of this model; it has {', '.join(self.parties_)}"
            )
        has = torch.from_numpy(who_has(tables, present))
        rows = has.shape[1]
        here = torch.zeros(len(self.parties_), rows, dtype=torch.bool)
        embeddings: dict[int, Tensor] = {}
        own: Tensor | None = None
        for (name, table), mask in zip(tables.items(), has, strict=True):
            party = self.parties_[name]
            here[party.index] = mask
            encoded = encode(party.encoder, table, name)
            embeddings[party.index] = party.embed([encoded], choose_device(self.device))
            if not party.index and self.owner_.has_own_model:
                own = encoded
        if rows and not bool(here.any(0).all()):
            row = int((~here.any(0)).nonzero()[0])
            raise UserError(f"no party has row {row}; leave such rows out")
        p = self.owner_.probabilities(embeddings, here, own).double()
        found: NDArray[np.float64] = (p / p.sum(1, keepdim=True)).numpy()
        return found

    def predict(self, parties: Any, present: Mapping[str, Any] | None = None) -> NDArray[Any]:
        """(n,) classes, as the labels spelt them."""
        probabilities = torch.from_numpy(self.predict_proba(parties, present))
        labels: NDArray[Any] = self.classes_[self.owner_.choose(probabilities).numpy()]
        return labels

    def score(self, parties: Any, labels: Any, sample_weight: Any = None) -> float:
        """Accuracy."""
        right = self.predict(parties) == np.asarray(labels)
        return float(np.average(right, weights=sample_weight))

    # ------------------------------------------------------------ keep

    def save(self, path: Path | str, overwrite: bool = False) -> None:
        """Write a run directory (no pickle): one folder a party, one for the label owner."""
        check_is_fitted(self, "owner_")
        out = Path(path)
        integrity.check_free(out, overwrite, MANIFEST)
        classes = {"dtype": self.classes_.dtype.kind, "values": self.classes_.tolist()}
        if any(not isinstance(v, str | int | float | bool) for v in classes["values"]):
            raise UserError("only models whose classes are texts or numbers can be saved")
        parties = [self.parties_[name] for name in self.party_names_]
        facts = {
            "method": method_facts(parties[0].method),
            "privacy": {},
            "seed": self.seed,
            "classes": classes,
        }
        write_run(out, parties, self.owner_, {**facts, "parameters": self.get_params(deep=False)})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A model that `save` wrote."""
        run = open_run(Path(path))
        if "parameters" not in run.manifest:
            raise UserError(
                f"{path} was written by `protoevfl train`; use `protoevfl predict` with it"
            )
        model = cls(**run.manifest["parameters"])
        model.owner_, model.party_names_ = run.need_owner(), run.names
        model.parties_ = {name: run.need_party(name) for name in run.names}
        model.classes_ = np.array(run.manifest["classes"]["values"])
        model.history_, model.cost_ = model.owner_.metrics.get("history", []), {}
        return model
