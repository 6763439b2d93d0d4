"""The plain engine: every party in this process, one after the other."""

from collections.abc import Mapping

from protoevfl.codec import decode, encode
from protoevfl.federation.lockstep import Address
from protoevfl.federation.party import Party
from protoevfl.messages import Message


class InProcess:
    """Calls each party's `handle`. With `wire` on, every message also goes through encode and
    decode."""

    def __init__(self, parties: Mapping[Address, Party], wire: bool = False) -> None:
        self.parties, self.wire = parties, wire

    def members(self) -> list[tuple[list[Address], Party]]:
        """Who is computed together: every party for itself."""
        return [([address], party) for address, party in self.parties.items()]

    def exchange(self, requests: Mapping[Address, Message]) -> dict[Address, Message]:
        return {address: self._ask(address, request) for address, request in requests.items()}

    def _ask(self, address: Address, request: Message) -> Message:
        party = self.parties[address]
        if not self.wire:
            return party.handle(request)
        return decode(encode(party.handle(decode(encode(request)))))
