"""Proto-EVFL: class prototypes go down, embeddings and class rates come up, no gradient ever crosses.

    round 0   every party trains its extractor on its own rows (no bytes) and uploads embeddings of the aligned rows
    round t   owner -> party m: prototypes mu^m and the global prior
              party m: prior by EM over its pool, mixed with the global one; tau epochs of the dual transport cost
                       on its own rows, self-supervision kept on; uploads new embeddings and its prior
              owner: prototypes and global prior updated
    at last   owner trains adaptors, gate and head on the embeddings

`rounds = 0` is the one-way mode: nothing derived from labels ever leaves the owner. See docs/methods/proto_evfl.md for
every field, its reason and its ablation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from protoevfl.core import losses, priors, prototypes, transport
from protoevfl.core import random as rnd
from protoevfl.fit import fit
from protoevfl.head import HeadNet, HeadSettings, probabilities, train_head
from protoevfl.messages import Embed, Embeddings, Learn, Learned, Message, WarmUp, values
from protoevfl.method import Asking, Report, Talk
from protoevfl.methods.warmup import WarmUpSettings, gather, own_rows, two_views, warm_up
from protoevfl.models import embed, extractor, inputs
from protoevfl.owner import LabelOwner
from protoevfl.party import Cohort


@dataclass(frozen=True)
class ProtoEVFL:
    """Fields are the method's settings; presets live in protoevfl/presets."""

    name: ClassVar[str] = "proto_evfl"
    rounds: int = 0  # T
    warm: WarmUpSettings = field(default_factory=WarmUpSettings)
    layers: tuple[str, ...] = ("output",)  # which representations are sent
    norm: bool = True  # batch-norm in the extractor
    local_epochs: int = 3  # tau
    local_batch: int = 256
    local_lr: float = 5e-4  # eta
    local_decay: float = 1e-4  # phi, as weight decay
    optimizer: str = "adamw"
    temperature: float | None = 0.2  # of the plans; None is the raw inner product
    transport_weight: float = 0.1
    ssl_weight: float = 1.0
    selection: str = "dual"  # dual, single, cosine, ot, soft
    update: str = "ema"  # ema, paper, none
    rho: float = 0.5
    mixed_prior: bool = True
    prior_steps: int = 10
    prior_floor: float = 0.01
    prototype_learning: bool = True
    head: HeadSettings = field(default_factory=HeadSettings)

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        return extractor(shape, keys, norm=self.norm)

    # ------------------------------------------------------------ party side

    def answer(self, cohort: Cohort, request: Message) -> Message:
        match request:
            case WarmUp():
                if self.warm.epochs:
                    warm_up(cohort, self.warm)
                return Embeddings(self.embed(cohort, cohort.rows.aligned))
            case Learn():
                return self.learn(cohort, request)
            case Embed(rows=which):
                return Embeddings(self.embed(cohort, getattr(cohort.rows, which)))
        raise NotImplementedError(type(request).__name__)

    def embed(self, cohort: Cohort, rows: Tensor) -> Tensor:
        """The layers that are sent, side by side; inner layers are standardised by the party's own pool."""
        f = embed(cohort.net, rows, self.layers)
        if self.layers == ("output",):
            return f
        if "mean" not in cohort.memory:
            own = embed(cohort.net, cohort.rows.pool, self.layers)
            spread = own.std(1, keepdim=True)
            cohort.memory |= {"mean": own.mean(1, keepdim=True), "spread": spread + 0.05 * spread.mean(-1, keepdim=True)}
        return (f - cohort.memory["mean"]) / cohort.memory["spread"]

    def learn(self, cohort: Cohort, request: Learn) -> Learned:
        """One round at the party: prior by EM, then tau epochs of transport (and self-supervision) on its own rows."""
        mu = request.prototypes[..., : cohort.net.width]  # transport acts on the output
        prior = self.local_prior(cohort, mu, request.prior)  # (G, Z)
        if self.prototype_learning:
            self.transport(cohort, mu, prior, request.round)
            cohort.memory.pop("mean", None)  # of the old extractor
        return Learned(self.embed(cohort, cohort.rows.aligned), prior)

    @torch.no_grad()
    def local_prior(self, cohort: Cohort, mu: Tensor, common: Tensor) -> Tensor:
        f = embed(cohort.net, cohort.rows.pool)  # (G, n, d)
        scores = transport.similarity(f, mu, self.temperature)
        prior = priors.estimate(scores, self.prior_steps, self.prior_floor)
        if self.mixed_prior:
            gamma = priors.mixing_ratio(priors.pseudo_label_counts(scores, prior))
            prior = priors.mix(prior, common, gamma)
        return prior

    def transport(self, cohort: Cohort, mu: Tensor, prior: Tensor, round_: int) -> Tensor:
        rows, keys = own_rows(cohort), rnd.derive(cohort.keys, "round", round_)
        views = two_views(cohort, rows, keys, self.warm)

        def loss(index: Tensor, step: Tensor) -> Tensor:
            if not self.ssl_weight:
                f = cohort.net(inputs(gather(rows, index)))
                return self.plan_cost(f, mu, prior)
            f1, f2 = cohort.net(views(index, step)).chunk(2, 1)
            moved = 0.5 * (self.plan_cost(f1, mu, prior) + self.plan_cost(f2, mu, prior))
            return self.transport_weight * moved + self.ssl_weight * losses.nt_xent(f1, f2, self.warm.temperature)

        return fit(
            loss, cohort.net.parameters(), keys, rows.shape[1], epochs=self.local_epochs, batch=self.local_batch,
            lr=self.local_lr, weight_decay=self.local_decay, optimizer=self.optimizer, decay=False,
            purpose="transport", graph=self.selection != "ot",
        )  # fmt: skip

    def plan_cost(self, f: Tensor, mu: Tensor, prior: Tensor) -> Tensor:
        """The loss of one batch (G,), by selection strategy."""
        if self.selection in ("dual", "single"):
            way: transport.Direction = "dual" if self.selection == "dual" else "forward"
            return transport.dual_cost(f, mu, prior, self.temperature, direction=way)
        plan = {
            "soft": lambda: transport.select_soft(f, mu, prior, self.temperature),
            "cosine": lambda: transport.select_cosine(f, mu),
            "ot": lambda: transport.select_entropic(f, mu, prior),
        }[self.selection]()
        return transport.planned_cost(plan, transport.cost(f, mu))

    # ------------------------------------------------------------ owner side

    def train(self, owner: LabelOwner) -> Talk:
        replies = yield {m: WarmUp() for m in owner.parties}
        f = self.blocks(owner, replies)  # (M, N, d)
        yield Report("warm-up", 1, 1)
        means, counts = prototypes.class_means(f, owner.labels.expand(len(f), -1), owner.classes)
        mu, prior = means, owner.memory.setdefault("prior", torch.full((owner.classes,), 1 / owner.classes))
        prior = prior.to(owner.device)
        for t in range(self.rounds):
            shown = (counts > 0).float()
            replies = yield {m: Learn(t, mu[i], shown[i], prior) for i, m in enumerate(owner.parties)}
            f = self.blocks(owner, replies)
            means, counts = prototypes.class_means(f, owner.labels.expand(len(f), -1), owner.classes)
            if self.update != "none":
                mu = prototypes.update(mu, means, counts, self.rho, self.update)  # type: ignore[arg-type]
            local = [r.prior for r in replies.values() if isinstance(r, Learned)]
            prior = torch.stack(local).mean(0).to(owner.device)
            yield Report("rounds", t + 1, self.rounds, {"prior": prior})
        owner.memory |= {"prototypes": mu, "prior": prior}
        owner.head = train_head(owner.keys("head", self.head.members), f, owner.labels, owner.classes, self.head)
        yield Report("head", 1, 1)

    def blocks(self, owner: LabelOwner, replies: Mapping[int, Message]) -> Tensor:
        """The parties' embeddings (M, N, d) in the order of owner.parties."""
        return torch.stack([values(replies[m]) for m in owner.parties]).to(owner.device)

    def predict(self, owner: LabelOwner, present: tuple[int, ...]) -> Asking:
        replies = yield {m: Embed("query") for m in owner.parties if m in present}
        some = values(next(iter(replies.values())))
        here = torch.tensor([m in replies for m in owner.parties], device=owner.device)
        f = torch.stack([values(replies[m]) if m in replies else torch.zeros_like(some) for m in owner.parties])
        assert isinstance(owner.head, HeadNet)
        return probabilities(owner.head, f.to(owner.device), here)
