"""job.toml, what the active party proposes, read into a `JobSpec`."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from protoevfl.deploy.kit import Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError

TEMPLATE = """\
# A job as every party will be shown it; `protoevfl deploy submit job.toml --kit KIT`.
run = "credit-1"                # a new name for every new run
method = "proto_evfl"
preset = "default"
classes = 2
seed = 0
rounds = 50                     # most exchanges
on_party_loss = "wait"          # wait, skip or abort
deadline_s = 600                # for one answer
wait_s = 3600                   # for a lost party to come back

[settings]                      # changes to the preset, e.g. "head.epochs" = 50
"""
WIRE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # method -> message types (down, up)
    "probe": (("Learn", "Embed"), ("Learned", "Embeddings")),
    "local": (("WarmUp", "Embed"), ("Embeddings",)),
    "proto_evfl": (("WarmUp", "Learn", "Describe", "Embed"), ("Embeddings", "Learned", "Statistics")),
    "vanilla": (("ForwardBatch", "BackwardBatch", "Embed"), ("Embeddings", "Done")),
}


def read_job(path: Path, kit: Kit) -> JobSpec:
    """The specification in `path`; the parties are all of the kit's project unless the file names some."""
    try:
        facts: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    unknown = sorted(set(facts) - {f.name for f in fields(JobSpec)})
    if unknown:
        raise UserError(f"{path}: unknown entry {unknown[0]!r}; known are {', '.join(f.name for f in fields(JobSpec))}")
    facts.setdefault("parties", list(kit.identity.parties))
    down, up = WIRE.get(facts.get("method", "proto_evfl"), ((), ()))
    if not down and "down" not in facts:
        raise UserError(f"{path}: say which message types {facts['method']} sends: down = [...], up = [...]")
    facts.setdefault("down", list(down))
    facts.setdefault("up", list(up))
    try:
        return JobSpec.from_dict(facts)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
