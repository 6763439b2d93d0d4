"""Which of this party's rows a reply is made of, entered in the ledger before it leaves."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from protoevfl.deploy.row_ledger import Keys, RowLedger
from protoevfl.messages import (
    Describe,
    Done,
    Embed,
    Embeddings,
    ForwardBatch,
    Learn,
    Learned,
    Message,
    MixedEmbeddings,
    OpenedSums,
    Parameters,
    PartialGradients,
    Project,
    Projections,
    Residuals,
    SealedSums,
    SendFeatures,
    Statistics,
    WarmUp,
)

# a reply of another type counts as "other", a request of another type as one for every row: a new
# message type is on the safe side until it has a line here
FORM: Mapping[type[Message], str] = {
    Embeddings: "embedding",
    Learned: "embedding",
    Projections: "embedding",
    MixedEmbeddings: "embedding",
    Statistics: "statistics",
    Parameters: "parameters",
}
ALIGNED = (WarmUp, SendFeatures, Learn, ForwardBatch, Project, PartialGradients, Residuals)
POOL = (Describe,)


@dataclass
class Account:
    """The rows of one run by their use, as keyed hashes of their ids, and the ledger they are
    entered in."""

    ledger: RowLedger
    run: str
    parts: Mapping[str, Keys]  # aligned, further, query, pool

    def enter(
        self,
        request: Message,
        reply: Message,
        name: str,
        features: bool = False,
        scores: bool = False,
    ) -> None:
        """Enter what this reply to this request is made of.

        name       of the round and its request, so that a repetition is entered once
        features   the reply holds columns themselves
        scores     the reply holds scores of the sealed level
        """
        if isinstance(reply, Done | SealedSums):  # masked sums are uniform: nothing of a row leaves
            return
        form = FORM.get(type(reply), "other")
        if isinstance(reply, Embeddings) and (features or scores):
            form = "features" if features else "score"
        self.ledger.left(self._rows(request), form, self.run, name)

    def _rows(self, request: Message) -> Keys:
        if isinstance(request, Embed):
            return self.parts[request.rows]
        if isinstance(request, ForwardBatch):
            rows: Keys = self.parts["aligned"][np.unique(request.rows.numpy())]
            return rows
        if isinstance(request, OpenedSums):
            return np.concatenate([self.parts["aligned"], self.parts["further"]])
        if isinstance(request, ALIGNED):
            return self.parts["aligned"]
        if isinstance(request, POOL):
            return self.parts["pool"]
        return np.concatenate(list(self.parts.values()))
