"""The border of a federation: guards on both sides, bytes counted, messages recorded where an audit
wants them.

    parties -> each party's guard -> [transcript] -> byte counter -> the label owner's guard ->
    method

A simulation has both guards in this process (`simulated_border`). Between companies each party
guards its own answers, and only the owner's guard stands here (`owner_border`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protoevfl.core import random as rnd
from protoevfl.federation.lockstep import Address, Engine
from protoevfl.federation.middleware import Defended, Leaving, Metered, Recorded
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Message
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, PrivacySettings


@dataclass
class Border:
    """What stands between the owners and the parties."""

    engine: Engine  # as the owners see it
    metered: Metered
    ledgers: Sequence[Ledger]  # one per run: what the defences spent
    recorded: Recorded | None = None  # every message that crossed, where it was asked for


def noise_of(seed: int) -> SeededNoise:
    """The simulated noise of a run; a deployment draws it from the operating system."""
    return SeededNoise(rnd.key(seed, "defence"))


def simulated_border(
    parties: Engine,
    owners: Sequence[LabelOwner],
    seeds: Sequence[int],
    privacy: PrivacySettings,
    record: bool = False,
) -> Border:
    """Both guards around `parties`; run r has the r-th owner and seed. `record` keeps every
    message."""
    ledgers = [Ledger(privacy.epsilon, privacy.delta) for _ in seeds]
    party_guards = {
        (run, m): PartyGuard(privacy, m, noise_of(seeds[run]), ledgers[run])
        for run, owner in enumerate(owners)
        for m in owner.parties[1:]
    }

    def up(address: Address, reply: Message) -> Message:
        return party_guards[address].up(reply) if address in party_guards else reply

    leaving = Leaving(parties, up)
    recorded = Recorded(leaving) if record else None
    metered = Metered(leaving if recorded is None else recorded)
    owner_guards = {
        run: OwnerGuard(
            privacy,
            owner.labels,
            owner.classes,
            noise_of(seeds[run]),
            ledgers[run],
            owner.memory,
            further=None if owner.further is None else owner.further.labels,
        )
        for run, owner in enumerate(owners)
    }
    return Border(Defended(metered, owner_guards), metered, ledgers, recorded)


def owner_border(parties: Engine, guard: OwnerGuard) -> Border:
    """The owner's side alone: the parties are other companies, which guard what leaves them."""
    metered = Metered(parties)
    return Border(Defended(metered, {0: guard}), metered, [guard.ledger])
