"""Privacy settings of a run: read from presets and overrides, applied at the border, recorded."""

from protoevfl.bench.run import RunConfig, run
from protoevfl.settings.method_choice import privacy_of

QUICK = {"warm.epochs": 1, "rounds.count": 1, "rounds.epochs": 1, "head.epochs": 1, "head.members": 1}


def test_overrides_win_over_the_preset() -> None:
    assert privacy_of("proto_evfl", "paper", "digits", {"privacy.clip": 1.0}).clip == 1.0
    assert privacy_of("vanilla", "default", "digits", {}).clip is None


def test_a_run_records_its_defences_and_what_they_spent() -> None:
    noisy = {**QUICK, "privacy.clip": 1.0, "privacy.embedding_noise": 0.1, "privacy.prototype_noise": 4.0}
    (record,) = run(RunConfig(dataset="digits", aligned=60, pool=60, overrides=noisy), [0], device="cpu")
    assert record["privacy"]["prototype_noise"] == 4.0
    assert record["epsilon"]
    (plain,) = run(
        RunConfig(dataset="digits", aligned=60, pool=60, preset="one_way", overrides=QUICK | {"rounds.count": 0}),
        [0],
        device="cpu",
    )
    assert not plain["epsilon"]


def test_pseudo_labels_are_made_with_the_prototypes_a_party_was_sent() -> None:
    """Not with the owner's exact ones: noise that drowns everything must show in what a party can do alone."""
    cell = {"dataset": "digits", "aligned": 100, "pool": 200}
    told = {}
    for sigma in (0.0, 1e6):
        noisy = {**QUICK, "warm.epochs": 3, "privacy.prototype_noise": sigma, "privacy.class_noise": 0.0}
        (record,) = run(RunConfig(**cell, overrides=noisy), [0], device="cpu")  # type: ignore[arg-type]
        rates = record["metrics"]["pseudo_label_accuracy"]
        told[sigma] = sum(rates[m] for m in "123") / 3
    assert told[0.0] > told[1e6] + 0.1
