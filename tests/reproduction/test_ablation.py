from protoevfl.reproduction.catalogue import EXPERIMENTS
from protoevfl.settings.presets import settings


def test_the_presets_that_are_ablated_have_rounds() -> None:
    """Without rounds the variants of ablation and selection would all be the same run."""
    for name in ("ablation", "selection", "pieces"):
        used = {c.config.preset for c in EXPERIMENTS[name].cells if c.config.method == "proto_evfl"}
        assert all(
            settings("proto_evfl", preset, "modelnet10").get("rounds.count", 0) > 0
            for preset in used
        )


def test_every_piece_is_one_change_of_its_group_s_default() -> None:
    """A line that changed two things would say nothing about either."""
    cells = {
        (c.tags["decides"], c.tags["piece"]): dict(c.config.overrides)
        for c in EXPERIMENTS["pieces"].cells
    }
    for (decides, piece), overrides in cells.items():
        base = cells[decides, "default"]
        assert base.items() <= overrides.items()
        assert len(overrides) - len(base) == (piece != "default")
