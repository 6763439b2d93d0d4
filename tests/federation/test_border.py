"""Privacy settings of a run: read from presets and overrides, applied at the border, recorded."""

import pytest
import torch
from torch import Tensor

from protoevfl.bench.run import run
from protoevfl.bench.world import RunConfig
from protoevfl.codec import payload_bytes
from protoevfl.federation.federation import SimulatedRun, simulate
from protoevfl.federation.party import Cohort
from protoevfl.messages import Embeddings, Learn, Learned
from protoevfl.methods import answers
from protoevfl.methods.proto_evfl import ProtoEVFL
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.settings.method_choice import privacy_of
from tests.tiny import image_table, owner, quick

QUICK = {
    "warm.epochs": 1,
    "rounds.count": 1,
    "rounds.epochs": 1,
    "head.epochs": 1,
    "head.members": 1,
}


def test_overrides_win_over_the_preset() -> None:
    assert privacy_of("proto_evfl", "paper", "digits", {"privacy.clip": 1.0}).clip == 1.0
    assert privacy_of("vanilla", "default", "digits", {}).clip is None


def test_a_run_records_its_defences_and_what_they_spent() -> None:
    noisy = {
        **QUICK,
        "privacy.clip": 1.0,
        "privacy.embedding_noise": 0.1,
        "privacy.prototype_noise": 4.0,
    }
    (record,) = run(
        RunConfig(dataset="digits", aligned=60, pool=60, overrides=noisy), [0], device="cpu"
    )
    assert record["privacy"]["prototype_noise"] == 4.0
    assert record["epsilon"]
    (plain,) = run(
        RunConfig(
            dataset="digits",
            aligned=60,
            pool=60,
            preset="one_way",
            overrides=QUICK | {"rounds.count": 0},
        ),
        [0],
        device="cpu",
    )
    assert not plain["epsilon"]


def test_pseudo_labels_are_made_with_the_prototypes_a_party_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not with the owner's exact ones, which only the active party knows: to the last bit what was
    in its message."""
    sent: list[Tensor] = []
    used: list[Tensor] = []
    learn, alone = answers.learn, ProtoEVFL.alone

    def learning(settings: ProtoEVFL, cohort: Cohort, request: Learn) -> Learned:
        sent.append(request.prototypes)
        return learn(settings, cohort, request)

    def naming(self: ProtoEVFL, cohort: Cohort, mu: Tensor, shown: Tensor) -> Tensor:
        used.append(mu)
        return alone(self, cohort, mu, shown)

    monkeypatch.setattr(answers, "learn", learning)
    monkeypatch.setattr(ProtoEVFL, "alone", naming)
    noisy = {**QUICK, "privacy.prototype_noise": 4.0, "privacy.class_noise": 0.0}
    run(
        RunConfig(dataset="digits", aligned=60, pool=60, overrides=noisy),
        [0],
        device="cpu",
        engine="loop",
    )
    assert len(sent) == len(used) == 4  # one round; the loop asks party after party
    assert [torch.equal(mu, message) for mu, message in zip(used, sent, strict=True)] == [
        False,
        True,
        True,
        True,
    ]


def test_messages_are_recorded_only_where_they_are_asked_for() -> None:
    method = quick("proto_evfl")
    kept = {}
    for record in (False, True):
        run_of_two = SimulatedRun([image_table(0, m) for m in (0, 1)], owner(0, 2), 0)
        federation = simulate(
            method, [run_of_two], PrivacySettings(clip=0.5), engine="loop", record=record
        )
        federation.train()
        kept[record] = federation.border.recorded
    assert kept[False] is None
    assert kept[True] is not None
    uploads = [reply for _, party, _, reply in kept[True].transcript if party == 1]
    assert uploads
    for reply in uploads:  # as the guard let it leave
        assert isinstance(reply, Embeddings | Learned)
        assert reply.values.norm(dim=1).max() < 0.5001
    counted = sum(payload_bytes(reply) for reply in uploads)
    assert counted == federation.traffic()["bytes"]["up"]
