import pytest

from protoevfl.reproduction import claims
from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.reproduction.measure import Store
from tests.reproduction import fake


def _judged(store: Store) -> dict[str, str]:
    return {claim.text: verdict for claim, verdict, _ in claims.verdicts(store)}


def test_without_records_nothing_is_judged() -> None:
    verdicts = set(_judged(Store([])).values())
    assert verdicts == {claims.MISSING, claims.UNTESTABLE}


def test_fake_records_are_judged_as_they_were_made() -> None:
    records = [r for e in EXPERIMENTS.values() for r in fake.records(e.cells)]
    found = _judged(Store(records))
    assert found["Proto-EVFL is the most accurate method on images, normal setting"] == claims.YES
    assert (
        found["Its accuracy with 1000 aligned rows is within 1.2 points of the upper bound"]
        == claims.NO
    )
    assert found["The printed settings (preset `paper`) give the printed accuracy"] == claims.NO
    assert found["It recognises unseen classes"] == claims.YES
    assert found["It needs fewer bytes than SS-VFL and FedHSSL"] == claims.YES
    assert found["Label inference gets 8.89 %: prototypes do not leak labels"] == claims.NO
    assert found["The squared gradient norm falls as 1/sqrt(T)"] == claims.UNTESTABLE
    assert claims.MISSING not in found.values()


def test_a_claim_turns_when_the_numbers_turn() -> None:
    experiment = EXPERIMENTS["parties"]
    records = fake.records(experiment.cells)
    name = "It is ahead of FedHSSL with 6 and 8 parties"
    assert _judged(Store(records))[name] == claims.YES
    # the first cell of Proto-EVFL
    records[0]["metrics"]["accuracy"] = records[1]["metrics"]["accuracy"] = 0.1
    assert _judged(Store(records))[name] == claims.PARTLY
    for record in records:
        record["metrics"]["accuracy"] = 0.1 if record["method"] == "proto_evfl" else 0.9
    assert _judged(Store(records))[name] == claims.NO


def test_every_claim_names_an_experiment() -> None:
    assert {c.experiment for c in claims.CLAIMS} <= set(EXPERIMENTS)
    others = set(EXPERIMENTS) - {c.experiment for c in claims.CLAIMS}
    assert others == {
        "convergence",
        "pieces",
        "margins",
        "labels",
        "overlap",
    }  # a figure without numbers; what the paper does not have


def noisy(name: str, fall: float) -> Store:
    """Records of an experiment on noise: accuracy .9, by seed a point up or down, less `fall` with
    kappa 0.2."""
    records = []
    for cell in EXPERIMENTS[name].cells:
        for seed in range(5):
            record = fake.record(cell.config, seed)
            lost = fall if cell.tags["kappa"] == "0.2" else 0.0
            record["metrics"]["accuracy"] = 0.9 + 0.01 * (seed - 2) / 2 - lost
            records.append(record)
    return Store(records)


@pytest.mark.parametrize(
    ("name", "text", "paper"),
    [
        (
            "noise_representations",
            "Noise on representations costs accuracy",
            "(paper: 42.2 to 58.5)",
        ),
        ("noise_prototypes", "Noise on prototypes costs accuracy", "(paper: 9.5 to 20.4)"),
    ],
)
def test_verdict_and_figures_on_noise_agree(name: str, text: str, paper: str) -> None:
    """The paper's range is that of its own table; a cost beyond what the seeds vary by is a cost,
    however small."""
    for fall, verdict in ((0.045, claims.YES), (0.001, claims.NO), (-0.05, claims.NO)):
        judged = {claim.text: rest for claim, *rest in claims.verdicts(noisy(name, fall))}
        assert judged[text][0] == verdict
        assert f"costs {100 * fall:.1f} to" in judged[text][1]
        assert paper in judged[text][1]
