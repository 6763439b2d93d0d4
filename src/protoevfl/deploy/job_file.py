"""job.toml, what the active party proposes, read into a `JobSpec`."""

from pathlib import Path

from protoevfl.deploy.kit import Kit
from protoevfl.deploy.spec import JobSpec
from protoevfl.errors import UserError
from protoevfl.privacy.policy import split_overrides
from protoevfl.validation import checked, read_toml

TEMPLATE = """\
# A job as every party will be shown it; `protoevfl deploy submit job.toml --kit KIT`.
run = "credit-1"                # a new name for every new run
method = "proto_evfl"
preset = "default"
classes = 2
rounds = 50                     # most exchanges
on_party_loss = "wait"          # wait, skip or abort
deadline_s = 600                # for one answer
wait_s = 3600                   # for a lost party to come back

[settings]                      # changes to the preset, e.g. "head.epochs" = 50
[privacy]                       # changes to the preset's defences, e.g. epsilon = 4.0; see docs/privacy.md
"""


def read_job(path: Path, kit: Kit) -> JobSpec:
    """The specification in `path`; the parties are all of the kit's project unless the file names
    some."""
    spec = checked(JobSpec, {"parties": list(kit.identity.parties), **read_toml(path)}, str(path))
    try:
        return complete(spec)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def complete(spec: JobSpec) -> JobSpec:
    """The specification with all that the parties must be told: the types of its messages, the
    preset's defences.

    What job.toml says itself stays: [privacy] and "privacy.*" of [settings] come on top of the
    preset.
    """
    from protoevfl.deploy.message_types import message_types
    from protoevfl.deploy.probe import Probe
    from protoevfl.settings.presets import settings

    down, up = message_types(spec.method, spec.preset, spec.settings, spec.task)
    of_preset = {} if spec.method == Probe.name else settings(spec.method, spec.preset, "table")
    own, changed = split_overrides(spec.settings)
    told_to_parties = {
        "down": list(spec.down or down),
        "up": list(spec.up or up),
        "settings": own,
        "privacy": {**split_overrides(of_preset)[1], **changed, **spec.privacy},
    }
    return JobSpec.from_dict({**spec.to_dict(), **told_to_parties})
