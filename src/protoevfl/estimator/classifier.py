"""`ProtoEVFLClassifier`, a classifier with scikit-learn's habits on tables that belong to several
parties.

    model = ProtoEVFLClassifier(preset="default").fit({"bank": bank, "insurer": insurer}, labels)
    model.predict({"bank": new_rows})                  # any party may be missing

A table is a pandas or polars frame, a pyarrow Table, a numpy array (n, columns), or images (n, c,
h, w). Row i of every table is the same customer, unless pandas frames have an index: then they are
matched by it. The first party holds the labels. Rows that only one party has go into `pools`; so do
rows whose label is missing. scikit-learn's tools give one table: `parties` says which columns of it
are whose. Those that only cut rows out also take `Parties`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from protoevfl.artifacts.owner import StoredOwner, TestRows
from protoevfl.artifacts.party import StoredParty
from protoevfl.distributed import choose_device
from protoevfl.errors import UserError, listed
from protoevfl.estimator.card import card
from protoevfl.estimator.figures import known_codes, measured
from protoevfl.estimator.new_rows import embed
from protoevfl.estimator.one_table import (
    Split,
    by_party,
    is_one_table,
    one_dimensional,
    tables_features,
    value_errors,
)
from protoevfl.estimator.saved import open_model, restore, write_model
from protoevfl.observer import for_a_fit
from protoevfl.pipeline.prepare import absent_classes
from protoevfl.pipeline.train import Trained, train
from protoevfl.rows.encoders import Encoder, ImageEncoder
from protoevfl.rows.ids import IdRules
from protoevfl.rows.in_memory import (
    RowKinds,
    class_numbers,
    named,
    own_rows,
    prepare,
    who_has,
)
from protoevfl.rows.row_order import in_one_order, in_order_of, masks_in_order
from protoevfl.rows.table import PartyTable
from protoevfl.settings.config import LabelConfig
from protoevfl.settings.method_choice import choose_method, kind_of, privacy_of
from protoevfl.validation import checked


class ProtoEVFLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Vertical federated classifier, simulated in this process.

    method, preset   as in protoevfl.toml; `overrides` sets single fields, such as {"head.epochs":
    50}
    seed             of everything random; the same seed gives the same model
    device           "auto", "cpu" or "cuda"
    decision         which class `predict` names: "likeliest", "balanced" (as if classes were
                     equally frequent), or {class: threshold}
    progress         "auto" shows a bar in a notebook or terminal, True always, False never
    parties          for one table instead of one per party: {name: its columns}, by name or number;
                     the first party holds the labels, columns of nobody are left out. A number
                     deals the columns out to so many parties
    classes          all classes, where some have no label: these are looked for among the rows to
                     be predicted, of which there must be 200 or more at once
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
        parties: Split | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.method = method
        self.preset = preset
        self.overrides = overrides
        self.seed = seed
        self.device = device
        self.progress = progress
        self.decision = decision
        self.parties = parties
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    # ------------------------------------------------------------ fit

    @value_errors()
    def fit(
        self,
        X: Any,
        y: Any,
        pools: Mapping[str, Any] | None = None,
        pool_labels: Any = None,
        present: Mapping[str, Any] | None = None,
    ) -> Self:
        """Train on tables with the same rows: in the same order, or with the same index.

        X             {party: table}, a list of tables, `Parties`, or one table cut by `parties`
        y             (n,) labels of these rows, None or NaN where unknown
        pools         each party's own rows that the others do not have
        pool_labels   labels of the first party's pool: its own model learns from them
        present       {name: (n,) true or false}: which rows a party has; those named by nobody
                      count as everybody's. Other values of its table are not looked at.
        """
        tables, labels, present = self._tables(X, one_dimensional(y, self), present, reset=True)
        has = who_has(tables, present)
        rows = has.shape[1]
        codes, own_codes, self.classes_ = class_numbers(
            labels, rows, pool_labels, pools or {}, next(iter(tables)), self.classes
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
        shared = torch.from_numpy(codes[kinds.aligned])
        known = shared if own is None else own.labels[own.labels >= 0]
        with for_a_fit(self.progress) as observer:
            trained = train(
                method,
                [t for _, t in prepared.values()],
                shared,
                len(self.classes_),
                unseen=absent_classes(known, len(self.classes_)),
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

    def _tables(
        self, X: Any, values: Any, present: Mapping[str, Any] | None, reset: bool
    ) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """The parties' tables with their rows in one order, and values per row (labels) and masks
        that follow them."""
        if self.parties is not None and is_one_table(X):
            values = in_order_of(values, {"the table": X}, "labels")
            masks = masks_in_order(present, {}, {"the table": X})
            return by_party(self, X, self.parties, reset), values, masks
        given = named(X, least=2 if reset else 1)
        tables = in_one_order(given)
        if reset:
            self._keep_features(tables)
        masks = masks_in_order(present, given, tables)
        return tables, in_order_of(values, tables, "labels"), masks

    def _keep_features(self, tables: Mapping[str, Any]) -> None:
        """scikit-learn's attributes about columns, for several tables."""
        self.n_features_in_, names = tables_features(tables)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

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
        if hasattr(self, "measured_"):  # of the model before
            del self.measured_

    # ------------------------------------------------------------ predict

    @value_errors()
    def predict_proba(
        self,
        X: Any,
        present: Mapping[str, Any] | None = None,
        examples: Mapping[Any, int] | None = None,
    ) -> NDArray[np.float64]:
        """(n, classes) from the parties given; `present` {name: (n,) true or false} says which rows
        each one has. Rows are in the order of the first table.

        examples   {class: line of X} of classes without a label, of which two or more are only
                   groups in no known order without it
        """
        check_is_fitted(self, "owner_")
        tables, _, masks = self._tables(X, None, present, reset=False)
        sent = embed(self, tables, masks)
        if sent.present.shape[1] and not bool(sent.present.any(0).all()):
            row = int((~sent.present.any(0)).nonzero()[0])
            raise UserError(f"no party has row {row}; leave such rows out")
        shown = self._shown(examples or {}, sent.present)
        p = self.owner_.probabilities(sent.embeddings, sent.present, sent.own, shown).double()
        rates: NDArray[np.float64] = (p / p.sum(1, keepdim=True)).numpy()
        return rates

    def _shown(self, examples: Mapping[Any, int], present: torch.Tensor) -> dict[int, int]:
        """{class number: line} of examples, each of a class without a label and a line that all
        parties have."""
        without = {self.classes_[z].item(): z for z in self.owner_.unseen}
        everybody = present.all(0)
        for name, line in examples.items():
            if name not in without:
                raise UserError(
                    f"examples: {name!r} is no class without a label; "
                    f"{listed([repr(one) for one in without]) or 'this model has none'}"
                )
            whole = isinstance(line, int | np.integer)
            if not whole or not 0 <= line < len(everybody) or not bool(everybody[line]):
                raise UserError(
                    f"examples: line {line!r} of {name!r} is no row of this table that all parties "
                    "have"
                )
        return {without[name]: int(line) for name, line in examples.items()}

    @value_errors()
    def predict(
        self,
        X: Any,
        present: Mapping[str, Any] | None = None,
        examples: Mapping[Any, int] | None = None,
    ) -> NDArray[Any]:
        """(n,) classes, as the labels spelt them; the arguments as in `predict_proba`."""
        check_is_fitted(self, "owner_")
        nameless = [
            z for z in self.owner_.unseen if self.classes_[z].item() not in (examples or {})
        ]
        if len(nameless) > 1:
            names = listed([repr(self.classes_[z].item()) for z in nameless])
            raise UserError(
                f"nothing says which rows are of which class without a label ({names}): give "
                "examples={class: line of X}, or take the groups from predict_proba"
            )
        probabilities = torch.from_numpy(self.predict_proba(X, present, examples))
        labels: NDArray[Any] = self.classes_[self.owner_.choose(probabilities).numpy()]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy."""
        check_is_fitted(self, "owner_")
        with value_errors():
            tables = {"": X} if is_one_table(X) else in_one_order(named(X, least=1))
            labels = in_order_of(y, tables, "labels")
        right = self.predict(X) == np.asarray(labels)
        return float(np.average(right, weights=sample_weight))

    @value_errors()
    def measure(self, X: Any, y: Any) -> dict[str, Any]:
        """Does joining pay? Figures on rows that took no part in training and that all parties
        have.

        test      all parties: accuracy, AUC, Brier score and more
        alone     the first party without the others: its own model, where it has labels beyond the
                  shared rows, else the joint model on its columns
        gain      what joining gains over that, with its 95 % interval
        value     what each party is worth: Shapley values with their 95 % intervals

        They are kept as `measured_`, and shown where a notebook shows the model.
        """
        check_is_fitted(self, "owner_")
        tables, labels, _ = self._tables(X, one_dimensional(y, self), None, reset=False)
        if missing := [name for name in self.party_names_ if name not in tables]:
            raise UserError(f"what joining gains needs all parties; {missing[0]} is missing")
        sent = embed(self, tables, {})
        codes = known_codes(labels, self.classes_, sent.present.shape[1])
        rows = TestRows(sent.embeddings, torch.from_numpy(codes), sent.own)
        self.measured_: dict[str, Any] = measured(self.owner_, rows)
        return self.measured_

    # ------------------------------------------------------------ show

    def _repr_html_(self) -> str:
        """What a notebook shows: before `fit` the parameters, then parties, what crossed, and
        whether joining pays."""
        return card(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": card(self)}

    # ------------------------------------------------------------ keep

    def save(self, path: Path | str, overwrite: bool = False) -> None:
        """Write a run directory (no pickle): one folder per party, one for the label owner."""
        check_is_fitted(self, "owner_")
        write_model(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A model that `save` wrote."""
        run, parameters = open_model(Path(path))
        model = cls(**parameters)
        restore(model, run)
        return model
