"""Options that several commands have, and their values: lists of numbers, settings of methods."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from typer import Option

from protoevfl.errors import UserError

MOST = 10_000  # numbers in one list
DEVICES = ("auto", "cpu", "cuda")
DEVICE = Annotated[str, Option(help=", ".join(DEVICES))]
ALIGNED = Annotated[int, Option(help="Rows that all parties share, labelled.")]
PARTIES = Annotated[int, Option(help="2 to 8.")]
POOL = Annotated[int | None, Option(help="Unaligned rows of each party; default: the data set's.")]


def check_choice(value: str, known: Sequence[str], option: str) -> None:
    if value not in known:
        raise UserError(f"{option} is one of {', '.join(known)}, not '{value}'")


def check_device(device: str) -> None:
    check_choice(device, DEVICES, "--device")


def whole_numbers(text: str, option: str) -> list[int]:
    """Single numbers and ranges, separated by commas, without repetition.

    >>> whole_numbers("0-2,7", "--seeds")
    [0, 1, 2, 7]
    >>> whole_numbers("", "--classes")
    []
    """
    listed: dict[int, None] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise UserError(f"{option} takes numbers and ranges such as 0-4 or 0,2,7, not '{text}'")
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= MOST:
            raise UserError(f"{option}: '{part}' is empty or longer than {MOST:,}")
        listed |= dict.fromkeys(numbers)
    if not listed and option == "--seeds":
        raise UserError("--seeds needs at least one number, for example 0-4")
    return list(listed)


def settings_for(methods: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`name=value` for every method, `method:name=value` for one; values as in JSON, else text.

    >>> settings_for(["local", "vanilla"], ["epochs=30", "vanilla:lr=0.01"])
    {'local': {'epochs': 30}, 'vanilla': {'epochs': 30, 'lr': 0.01}}
    """
    if not methods:
        raise UserError("--methods needs at least one name, for example proto_evfl,vanilla")
    if len(set(methods)) < len(methods):
        raise UserError("--methods names a method twice")
    settings: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for text in given:
        left, equals, value = text.partition("=")
        method, colon, name = left.rpartition(":")
        if not (equals and name.strip()):
            raise UserError(f"--set takes name=value, for example head.epochs=50, not '{text}'")
        if colon and method not in settings:
            raise UserError(f"--set {text}: '{method}' is not among --methods {','.join(methods)}")
        for chosen in [method] if colon else methods:
            settings[chosen][name.strip()] = _value_of(value)
    return settings


def _value_of(text: str) -> Any:
    """A JSON value, or the text itself.

    >>> [_value_of(text) for text in ("0.5", "none", "true", "dual", '["output"]')]
    [0.5, None, True, 'dual', ['output']]
    """
    plain = {"none": "null", "true": "true", "false": "false"}.get(text.strip().lower(), text)
    try:
        return json.loads(plain)
    except ValueError:
        return text
