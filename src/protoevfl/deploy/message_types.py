"""What a job will send: the message types that its method declares (`Method.exchanges`)."""

from collections.abc import Mapping
from typing import Any

from protoevfl.deploy import probe
from protoevfl.errors import UserError
from protoevfl.messages import EmbedAt, Embeddings
from protoevfl.method import PREDICTION, Method
from protoevfl.methods import METHODS, method_class
from protoevfl.settings.presets import build

Names = tuple[str, ...]


def _exchanges(name: str) -> object:
    """The types a method declares, or the property that says them: something true where others are
    asked."""
    declaring: Any = method_class(name)
    return declaring.exchanges


def deployable() -> Names:
    """Names of the methods that ask other companies something."""
    return (probe.Probe.name, *(name for name in METHODS if _exchanges(name)))


def message_types(
    name: str,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    task: str = "train",
) -> tuple[Names, Names]:
    """Names of the types that go (down, up) in a job of this method, preset and settings."""
    if name not in deployable():
        raise UserError(
            f"method {name!r} cannot be run between companies; these can: {', '.join(deployable())}"
        )
    is_probe = name == probe.Probe.name
    given = settings or {}
    method: Method = probe.make(given) if is_probe else build(name, preset, "table", given)
    served = ((EmbedAt, Embeddings),)
    exchanges = {"predict": PREDICTION, "serve": served}.get(task, method.exchanges)
    down = dict.fromkeys(request.__name__ for request, _ in exchanges)
    up = dict.fromkeys(reply.__name__ for _, reply in exchanges)
    return tuple(down), tuple(up)
