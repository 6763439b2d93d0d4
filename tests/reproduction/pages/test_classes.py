"""Pictures by class: rare classes are marked, the fewest aligned rows are shown."""

from protoevfl.bench.world import RunConfig
from protoevfl.reproduction.pages import classes
from protoevfl.reproduction.spec import Cell
from tests.reproduction import fake


def pair(method: str, aligned: int = 200, **more: object) -> tuple[Cell, list[dict[str, object]]]:
    config = RunConfig(dataset="mine", method=method, aligned=aligned, **more)  # type: ignore[arg-type]
    tags = {"dataset": "mine", "method": method, "setting": config.setting}
    return Cell(tags, config), [fake.record(config, seed) for seed in (0, 1)]


def test_rare_classes_stand_on_a_shaded_ground() -> None:
    (plain,) = classes.recall([pair("vanilla")])
    (marked,) = classes.recall([pair("vanilla", setting="few_shot", classes=(3, 5))])
    assert len(marked.figure.axes[0].patches) - len(plain.figure.axes[0].patches) == 2


def test_every_method_has_its_line() -> None:
    (picture,) = classes.recall([pair("vanilla"), pair("proto_evfl")])
    assert len(picture.figure.axes[0].get_lines()) == 2


def test_the_main_method_with_the_fewest_rows_is_shown_else_whatever_there_is() -> None:
    shown = classes._main([pair("vanilla", 100), pair("proto_evfl", 600), pair("proto_evfl", 200)])
    assert [(c.config.method, c.config.aligned) for c, _ in shown] == [("proto_evfl", 200)]
    other = classes._main([pair("vanilla", 600), pair("local", 100)])
    assert [c.config.method for c, _ in other] == ["local"]


def test_nothing_recorded_is_no_picture() -> None:
    for draw in (classes.recall, classes.confusion, classes.gate, classes.priors, classes.pools):
        assert draw([]) == []
