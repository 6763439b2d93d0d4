"""What a method is: party work, owner work, and the talk between them as a generator that does no
input or output.

`train` yields requests for the parties and receives their replies, or yields a `Report` for whoever
watches. Who carries the requests (a loop in this process, a batched model on a GPU, NVFlare between
companies) is the engine's affair, so the same code runs everywhere:

    replies = yield {m: Learn(...) for m in owner.parties}

It may also yield a piece of the owner's own computing (`Work`) and receive its result, so that
several runs do it together.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor, nn

from protoevfl.messages import Embed, Embeddings, Message

if TYPE_CHECKING:
    from protoevfl.federation.owner import LabelOwner
    from protoevfl.federation.party import Cohort


@dataclass(frozen=True)
class Report:
    """Progress of a run: phase, step of steps, and figures worth recording."""

    phase: str
    step: int = 0
    steps: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PartyError:
    """In place of a reply: the party could not or would not answer."""

    party: int
    reason: str


class Work(ABC):
    """A piece of the owner's computing that the runs which advance together do at once."""

    @classmethod
    @abstractmethod
    def together(cls, works: "Sequence[Work]") -> list[Any]:
        """The results of works of this class, in their order."""


Exchanges = tuple[tuple[type[Message], type[Message]], ...]  # (request, reply) types
# what every method asks other parties for a prediction
PREDICTION: Exchanges = ((Embed, Embeddings),)
Requests = Mapping[int, Message]
Replies = Mapping[int, Message]
Talk = Generator[Requests | Report | Work, Any, None]
Asking = Generator[Requests | Report | Work, Any, Tensor]


class Method(Protocol):
    """A frozen dataclass; its fields are its hyper-parameters."""

    name: ClassVar[str]

    @property
    def exchanges(self) -> Exchanges:
        """The types of all that crosses a border while it trains and predicts; () where nothing
        does."""

    def party_net(self, shape: tuple[int, ...], keys: Tensor) -> nn.Module:
        """The network of G parties; every parameter and buffer has a leading axis G."""

    def answer(self, cohort: "Cohort", request: Message) -> Message:
        """The party side: stacked request in, stacked reply out. The only code that sees a party's
        rows."""

    def train(self, owner: "LabelOwner") -> Talk:
        """The owner side, top to bottom like the algorithm box of a paper."""

    def predict(self, owner: "LabelOwner", present: tuple[int, ...]) -> Asking:
        """Class probabilities (n_query, Z) from the parties present."""


def plain_figures(report: Report) -> dict[str, Any]:
    """A report's figures as JSON values."""
    return {
        name: value.detach().cpu().tolist() if isinstance(value, Tensor) else value
        for name, value in report.values.items()
    }
