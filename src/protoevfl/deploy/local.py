"""What a site does with its own files: the party it runs, and, at the active party, the method's owner side."""

import csv
import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protoevfl.deploy import durable, probe
from protoevfl.deploy.aligning import QUERY, TRAIN, Aligned, PassiveSide
from protoevfl.deploy.checkpoints import CheckpointStore
from protoevfl.deploy.kit import Kit
from protoevfl.deploy.own_file import OwnFile
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.federation.federation import party_key
from protoevfl.federation.owner import LabelOwner, build_owner
from protoevfl.federation.party import Party
from protoevfl.messages import decode, encode
from protoevfl.method import Method
from protoevfl.privacy.defences.noise import SecretNoise
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, settings_from
from protoevfl.rows.table import PartyTable
from protoevfl.settings.presets import build


@dataclass
class LocalParty:
    """A `Party` that speaks bytes: what comes in is checked before use, what goes out passes the party's guard."""

    party: Party
    dims: Mapping[str, int]
    max_bytes: int
    guard: PartyGuard | None = None

    def handle_bytes(self, request: bytes) -> bytes:
        reply = self.party.handle(decode(request, self.dims, self.max_bytes))
        return encode(reply if self.guard is None else self.guard.up(reply))

    def state(self) -> dict[str, Tensor]:
        return self.party.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self.party.restore(state)


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
    def base_folder(self) -> Path:
        """The training run: this one, or the one a predict job names."""
        return self.kit.run_folder(self.spec.base or self.spec.run)

    def file(self) -> OwnFile:
        return OwnFile.read(self.config, self.kit.folder)

    def alignments(self) -> tuple[Aligned, Aligned]:
        """(of the rows to learn from, of the rows to predict)."""
        return Aligned(self.base_folder / "alignment"), Aligned(self.folder / "alignment")

    def aligner(self) -> PassiveSide | None:
        if not self.own_data:
            return None
        return PassiveSide(self.kit.name, self.file, self.alignments()[1], new_rows=self.spec.task == "predict")

    def method(self) -> Method:
        if self.spec.method == probe.Probe.name:
            return probe.make(self.spec.settings)
        dataset = "table" if self.own_data else str(self.config["demo"].get("dataset", "digits"))
        return build(self.spec.method, self.spec.preset, dataset, self.spec.settings)

    def table(self) -> PartyTable:
        if self.spec.method == probe.Probe.name:
            return probe.table(self.kit.name)
        if not self.own_data:
            found: PartyTable = self._demo().tables[self.index]
            return found
        file, (learnt, asked), new = self.file(), self.alignments(), self.spec.task == "predict"
        train = learnt.rows(TRAIN, file.ids())
        query = asked.rows(QUERY, file.ids(file.predict if new else None))
        return file.table(self.kit.name, train, query, new, self.spec.seed)

    def party(self) -> LocalParty:
        """This site's party; a predict job starts from the end of training."""
        party = Party(self.method(), self.table(), party_key(self.spec.seed, self.index))
        if self.spec.task == "predict":
            trained = CheckpointStore(self.base_folder / "checkpoints").latest()
            if trained is None:
                raise UserError(f"run {self.spec.base} was not trained here")
            party.restore({n: t for n, t in trained.tensors.items() if n != "reply!"})
        return LocalParty(party, {"classes": self.spec.classes}, self.spec.max_bytes, self._party_guard())

    def _party_guard(self) -> PartyGuard | None:
        settings = settings_from(self.spec.privacy)
        if self.index == 0:
            return None  # the active party's own answers do not leave it
        ledger = Ledger(settings.epsilon, settings.delta, self.base_folder / "ledger.json")
        return PartyGuard(settings, self.index, SecretNoise(self._secret()), ledger)

    def _secret(self) -> bytes:
        """The key of this site's noise: made once a run, readable by this user alone, never sent."""
        path = self.base_folder / "noise.key"
        if not path.exists():
            durable.write(path, secrets.token_bytes(32))
        return path.read_bytes()

    # ------------------------------------------------------------ the active party

    def owner(self) -> LabelOwner:
        if self.spec.method == probe.Probe.name:
            return probe.owner(len(self.spec.parties), self.spec.seed)
        if not self.own_data:
            found: LabelOwner = self._demo().owner
            return found
        file = self.file()
        labels, classes = file.labels()
        if len(classes) != self.spec.classes:
            raise UserError(f"the file has {len(classes)} classes ({', '.join(classes[:5])}), the job says otherwise")
        own = torch.from_numpy(labels[self.alignments()[0].rows(TRAIN, file.ids())])
        counts = torch.bincount(own, minlength=len(classes))
        unseen = tuple((counts == 0).nonzero()[:, 0].tolist())
        return build_owner(own, len(classes), len(self.spec.parties), self.spec.seed, unseen=unseen)

    def owner_guard(self, owner: LabelOwner) -> OwnerGuard:
        settings = settings_from(self.spec.privacy)
        ledger = Ledger(settings.epsilon, settings.delta, self.base_folder / "ledger.json")
        return OwnerGuard(settings, owner.labels, owner.classes, SecretNoise(self._secret()), ledger)

    def queries(self) -> int:
        """Number of rows to be predicted."""
        if self.spec.method == probe.Probe.name:
            return 1
        if not self.own_data:
            return len(self._demo().labels.query)
        found = self.alignments()[1].load(QUERY)
        return 0 if found is None else len(found.rows)

    def write_predictions(self, probabilities: Tensor) -> None:
        """predictions.safetensors, and for own files predictions.csv with the ids."""
        from safetensors.torch import save

        data = save({"probabilities": probabilities.detach().cpu().contiguous()})
        durable.write(self.folder / "predictions.safetensors", data)
        if self.own_data:
            durable.write(self.folder / "predictions.csv", self._csv(probabilities).encode())

    def _csv(self, probabilities: Tensor) -> str:
        file = self.file()
        ids = file.ids(file.predict if self.spec.task == "predict" else None)
        at, classes = dict(zip(ids.rows.tolist(), ids.values, strict=True)), file.labels()[1]
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        out.writerow(["id", "class", *(f"p_{name}" for name in classes)])
        for row, p in zip(self.alignments()[1].rows(QUERY, ids).tolist(), probabilities.tolist(), strict=True):
            out.writerow([at[row], classes[max(range(len(p)), key=p.__getitem__)], *(f"{v:.6f}" for v in p)])
        return text.getvalue()

    def _demo(self) -> Any:
        """A public data set cut into parties, for trying a deployment out: every site takes its own part only."""
        from protoevfl.bench.run import RunConfig, prepare

        facts = {**self.config["demo"], "parties": len(self.spec.parties), "method": self.spec.method}
        try:
            return prepare(RunConfig(**facts, preset=self.spec.preset), self.spec.seed, "cpu")
        except TypeError as error:
            raise UserError(f"party.toml: [demo] {error}") from None
