"""The networks of FedHSSL: a cross-party and a local encoder a party, each with a projector and a
predictor.

The local encoder's last layers (its top: the linear layers of LeNet, the second layer of a table's
perceptron), its projector and its predictor have the same shape at every party and are averaged;
the bottom is private.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protoevfl.models import BatchNorm, Extractor, LeNet, Linear, extractor, rows_norm


class Perceptron(nn.Module):
    """Linear layers with batch-norm and ReLU between them; a projector also normalises its
    output."""

    def __init__(self, keys: Tensor, name: str, sizes: tuple[int, ...], last_norm: bool) -> None:
        super().__init__()
        pairs = list(zip(sizes, sizes[1:], strict=False))
        inner = len(pairs) - 1
        self.linears = nn.ModuleList(
            Linear(keys, f"{name}{n}", i, o, bias=n == inner and not last_norm)
            for n, (i, o) in enumerate(pairs)
        )
        self.norms = nn.ModuleList(
            BatchNorm(keys, o, affine=n < inner)
            for n, (_, o) in enumerate(pairs)
            if n < inner or last_norm
        )

    def forward(self, x: Tensor) -> Tensor:
        for n, linear in enumerate(self.linears):
            x = linear(x if n == 0 else F.relu(x))
            if n < len(self.norms):
                x = rows_norm(self.norms[n], x)
        return x


class Branch(nn.Module):
    """Encoder, 3-layer projector, 2-layer predictor: z = projector(encoder(x)), p =
    predictor(z)."""

    def __init__(self, shape: tuple[int, ...], keys: Tensor, width: int) -> None:
        super().__init__()
        self.encoder: Extractor = extractor(shape, keys)
        self.projector = Perceptron(
            keys, "projector", (self.encoder.width, width, width, width), True
        )
        self.predictor = Perceptron(keys, "predictor", (width, width // 2, width), False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.projector(self.encoder(x))
        return out

    def shareable(self) -> list[nn.Module]:
        """Top, projector and predictor."""
        names = ("fc1", "bn3", "fc2", "bn4") if isinstance(self.encoder, LeNet) else ("fc2", "bn2")
        return [
            *(self.encoder.get_submodule(name) for name in names),
            self.projector,
            self.predictor,
        ]


class Pair(nn.Module):
    """The mean of a cross-party and a local encoder: what is fine-tuned."""

    def __init__(self, cross: Extractor, local: Extractor) -> None:
        super().__init__()
        self.cross, self.local = cross, local

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = 0.5 * (self.cross(x) + self.local(x))
        return out


def vector(modules: list[nn.Module]) -> Tensor:
    """Weights and running figures of the modules as one vector a member (G, size)."""
    return torch.cat([t.flatten(1) for module in modules for t in module.state_dict().values()], 1)


@torch.no_grad()
def load_vector(modules: list[nn.Module], values: Tensor) -> None:
    """The inverse of `vector`, in place."""
    tensors = [t for module in modules for t in module.state_dict().values()]
    parts = torch.split(values, [t[0].numel() for t in tensors], 1)
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
