"""A trained head as plain facts and tensors, and back; the one place that knows how heads are
built.

`HeadNet` is what nearly every method trains; FedCVT trains three of them. A head of another kind
cannot be kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor, nn

from protoevfl.errors import UserError
from protoevfl.head import HeadNet, HeadSettings, ThreeHeads


def pack(head: nn.Module | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """({kind, sizes, settings}, tensors); nothing where there is no head."""
    if head is None:
        return {}, {}
    if type(head) is HeadNet:
        facts = _sizes(head)
    elif type(head) is ThreeHeads:
        facts = {**_sizes(head.host), "members": len(head.guest.keys), "pairs": len(head.host.keys)}
        facts["pairs"] //= facts["members"]
    else:
        raise UserError(
            "this method leaves no head that can be kept; use proto_evfl or another federated "
            "method"
        )
    tensors = {name: t.detach().cpu().contiguous() for name, t in head.state_dict().items()}
    return {"kind": type(head).__name__, **facts}, tensors


def unpack(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module | None:
    """The head that `pack` took apart, ready to predict."""
    if not facts:
        return None
    known = {f.name for f in fields(HeadSettings)}
    settings = HeadSettings(
        **{name: value for name, value in facts["settings"].items() if name in known}
    )
    keys = torch.arange(facts["members"])  # used for random draws in training only
    head: nn.Module
    if facts["kind"] == "HeadNet":
        head = HeadNet(keys, facts["parties"], facts["width"], facts["classes"], settings)
    elif facts["kind"] == "ThreeHeads":
        head = ThreeHeads(keys, facts["pairs"], facts["width"], facts["classes"], settings)
    else:
        raise UserError(
            f"a head of the kind {facts['kind']} is not known to this version of protoevfl"
        )
    try:
        head.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise UserError(
            f"the kept head does not fit its description: {str(error).splitlines()[0]}"
        ) from None
    return head.eval()


def _sizes(head: HeadNet) -> dict[str, Any]:
    first, last = head.layers[0].weight, head.layers[-1].weight
    inputs, classes = int(first.shape[1]), int(last.shape[2])  # type: ignore[index]
    block = head.gate if head.gate is not None else head.adaptor
    # without gate and adaptor the blocks are one long input
    parties = 1 if block is None else int(block.shape[1])
    sizes = {
        "members": len(head.keys),
        "parties": parties,
        "width": inputs // parties,
        "classes": classes,
    }
    return {**sizes, "settings": asdict(head.settings)}
