"""Privacy settings of a simulated run: both guards around an engine, one ledger a run."""

from collections.abc import Sequence

from protoevfl.core import random as rnd
from protoevfl.federation.lockstep import Address, Engine
from protoevfl.federation.middleware import Defended, Leaving, Metered
from protoevfl.federation.owner import LabelOwner
from protoevfl.messages import Message
from protoevfl.privacy.defences.noise import SeededNoise
from protoevfl.privacy.ledger import Ledger
from protoevfl.privacy.policy import OwnerGuard, PartyGuard, PrivacySettings


def noise_of(seed: int) -> SeededNoise:
    """The simulated noise of a run; a deployment draws it from the operating system."""
    return SeededNoise(rnd.key(seed, "defence"))


def guards(
    engine: Engine, owners: Sequence[LabelOwner], seeds: Sequence[int], privacy: PrivacySettings
) -> tuple[Leaving, dict[int, OwnerGuard], list[Ledger]]:
    """(the engine behind the parties' guards, the owners' guards by run, the ledgers); run r has the r-th seed."""
    ledgers = [Ledger(privacy.epsilon, privacy.delta) for _ in seeds]
    mine = {
        r: OwnerGuard(privacy, o.labels, o.classes, noise_of(seeds[r]), ledgers[r], o.memory)
        for r, o in enumerate(owners)
    }
    parties = {
        (r, m): PartyGuard(privacy, m, noise_of(seeds[r]), ledgers[r])
        for r, o in enumerate(owners)
        for m in o.parties[1:]
    }

    def up(address: Address, reply: Message) -> Message:
        return parties[address].up(reply) if address in parties else reply

    return Leaving(engine, up), mine, ledgers


def defend(
    engine: Engine, owners: Sequence[LabelOwner], seeds: Sequence[int], privacy: PrivacySettings
) -> tuple[Metered, Defended, list[Ledger]]:
    """(the byte counter at the border, the engine as the owners see it, the ledgers)."""
    leaving, mine, ledgers = guards(engine, owners, seeds, privacy)
    metered = Metered(leaving)
    return metered, Defended(metered, mine), ledgers
