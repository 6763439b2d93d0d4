"""The protocol: maximum of means, paired advantage, a canary that carries no class structure."""

import torch

from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.policy import PrivacySettings
from protoevfl.privacy.protocol import investigate, malicious, shuffled

from .world import CLASSES, WIDTH, cases


def test_the_worst_attack_is_the_largest_mean_and_its_advantage_is_paired() -> None:
    finding = investigate(cases(PrivacySettings(), 3), "passive", 1)
    talking = [line for line in finding.lines if line.communicates]
    assert finding.worst.accuracy == max(line.accuracy for line in talking)
    assert finding.yardstick.accuracy == max(
        line.accuracy for line in finding.lines if not line.communicates
    )
    gaps = [a - b for a, b in zip(finding.worst.by_seed, finding.yardstick.by_seed, strict=True)]
    assert abs(finding.advantage - sum(gaps) / 3) < 1e-12
    assert abs(finding.chance - 1 / CLASSES) < 1e-12


def test_without_messages_there_is_nothing_to_gain() -> None:
    finding = investigate(cases(PrivacySettings(), 2, rounds=0), "passive", 0)
    assert finding.advantage == 0.0


def test_malicious_party_is_exact_against_an_undefended_owner() -> None:
    settings = PrivacySettings()
    attack = malicious(settings, WIDTH, 5, SeededNoise)
    assert investigate(cases(settings, 2), "malicious", 0, attack).worst.accuracy == 1.0


def test_shuffled_labels_keep_their_counts() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    mixed = shuffled(labels, 0)
    assert mixed.bincount().tolist() == [90, 10]
    assert not torch.equal(mixed, labels)
