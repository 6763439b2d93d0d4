"""What a site does with its own files: the party it runs, what it keeps of it, and the active
party's side."""

import hashlib
import io
import json
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from protoevfl.artifacts import integrity
from protoevfl.artifacts.owner import StoredOwner
from protoevfl.artifacts.party import StoredParty
from protoevfl.artifacts.run_dir import OWNER, add_to_run, own_file
from protoevfl.deploy import durable, probe
from protoevfl.deploy.account import Account
from protoevfl.deploy.active_side import ActiveSide
from protoevfl.deploy.aligning import Gate, Pair, PassiveSide
from protoevfl.deploy.checkpoints import CheckpointStore, party_state
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.local_party import LocalParty
from protoevfl.deploy.own_file import NewRows, OwnFile
from protoevfl.deploy.policy import Policy, method_of
from protoevfl.deploy.review import ledger_of
from protoevfl.deploy.row_ledger import Keys, RowLedger, row_keys
from protoevfl.deploy.secret import derived, run_seed
from protoevfl.deploy.self_audit import FILE, SelfAudit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.federation import party_key
from protoevfl.federation.owner import LabelOwner
from protoevfl.federation.party import Party
from protoevfl.messages import (
    Embed,
    Learn,
    Message,
    OpenedSums,
    OwnFeatures,
    SendFeatures,
    WarmUp,
)
from protoevfl.method import Method
from protoevfl.pipeline.predict import Predictions, writer
from protoevfl.pipeline.prepare import OneParty, Places, prepare_party, rows_of
from protoevfl.pipeline.train import owner_of, stored_party
from protoevfl.privacy.defences.noise import SecretNoise
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, PrivacySettings, settings_from
from protoevfl.rows.encoders import Encoder, differences, encoder_state
from protoevfl.rows.features import TableEncoder
from protoevfl.rows.ids import Ids
from protoevfl.rows.table import Further, PartyTable
from protoevfl.settings.method_choice import method_facts

LOG = logging.getLogger(__name__)
DRAFT = "draft"  # folder: what is kept of the party, before it has learnt anything


@dataclass
class Local:
    """A site's view of a job: its kit, the specification, its own rows."""

    kit: Kit
    spec: JobSpec

    def __post_init__(self) -> None:
        self.config = self.kit.party_config() if self.spec.method != probe.Probe.name else {}
        self.folder = self.kit.run_folder(self.spec.run)
        self.index = self.spec.parties.index(self.kit.name)

    @property
    def own_data(self) -> bool:
        """Whether rows come from this company's file, and so must be aligned first."""
        return self.spec.method != probe.Probe.name and "demo" not in self.config

    @property
    def predicts(self) -> bool:
        """Whether this job uses the model of another run."""
        return self.spec.task in ("predict", "serve")

    @property
    def base_folder(self) -> Path:
        """The training run: this one, or the one a predict job names."""
        return self.kit.run_folder(self.spec.base or self.spec.run)

    @cached_property
    def seed(self) -> int:
        """Of everything random here but noise. Not the job's, which the other companies know and
        the active party chooses."""
        return run_seed(self.kit.folder, self.base_folder.name)

    @property
    def privacy(self) -> PrivacySettings:
        return settings_from(self.spec.privacy)

    def source(self) -> OwnFile | NewRows:
        """The file that this job is about."""
        if self.predicts:
            serves = self.spec.task == "serve"
            return NewRows.read(self.config, self.kit.folder, self.stored_party(), serves)
        return self.file

    @cached_property
    def file(self) -> OwnFile:
        """The file to learn from."""
        return OwnFile.read(self.config, self.kit.name, self.kit.folder)

    @property
    def pair(self) -> Pair:
        """At a passive party: what it shares with the active one."""
        return Pair(self.folder / "alignment" / self.spec.active)

    def aligner(self) -> PassiveSide | None:
        """Answers while the parties align; the active party asks, and needs none."""
        return (
            PassiveSide(self.kit.name, self.source, self.pair, self.gate())
            if self.own_data and self.index
            else None
        )

    def gate(self) -> Gate:
        """This party's limits on alignment."""
        ledger, run = self.row_ledger, self.spec.run
        return Gate(
            lambda: ledger.aligns(run),
            lambda ids: ledger.asked(ids, run),
            self.policy.max_query_rows,
        )

    @cached_property
    def active(self) -> ActiveSide:
        return ActiveSide(self.spec, self.source(), self.folder / "alignment", self.seed)

    def method(self) -> Method:
        demo = self.config.get("demo", {})
        return method_of(self.spec, "table" if self.own_data else demo.get("dataset", "digits"))

    # ------------------------------------------------------------ the party

    def party(self) -> LocalParty:
        """This site's party: fresh, or for a prediction as training left it, with new rows."""
        party = self._predicting() if self.predicts else self._learning()
        party.guard = self._party_guard()
        return party

    def _made(self, party: Party, **more: Any) -> LocalParty:
        dims = {"classes": self.spec.classes}
        more["columns"] = not self.index or SendFeatures.__name__ in self.policy.receive
        return LocalParty(party, dims, self.spec.max_bytes, learns=not self.predicts, **more)

    def _learning(self) -> LocalParty:
        method = self.method()
        key = party_key(self.seed, self.index)
        if not self.own_data:
            return self._made(Party(method, self._demo_table(), key))
        part = self.part()
        party = Party(method, part.table, key)
        party.least_component_rows = self.policy.min_component_rows
        on_bad_ids = self.file.config.on_bad_ids
        draft = stored_party(
            part, self.index, self.file.rules, on_bad_ids, method, self.privacy, party.state()
        )
        with integrity.whole(self.folder / DRAFT) as beside:
            draft.save(beside)
        encoder = json.dumps(encoder_state(part.encoder), sort_keys=True)
        sources = {
            "data file": file_digest(part.file.info.path),
            "encoder": hashlib.sha256(encoder.encode()).hexdigest(),
        }
        account = self._account(part)
        audit = self._audit(part.encoder, account)
        return self._made(party, account=account, sources=sources, audit=audit)

    def part(self) -> OneParty:
        """This party's encoder and rows."""
        if not self.index:
            return self.active.world.parties[0]
        ids = self.file.ids()
        rows, alignment = self.pair.rows(ids), self.pair.load()
        config, notes = self.file.config, list[str]()
        return prepare_party(
            self.file.file, rows, alignment, ids.counts.input, config.pool, self.seed, notes
        )

    def _predicting(self) -> LocalParty:
        source = self.source()
        assert isinstance(source, NewRows)
        for text in differences(source.party.encoder, source.path):
            LOG.warning("%s: %s", source.path.name, text)  # stays here: it names columns
        rows = self.active.rows.asked if not self.index else self.pair.rows(source.ids()).asked
        party = source.party.party()
        party.rows.query = source.encoded(rows)[None]
        account = None
        if self.index:
            account = Account(
                self.row_ledger, self.spec.run, {"query": self._keys(source.ids(), rows)}
            )
        sources = {"file of new rows": file_digest(source.path)}
        audit = self._audit(source.party.encoder, account)
        return self._made(party, account=account, sources=sources, audit=audit)

    def served(self, source: NewRows, rows: Places) -> LocalParty:
        """The trained party with these rows of the file; entering what leaves is the caller's."""
        party = source.party.party()
        party.rows.query = source.encoded(rows)[None]
        keys = self._keys(source.ids(), rows)
        measured = Account(self.row_ledger, self.spec.run, {"query": keys})
        made = self._made(party, audit=self._audit(source.party.encoder, measured))
        made.guard = self._party_guard()
        return made

    # ------------------------------------------------------------ what may leave

    @cached_property
    def policy(self) -> Policy:
        return Policy.read(self.kit.folder / "policy.toml")

    @cached_property
    def row_ledger(self) -> RowLedger:
        """What of this party's rows went to the active party, over all runs."""
        return ledger_of(self.kit.folder, self.policy)

    def _audit(self, encoder: Encoder, account: Account | None) -> SelfAudit | None:
        """Of what leaves; the active party's own answers do not, and images have no columns."""
        if account is None or not isinstance(encoder, TableEncoder):
            return None
        path = self.folder / FILE
        return SelfAudit(tuple(encoder.columns), self.policy.max_rebuilt, path, account)

    def _account(self, part: OneParty) -> Account | None:
        """None at the active party: its own answers do not leave it."""
        if not self.index:
            return None
        ids = self.file.ids()
        rows = self.pair.rows(ids)
        uses = {
            "aligned": rows.aligned,
            "further": rows.further,
            "query": np.concatenate([rows.kept_aside, rows.asked]),
            # a party without rows of its own describes the shared ones
            "pool": part.pool_rows if len(part.pool_rows) else rows.aligned,
        }
        keys = {use: self._keys(ids, places) for use, places in uses.items()}
        return Account(self.row_ledger, self.spec.run, keys)

    def _keys(self, ids: Ids, places: Places) -> Keys:
        """Keyed hashes of the ids in these rows of the file; a row without an id is known by its
        place."""
        spelt = dict(zip(ids.rows.tolist(), ids.values, strict=True))
        return self.keys_of([spelt.get(row, f"row {row}") for row in places.tolist()])

    def keys_of(self, ids: Sequence[str]) -> Keys:
        """Keyed hashes of ids, by which the ledger knows their rows."""
        return row_keys(derived(self.kit.folder, "ledger"), ids)

    def _demo_table(self) -> PartyTable:
        if self.spec.method == probe.Probe.name:
            return probe.table(self.kit.name)
        table: PartyTable = self._demo().tables[self.index]
        return table

    def _party_guard(self) -> PartyGuard | None:
        if self.index == 0:
            return None  # the active party's own answers do not leave it
        strict = self.policy.require_privacy and self.spec.method != probe.Probe.name
        return PartyGuard(self.privacy, self.index, self._noise(), self._ledger(), strict)

    def _ledger(self) -> Ledger:
        """Of what noise covers, over all runs: labels to each party, columns to the active one."""
        return Ledger(
            self.privacy.epsilon,
            self.privacy.delta,
            self.kit.folder / "ledger" / "epsilon.json",
            run=self.base_folder.name,
            # at a passive party all of this is about the active one
            names=[self.spec.active] * len(self.spec.parties) if self.index else self.spec.parties,
            total=self.policy.max_epsilon if self.policy.require_privacy else None,
        )

    def _noise(self) -> SecretNoise:
        """Of a run and the predictions made with it: the same numbers of the same row get the same
        noise. Other defences get other noise: scaled by another factor it would cancel out."""
        defences = json.dumps(asdict(self.privacy), sort_keys=True)
        return SecretNoise(derived(self.kit.folder, "noise", self.base_folder.name, defences))

    # ------------------------------------------------------------ what is kept

    def keep_party(self, state: Mapping[str, Tensor]) -> None:
        """The end of training: this party's folder of the run, with what it has learnt."""
        draft = StoredParty.load(self.base_folder / DRAFT)
        self._keep(replace(draft, state=dict(state)), draft.method)

    def keep_owner(self, owner: StoredOwner) -> None:
        self._keep(owner, owner.method)

    def _keep(self, part: StoredParty | StoredOwner, method: Method) -> None:
        facts = {
            "method": method_facts(method),
            "privacy": asdict(self.privacy),
            "seed": self.spec.seed,
        }
        add_to_run(self.base_folder, self.spec.parties, part, facts)

    def stored_party(self) -> StoredParty:
        """This party as training left it; one that was away at the end writes its folder now."""
        if not own_file(self.base_folder, self.kit.name).is_file():
            trained = CheckpointStore(self.base_folder / "checkpoints").latest()
            if trained is None or not (self.base_folder / DRAFT).is_dir():
                raise UserError(f"run {self.spec.base} was not trained here")
            self.keep_party(party_state(trained))
        return StoredParty.load(self.base_folder / self.kit.name)

    def stored_owner(self) -> StoredOwner:
        if not own_file(self.base_folder, OWNER).is_file():
            raise UserError(
                f"run {self.spec.base} was not finished; resume it before predicting with it"
            )
        return StoredOwner.load(self.base_folder / OWNER)

    # ------------------------------------------------------------ the active party

    def owner(self) -> LabelOwner:
        parties = len(self.spec.parties)
        if self.spec.method == probe.Probe.name:
            return probe.owner(parties, self.seed)
        if not self.own_data:
            demo: LabelOwner = self._demo().owner
            return demo
        world = self.active.world
        classes = len(world.classes)
        owner = owner_of(
            self.method(),
            world.labels,
            classes,
            parties,
            self.seed,
            world.unseen,
            world.own,
            world.further,
        )
        owner.names = self.spec.parties
        return owner

    def sources(self) -> dict[str, str]:
        """SHA-256 of the file that this job is about; {} where there is none."""
        if not self.own_data:
            return {}
        source = self.source()
        path = source.path if isinstance(source, NewRows) else source.file.info.path
        return {"file of new rows" if self.predicts else "data file": file_digest(path)}

    def rows_asked(self, party: int, request: Message) -> int | None:
        """How many rows a party's answer must have; None where it is not known."""
        if not self.own_data:
            return None
        rows = rows_of(self.active.rows, self.active.shared, party, predict=True)
        if isinstance(request, Embed):
            uses = {
                "aligned": len(rows.aligned),
                "further": len(rows.further),
                "query": len(rows.kept_aside) + len(rows.asked),
            }
            return uses[request.rows]
        if isinstance(request, OpenedSums):
            return len(rows.aligned) + len(rows.further)
        whole = isinstance(request, WarmUp | SendFeatures | Learn | OwnFeatures)
        return len(rows.aligned) if whole else None

    def owner_guard(
        self,
        labels: Tensor,
        further: Further | None = None,
        memory: MutableMapping[str, Tensor] | None = None,
    ) -> OwnerGuard:
        """`labels` (N_a,) of the rows that all parties share, `further` of those that some do;
        `memory` of the owner, where it trains. Sealed labels are always encrypted here."""
        return OwnerGuard(
            replace(self.privacy, encrypt=True),
            labels,
            self.spec.classes,
            self._noise(),
            self._ledger(),
            memory={} if memory is None else memory,
            further=None if further is None else further.labels,
        )

    def write_probabilities(self, probabilities: Tensor) -> None:
        """predictions.safetensors."""
        from safetensors.torch import save

        data = save({"probabilities": probabilities.detach().cpu().contiguous()})
        durable.write(self.folder / "predictions.safetensors", data)

    def write_predictions(self, predictions: Predictions) -> None:
        """The same, and predictions.csv with ids, as `protoevfl predict` writes it."""
        self.write_probabilities(predictions.probabilities)
        path = self.folder / "predictions.csv"
        text = io.BytesIO()
        writer(path)(predictions.table(), text)
        durable.write(path, text.getvalue())

    def _demo(self) -> Any:
        """A public data set cut into parties, for trying a deployment out: every site takes its own
        part only."""
        from protoevfl.bench.world import RunConfig, prepare

        facts = {
            **self.config["demo"],
            "parties": len(self.spec.parties),
            "method": self.spec.method,
        }
        try:
            return prepare(RunConfig(**facts, preset=self.spec.preset), self.spec.seed, "cpu")
        except TypeError as error:
            raise UserError(f"party.toml: [demo] {error}") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
