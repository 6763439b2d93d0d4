"""Proto-EVFL: class prototypes go down, embeddings and class rates come up, no gradient ever
crosses.

    round 0   every party trains its extractor on its own rows (no bytes) and uploads embeddings
              of the aligned rows
    round t   owner -> party m: prototypes mu^m and the global prior
              party m: prior by EM over its pool, mixed with the global one; tau epochs of the
              dual transport cost on its own rows, self-supervision kept on; uploads new
              embeddings and its prior
              owner: prototypes and global prior updated
    unseen    a party describes the part of its pool that no aligned row covers (a mixture, no rows)
    at last   inner layers of the aligned rows cross once, if they are sent at all; the owner
              trains adaptors, gate and head, with synthetic rows for unseen and rare classes

`rounds.count = 0` is the one-way mode: nothing derived from labels ever leaves the owner.
docs/methods/proto_evfl.md gives every field, its reason and its ablation.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protoevfl import distributed
from protoevfl.core import metrics, prototypes, transport
from protoevfl.errors import UserError
from protoevfl.federation.owner import FEW, LabelOwner
from protoevfl.federation.party import Cohort
from protoevfl.head import (
    Drawn,
    HeadNet,
    HeadSettings,
    HeadTask,
    probabilities,
    train_head,
)
from protoevfl.messages import (
    Describe,
    Embed,
    Embeddings,
    Learn,
    Learned,
    Message,
    MessageError,
    OpenedSums,
    OpenLabels,
    OwnFeatures,
    SealedLabels,
    SealedSums,
    SendFeatures,
    Statistics,
    WarmUp,
    values,
)
from protoevfl.method import PREDICTION, Asking, Exchanges, Report, Talk
from protoevfl.methods import rounds as party_rounds
from protoevfl.methods import sealed
from protoevfl.methods import unseen as unseen_classes
from protoevfl.methods.batch import (
    Batch,
    batch_of,
    guess_unseen,
    learnt_before,
    one_class_more,
    predict_batch,
    predict_by_earlier_batch,
)
from protoevfl.methods.guesses import Found, evidence
from protoevfl.methods.joint import class_shift, log_rates, predict_joint
from protoevfl.methods.own_model import OwnModelSettings, has_own_model, train_own_model
from protoevfl.methods.sealed import PartyView
from protoevfl.methods.sealed_grain import SealedSettings
from protoevfl.methods.settings import RoundSettings
from protoevfl.methods.stacking import predict_stacked
from protoevfl.methods.table_features import learn_features, table_features
from protoevfl.methods.unseen import UnseenSettings
from protoevfl.methods.warmup import WarmUpSettings, warm_up, whole_rows
from protoevfl.models import embed, extractor
from protoevfl.privacy.levels import check_level, few_numbers, learn_few


@dataclass(frozen=True)
class ProtoEVFL:
    """Fields are the method's settings; presets live in
    protoevfl/settings/presets/proto_evfl.json."""

    name: ClassVar[str] = "proto_evfl"
    uses_every_label: ClassVar[bool] = True
    warm: WarmUpSettings = field(default_factory=WarmUpSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
    unseen: UnseenSettings = field(default_factory=UnseenSettings)
    own: OwnModelSettings = field(default_factory=OwnModelSettings)
    sealed: SealedSettings = field(default_factory=SealedSettings)
    layers: tuple[str, ...] = ("output",)  # which representations are sent
    columns: str = "open"  # how much a party sends of a shared row: open, few or sealed
    few: int = 1  # numbers per row and party at the level "few"
    width: int = 84  # of an extractor's output
    norm: bool = True  # batch-norm in the extractor
    table: str = "skip"  # extractor of tables: skip or mlp5
    # train the head in every round, as the paper has it, instead of once at the end
    head_each_round: bool = False

    def __post_init__(self) -> None:
        check_level(self.columns)
        if self.few < 1:
            raise UserError(f"proto_evfl.few must be at least 1, not {self.few}")

    @property
    def has_rounds(self) -> bool:
        """Whether prototypes go down; few numbers of a row say too little to learn from them."""
        return self.rounds.count > 0 and self.columns == "open"

    @property
    def exchanges(self) -> Exchanges:
        """Prototypes go down only where there are rounds; `Describe` is asked where a class lacks
        labels, and `SendFeatures` instead of `WarmUp` where the parties hold tables and the active
        party knows all its labels."""
        if self.columns == "sealed":
            return ((SealedLabels, SealedSums), (OpenedSums, Embeddings), *PREDICTION)
        starts: Exchanges = ((WarmUp, Embeddings), (SendFeatures, Embeddings))
        learning: Exchanges = ((Learn, Learned),) if self.has_rounds else ()
        describing: Exchanges = ((Describe, Statistics),) if self.unseen.slot else ()
        return (*starts, *learning, *PREDICTION, *describing)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return extractor(shape, keys, norm=self.norm, table=self.table, width=self.width)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        if self.columns == "sealed":
            return self.answer_sealed(cohort, request)
        match request:
            case WarmUp():
                if self.warm.epochs and not self.without_network(cohort):
                    warm_up(cohort, self.warm)
                # inner layers cross once, at the end
                wanted = ("output",) if self.has_rounds else self.layers
                return Embeddings(self.embed(cohort, cohort.rows.aligned, wanted))
            case SendFeatures():
                if cohort.rows.spans is None:
                    raise UserError(
                        "features were asked for, but these rows are images: they are never sent "
                        "as such"
                    )
                if self.columns == "open":
                    learnt = learn_features(whole_rows(cohort), cohort.rows.numbers)
                    cohort.memory |= learnt
                return Embeddings(self.embed(cohort, cohort.rows.aligned))
            case Learn():
                return self.learn(cohort, request)
            case Describe(groups=groups):
                pool, aligned = (
                    self.embed(cohort, cohort.rows.pool),
                    self.embed(cohort, cohort.rows.aligned),
                )
                return unseen_classes.describe(cohort, pool, aligned, groups, self.unseen)
            case Embed(rows=which):
                return Embeddings(self.embed(cohort, getattr(cohort.rows, which)))
        raise NotImplementedError(type(request).__name__)

    def answer_sealed(self, cohort: Cohort, request: Message) -> Message:
        """The sealed level: nothing but masked sums and audited scores leaves, whatever is asked."""
        match request:
            case OwnFeatures():
                self.prepare_features(cohort)
                cohort.memory["open"] = torch.ones(cohort.size)
                return Embeddings(self.embed(cohort, cohort.rows.aligned))
            case SealedLabels():
                self.prepare_features(cohort)
                return sealed.sum_under_encryption(self.view(cohort), request)
            case OpenLabels():
                self.prepare_features(cohort)
                view = self.view(cohort)
                sealed.learn_plain(view, request, self.sealed)
                return Embeddings(sealed.shared_scores(view))
            case OpenedSums():
                view = self.view(cohort)
                sealed.learn_opened(view, request, self.sealed)
                return Embeddings(sealed.shared_scores(view))
            case Embed(rows="query"):
                rows = cohort.rows.query
                if "open" in cohort.memory:
                    return Embeddings(self.embed(cohort, rows))
                if not sealed.has_scores(cohort):  # nothing was learnt: nothing to say
                    return Embeddings(torch.zeros(*rows.shape[:2], 1, device=rows.device))
                return Embeddings(sealed.new_scores(cohort, self.embed(cohort, rows)))
        raise MessageError(f"{type(request).__name__} is not answered at the sealed level")

    def prepare_features(self, cohort: Cohort) -> None:
        """What scores are made of: bins of a table's columns, an image's embedding after warm-up."""
        if cohort.rows.spans is not None:
            cohort.memory |= learn_features(whole_rows(cohort), cohort.rows.numbers)
        elif self.warm.epochs:
            warm_up(cohort, self.warm)

    def view(self, cohort: Cohort) -> PartyView:
        rows = whole_rows(cohort)
        further = cohort.rows.further
        shared = [cohort.rows.aligned] + ([] if further is None else [further])
        features = self.embed(cohort, torch.cat(shared, 1))
        return PartyView(cohort, rows, self.embed(cohort, rows), features, self.blocks_of(cohort))

    def blocks_of(self, cohort: Cohort) -> tuple[tuple[int, int], ...]:
        """Where each layer of an image's features lies, then all of them; () for tables."""
        if cohort.rows.spans is not None or len(self.layers) == 1:
            return ()
        one = cohort.rows.aligned[:, :1]
        ends = [0]
        for layer in self.layers:
            ends.append(ends[-1] + embed(cohort.net, one, (layer,)).shape[-1])
        return (*pairwise(ends), (0, ends[-1]))

    def embed(self, cohort: Cohort, rows: Tensor, layers: tuple[str, ...] | None = None) -> Tensor:
        """What leaves of these rows: features, a few numbers, or layers side by side (all that are
        sent, unless told)."""
        memory = cohort.memory
        if "edges" in memory:  # features were asked for
            return table_features(rows, cohort.rows.numbers, memory["edges"], memory["centre"])
        if self.columns != "few":  # at the sealed level scores are made of it, and it stays
            return self.embed_layers(cohort, rows, layers)

        def whole(rows: Tensor) -> Tensor:
            return rows if self.without_network(cohort) else self.embed_layers(cohort, rows)

        if "few.basis" not in memory:
            memory |= learn_few(whole(whole_rows(cohort)), self.few)
        return few_numbers(whole(rows), memory["few.centre"], memory["few.basis"])

    def without_network(self, cohort: Cohort) -> bool:
        """Whether a party's numbers come from its encoded columns: few numbers of a table."""
        return self.columns == "few" and cohort.rows.spans is not None

    def embed_layers(
        self, cohort: Cohort, rows: Tensor, layers: tuple[str, ...] | None = None
    ) -> Tensor:
        """Layers of the network side by side; several are standardised by the party's own pool."""
        f = embed(cohort.net, rows, layers or self.layers)
        if (layers or self.layers) == ("output",):
            return f
        if "mean" not in cohort.memory:
            mean, spread = distributed.moments(
                cohort.rows.pool, lambda own: embed(cohort.net, own, self.layers)
            )
            cohort.memory |= {"mean": mean, "spread": spread + 0.05 * spread.mean(-1, keepdim=True)}
        return (f - cohort.memory["mean"]) / cohort.memory["spread"]

    def learn(self, cohort: Cohort, request: Learn) -> Learned:
        """One round: local prior, then transport on the party's own rows; the reply holds the new
        embeddings."""
        mu, shown = request.prototypes, request.present
        prior = party_rounds.local_prior(cohort, mu, shown, request.prior, self.rounds)
        if self.rounds.learning:
            party_rounds.learn(cohort, mu, shown, prior, request.round, self.rounds, self.warm)
            cohort.memory.pop("mean", None)  # of the old extractor
        return Learned(self.embed(cohort, cohort.rows.aligned, ("output",)), prior)

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        owner.cache.clear()  # models of an earlier training
        if owner.own is not None:
            train_own_model(owner, self.own)
            yield Report("own model", 1, 1)
        if self.columns == "sealed":
            yield from self.train_sealed(owner)
            return
        linear = owner.own is not None and owner.own.rows.dim() == 2 and not self.lacking(owner)
        if linear:
            owner.memory["linear"] = torch.ones((), device=owner.device)
        replies = yield {m: SendFeatures() if linear else WarmUp() for m in owner.parties}
        f = self.blocks(owner, replies)  # (M, N, d)
        warm = set(replies)
        yield Report("warm-up", 1, 1)
        mu, counts = self.means(owner, f)
        prior = torch.full((owner.classes,), 1 / owner.classes, device=owner.device)
        if self.has_rounds and not linear:
            f, mu, counts, prior, warm = yield from self.learning(owner, f, mu, counts, prior, warm)
            if self.layers != ("output",):
                replies = yield {m: Embed("aligned") for m in owner.parties}
                f = self.blocks(owner, replies)  # the layers of before would not fit these
                warm = set(replies)
        owner.memory |= {
            "prototypes": mu,
            "shown": (counts > 0).float(),
            "prior": prior,
            "embeddings": f,
            "usable": torch.tensor([m in warm for m in owner.parties], device=owner.device),
        }
        if owner.further is not None:
            asked = [m for m in owner.parties if bool(owner.further.shared[m].any())]
            replies = yield {m: Embed("further") for m in asked}
            owner.memory |= {
                "further": self.further_blocks(owner, replies, f.shape[-1]),
                "further.labels": owner.further.labels,
                "further.shared": owner.further.shared,
            }
            yield Report("further rows", 1, 1)
        drawn = yield from self.described(owner, f, mu)
        if not (self.head_each_round or linear):
            keys = owner.keys("head", self.head.members)
            owner.head = yield HeadTask(keys, f, owner.labels, owner.classes, self.head, drawn)
        yield Report("head", 1, 1)

    def train_sealed(self, owner: LabelOwner) -> Talk:
        """Scores of the other parties beside the active party's own model, or beside its features
        where it has no labels but those of the shared rows."""
        if owner.unseen or owner.open:
            raise UserError(
                "a class without any label needs to see rows of the other parties: use the open "
                "level (preset default) for it, or leave the class out"
            )
        scores = yield from sealed.ask_for_scores(owner)
        if not has_own_model(owner):
            replies = yield {0: OwnFeatures()}
            scores[0] = values(replies[0]).to(owner.device)
        if not scores:
            raise UserError("no other party sent scores: there is nothing to join")
        width = max(sent.shape[1] for sent in scores.values())
        count = len(owner.labels)
        blocks = torch.zeros(len(owner.parties), count, width, device=owner.device)
        for m, sent in scores.items():
            blocks[m, :, : sent.shape[1]] = sent[:count]
        usable = [m in scores or (m == 0 and has_own_model(owner)) for m in owner.parties]
        owner.memory |= {
            "linear": torch.ones((), device=owner.device),
            "scores": torch.ones((), device=owner.device),
            "embeddings": blocks,
            "usable": torch.tensor(usable, device=owner.device),
        }
        if owner.further is not None:
            shared = owner.further.shared
            further = torch.zeros(*shared.shape, width, device=owner.device)
            for m, sent in scores.items():
                further[m, shared[m], : sent.shape[1]] = sent[count:]
            owner.memory |= {
                "further": further,
                "further.labels": owner.further.labels,
                "further.shared": shared,
            }
        yield Report("joint model", 1, 1)

    def learning(
        self,
        owner: LabelOwner,
        f: Tensor,
        mu: Tensor,
        counts: Tensor,
        prior: Tensor,
        warm: set[int],
    ) -> Generator[Any, Any, tuple[Tensor, Tensor, Tensor, Tensor, set[int]]]:
        """The rounds: prototypes go down, new embeddings and class rates come up, prototypes and
        prior move."""
        best = -1.0
        stale = 0
        peak = self.ranks(f)
        for t in range(self.rounds.count):
            shown = (counts >= self.rounds.least_rows).float()  # (M, Z)
            ask = {m: Learn(t, mu[i], shown[i], prior) for i, m in enumerate(owner.parties)}
            # a party that is back after an absence makes up for its warm-up first
            replies = yield {m: ask[m] if m in warm else WarmUp() for m in owner.parties}
            f = self.blocks(owner, replies, f)
            warm = warm | set(replies)
            learned = {m: r for m, r in replies.items() if isinstance(r, Learned)}
            peak = self.guard(owner, f, mu, shown, peak, list(learned))
            figures = self.fit_head(owner, f) if self.head_each_round else {}
            means, counts = self.means(owner, f)
            if self.rounds.update != "none":
                mu = prototypes.update(mu, means, counts, self.rounds.rho, self.rounds.update)  # type: ignore[arg-type]
            if learned:  # nobody learned where all who answered were back for their warm-up
                prior = torch.stack([r.prior for r in learned.values()]).mean(0).to(owner.device)
            held = self.held_out(owner, f)
            figures = {"prior": prior, "held_out": held, **figures}
            yield Report("rounds", t + 1, self.rounds.count, figures)
            stale = 0 if held > best else stale + 1
            best = max(held, best)
            if self.rounds.patience and stale >= self.rounds.patience:
                break
        return f, mu, counts, prior, warm

    def described(
        self, owner: LabelOwner, f: Tensor, mu: Tensor
    ) -> Generator[Any, Any, Sequence[Drawn]]:
        """Where a class lacks labels: rows to draw for it, from the parties' statistics of
        uncovered rows."""
        if not self.lacking(owner):
            return []
        groups = max(len(owner.unseen), int(owner.open))
        replies = yield {m: Describe(groups) for m in owner.parties}
        statistics = [r for r in replies.values() if isinstance(r, Statistics)]
        owner.memory["strength"] = torch.stack([s.reliability.amax() for s in statistics])
        drawn: Sequence[Drawn] = []
        # a lost party has none: the head does without drawn rows
        if len(statistics) == len(owner.parties):
            drawn = unseen_classes.synthetic(owner, statistics, f, mu.shape[-1])
        yield Report("statistics", 1, 1, {"strength": owner.memory["strength"]})
        return drawn

    def further_blocks(
        self, owner: LabelOwner, replies: Mapping[int, Message], width: int
    ) -> Tensor:
        """Embeddings (M, F, width) of the further shared rows; zeros where a party has not the
        row."""
        assert owner.further is not None
        shared = owner.further.shared
        blocks = torch.zeros(*shared.shape, width, device=owner.device)
        for m, reply in replies.items():
            sent = values(reply).to(owner.device)
            blocks[m, shared[m]] = nn.functional.pad(sent, (0, width - sent.shape[-1]))
        return blocks

    def lacking(self, owner: LabelOwner) -> bool:
        """Does a class lack labels, or may one, and is something to be done about it?

        A class with few labels among the shared rows lacks none where the active party's other rows
        show it.
        """
        few = {*owner.unseen, *owner.rare}
        if owner.own is not None:
            known = owner.own.labels[owner.own.labels >= 0]
            few -= set((torch.bincount(known) >= FEW).nonzero()[:, 0].tolist())
        return self.unseen.slot and bool(few or owner.open)

    def blocks(
        self, owner: LabelOwner, replies: Mapping[int, Message], before: Tensor | None = None
    ) -> Tensor:
        """Embeddings (M, N, d) of the parties; one that did not answer keeps its last ones, zeros
        where it has none."""
        width = max(values(r).shape[-1] for r in replies.values())
        last = (
            torch.zeros(len(owner.parties), len(owner.labels), width) if before is None else before
        )
        rows = []
        for i, m in enumerate(owner.parties):
            mine = (values(replies[m]) if m in replies else last[i]).to(owner.device)
            rows.append(nn.functional.pad(mine, (0, width - mine.shape[-1])))
        return torch.stack(rows)

    def means(self, owner: LabelOwner, f: Tensor) -> tuple[Tensor, Tensor]:
        """Class means (M, Z, width) of the outputs and class counts (M, Z)."""
        out = f[..., : self.output_width(f)]
        if self.rounds.adapted and isinstance(owner.head, HeadNet):
            out = owner.head.adapt(f[None]).mean(0).detach()[..., : self.output_width(f)]
        return prototypes.class_means(out, owner.labels.expand(len(f), -1), owner.classes)

    def output_width(self, f: Tensor) -> int:
        """The output comes first among the layers that are sent."""
        return min(self.width, f.shape[-1])

    def fit_head(self, owner: LabelOwner, f: Tensor) -> dict[str, Any]:
        """The paper's round: the head goes on from where it was; its loss and gradient norm are
        reported."""
        keys = owner.keys("head", self.head.members)
        before = owner.head if isinstance(owner.head, HeadNet) else None
        net = train_head(keys, f, owner.labels, owner.classes, self.head, start=before)
        owner.head = net
        logits = net(f.expand(len(keys), -1, -1, -1))  # (E, N, Z)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), owner.labels.repeat(len(keys)))
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        return {
            "loss": loss.detach(),
            "gradient_norm": torch.stack([g.norm() for g in gradients]).norm(),
        }

    def held_out(self, owner: LabelOwner, f: Tensor) -> float:
        """Accuracy of prototypes of one part of the aligned rows on the other part, mean over
        parties."""
        train, test = owner.holdout(self.rounds.holdout)
        if not len(test):
            return 0.0
        out = f[..., : self.output_width(f)]
        mu, counts = prototypes.class_means(
            out[:, train], owner.labels[train].expand(len(f), -1), owner.classes
        )
        scores = transport.cosine(out[:, test], mu) - 9.0 * (counts[:, None] == 0)
        return float((scores.argmax(-1) == owner.labels[test]).float().mean())

    def ranks(self, f: Tensor) -> Tensor:
        """Effective ranks (M,) of the outputs; zero where a value is not finite."""
        out = f[..., : self.output_width(f)]
        finite = out.isfinite().flatten(1).all(1)
        return metrics.effective_rank(torch.where(finite[:, None, None], out, 0.0))

    def guard(
        self,
        owner: LabelOwner,
        f: Tensor,
        mu: Tensor,
        shown: Tensor,
        peak: Tensor,
        learned: Sequence[int],
    ) -> Tensor:
        """The largest ranks (M,) so far. Stops where training made the embeddings of a party
        collapse: values that are not finite, or a rank that fell to one direction, or to one class
        for all rows. A party with one column never had a rank above two: only a fall counts.

        peak      (M,) the largest rank so far
        learned   parties that trained in this round
        """
        if not self.rounds.guard:
            return peak
        out = f[..., : mu.shape[-1]]
        ranks = self.ranks(f)
        guess = (transport.cosine(out, mu) - 9.0 * (shown[:, None] == 0)).argmax(-1)
        for i, m in enumerate(owner.parties):
            if m not in learned:
                continue
            one_class = shown[i].sum() > 1 and len(set(guess[i].tolist())) < 2
            # few rows alone may give one class at a healthy rank
            low = ranks[i] < 2 or (one_class and ranks[i] < 5)
            if (low and ranks[i] < peak[i] / 2) or not bool(out[i].isfinite().all()):
                raise UserError(
                    f"training with prototypes made the embeddings of {owner.name_of(m)} collapse "
                    f"(effective rank {float(ranks[i]):.1f}, before {float(peak[i]):.1f}); lower "
                    "rounds.weight or rounds.lr under [method.overrides], or leave these rounds out: "
                    'preset = "one_way" under [method]'
                )
        return torch.maximum(peak, ranks)

    # ------------------------------------------------------------ prediction

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        here = torch.tensor([m in replies for m in owner.parties], device=owner.device)
        # the head has never seen a party that was away at the end of training
        here &= owner.memory.get("usable", here)
        rows = len(values(next(iter(replies.values()))))
        width = owner.memory["embeddings"].shape[-1]
        f = torch.zeros(len(owner.parties), rows, width, device=owner.device)
        for i, m in enumerate(owner.parties):
            if m in replies:
                sent = values(replies[m])
                f[i, :, : sent.shape[-1]] = sent
        return self.decide(owner, f, here)

    def decide(self, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
        """Probabilities (n, Z) of query embeddings f (M, n, d); in open mode a last column for
        "none of these"."""
        many = f.shape[1] >= self.unseen.least_rows
        if "scores" in owner.memory and self.unseen.self_training and many:
            return self.decide_by_batch(owner, f, here)
        if "linear" in owner.memory:  # tables with every label: methods/joint.py
            return predict_joint(owner, f, here)
        if has_own_model(owner) and bool(here[0]) and not self.lacking(owner):
            shared = owner.memory["embeddings"]
            width = owner.memory["prototypes"].shape[-1]
            return predict_stacked(owner, shared, f, here, width, self.unseen)
        if not (many and self.unseen.batch):
            p = self.decide_one_by_one(owner, f, here)
            return nn.functional.pad(p, (0, 1)) if owner.open else p
        p = self.decide_together(owner, f, here)
        return nn.functional.pad(p, (0, owner.classes + int(owner.open) - p.shape[1]))

    def decide_together(self, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
        """Many rows, which say more together than one by one; with an open class list a last
        column where the open test found a class that nobody named."""
        aligned = owner.memory["embeddings"]
        width = owner.memory["prototypes"].shape[-1]
        if owner.open and bool(here.all()) and self.lacking(owner):
            another = one_class_more(owner)
            batch = batch_of(another, aligned, f, here, width, self.unseen)
            if (guess := self.something_unseen(another, batch)) is not None:
                return predict_batch(another, batch, here, self.unseen, guess)
        sought = owner if self.lacking(owner) else replace(owner, unseen=(), rare=())
        # with many labels the head is as good
        scarce = self.unseen.self_training and aligned.shape[1] <= self.unseen.batch_rows
        if not (sought.unseen or sought.rare or scarce):
            return self.decide_by_head(owner, f, here)
        batch = batch_of(sought, aligned, f, here, width, self.unseen)
        return predict_batch(sought, batch, here, self.unseen)

    def decide_one_by_one(self, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
        """Few rows: by what an earlier batch taught of classes without labels, else by the head."""
        sought = owner.unseen if self.lacking(owner) else ()
        if sought and self.unseen.batch and learnt_before(owner, here):
            width = owner.memory["prototypes"].shape[-1]
            return predict_by_earlier_batch(owner, f, here, width)
        return self.decide_by_head(owner, f, here)

    def decide_by_head(self, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
        """The heads' mean, brought back to natural class rates where training weighed classes the
        same: by the shift under which the shared rows have the rates of their labels. The log rates
        themselves would be too much, because mixup, noise and the mean over heads leave
        probabilities less sure than they should be."""
        assert isinstance(owner.head, HeadNet)
        p = probabilities(owner.head, f, here)
        if not self.head.balanced:
            return p
        key = ("rates", tuple(here.tolist()))
        if key not in owner.cache:
            shared = probabilities(owner.head, owner.memory["embeddings"], here)
            logits = shared.clamp(min=1e-12).log().double().cpu().numpy()
            rates = log_rates(owner.labels, owner.classes).exp().double().cpu().numpy()
            owner.cache[key] = torch.from_numpy(class_shift(logits, rates)).to(p)
        natural: Tensor = (p.clamp(min=1e-12).log() + owner.cache[key]).softmax(1)
        return natural

    def decide_by_batch(self, owner: LabelOwner, f: Tensor, here: Tensor) -> Tensor:
        """Images at the sealed level: scores in the place of embeddings, the batch teaches too."""
        shared = owner.memory["embeddings"]
        width = shared.shape[-1]
        if has_own_model(owner) and bool(here[0]):
            return predict_stacked(owner, shared, f, here, width, self.unseen)
        me = replace(owner, unseen=(), rare=())
        batch = batch_of(me, shared, f, here, width, self.unseen)
        return predict_batch(me, batch, here, self.unseen)

    def something_unseen(self, owner: LabelOwner, batch: Batch) -> Found | None:
        """The open test: the guess which rows of a batch are of a class nobody named, where there
        is evidence enough of one; `owner` has it as its only class without labels."""
        guess = guess_unseen(owner, batch)
        strength = evidence(owner, guess)
        fires = strength > self.unseen.open_bar
        owner.memory |= {"open_strength": strength, "open_fires": fires.float()}
        return guess if bool(fires) else None

    def alone(self, cohort: Cohort, mu: Tensor, shown: Tensor) -> Tensor:
        """Simulation only: classes (G, n) each party would give its own pool rows by its
        prototypes."""
        f = self.embed(cohort, cohort.rows.pool, ("output",))
        return party_rounds.pseudo_labels(f, mu, shown, self.rounds)
