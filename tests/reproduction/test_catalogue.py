import pytest

from protoevfl.errors import UserError
from protoevfl.methods import METHODS
from protoevfl.reproduction.catalogue import EXPERIMENTS, select
from protoevfl.settings.presets import build, presets

NAMES = [
    "accuracy_images",
    "accuracy_tables",
    "ablation",
    "selection",
    "rare_classes",
    "communication",
    "convergence",
    "rounds",
    "training_time",
    "parties",
    "label_inference",
    "noise_representations",
    "noise_prototypes",
    "imbalance",
    "gradient_norm",
    "pieces",
    "margins",
    "labels",
    "overlap",
]


def test_all_experiments_of_the_paper_are_listed() -> None:
    assert list(EXPERIMENTS) == NAMES
    assert [e.name for e in select("all")] == NAMES
    assert [e.name for e in select("rounds, ablation")] == ["rounds", "ablation"]
    with pytest.raises(UserError, match="there is no experiment 'accuracy'"):
        select("accuracy")


@pytest.mark.parametrize("name", NAMES)
def test_cells_have_their_own_place_and_known_parts(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for cells in (experiment.cells, experiment.quick):
        assert cells
        places = [
            tuple(
                c.tags.get(n, "")
                for n in (*experiment.rows, *experiment.columns, *experiment.reach, "length")
            )
            for c in cells
        ]
        assert len(places) == len(set(places)), [p for p in places if places.count(p) > 1][:3]
        for cell in cells:
            assert cell.config.method in METHODS or cell.config.method == "split"
            assert all(n in cell.tags for n in (*experiment.rows, *experiment.columns))


def _settings() -> list[tuple[str, str, tuple[tuple[str, object], ...]]]:
    cells = [
        c for e in EXPERIMENTS.values() for c in (*e.cells, *e.quick) if c.config.method != "split"
    ]
    own = {
        (
            c.config.method,
            c.config.preset,
            tuple((k, v) for k, v in c.config.overrides.items() if k[:8] != "privacy."),
        )
        for c in cells
    }
    return sorted(own, key=repr)


def test_every_cell_s_method_accepts_its_settings() -> None:
    for method, preset, overrides in _settings():
        # presets are data; one that is not there is reported when it is run
        if preset in presets(method):
            build(method, preset, "digits", dict(overrides))


def test_rare_classes_are_twenty_sets_zero_and_few() -> None:
    cells = EXPERIMENTS["rare_classes"].cells
    assert len({c.config.classes for c in cells}) == 20
    assert len(cells) == 20 * 2 * 2
    assert all(c.config.classes == tuple(map(int, c.tags["classes"].split())) for c in cells)


def test_quick_cells_are_small() -> None:
    for experiment in EXPERIMENTS.values():
        for cell in experiment.quick:
            assert cell.config.dataset in ("digits", "credit")
            assert cell.config.aligned <= 100
            assert all(
                v <= 8 for k, v in cell.config.overrides.items() if k.endswith(("epochs", "count"))
            )


def test_important_cells_come_first() -> None:
    first = [
        c
        for e in EXPERIMENTS.values()
        for c in e.cells
        if c.priority == 0 and c.config.method != "split"
    ]
    assert {c.config.method for c in first} == {
        "proto_evfl",
        "vanilla",
        "fedhssl",
        "ss_vfl_c",
        "local",
    }
    assert {(c.config.aligned, c.config.setting) for c in first} == {(200, "normal")}
