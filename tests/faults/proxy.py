"""A TCP proxy that cuts, delays, stalls, slows, truncates and flips bits between a party and the
hub."""

import random
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

STALL_S = 2.0


@dataclass
class FaultProxy:
    """Listens on `port`, forwards to `target`; the faults can be switched while it runs."""

    target: int
    delay_s: float = 0.0
    rate: float = 0.0  # bytes a second; 0 is as fast as it goes
    stall: float = 0.0  # chance of holding a piece back for STALL_S
    flip: float = 0.0  # chance of one flipped bit in a piece
    cut: float = 0.0  # chance of cutting the connection at a piece
    truncate: float = 0.0  # chance of sending half a piece, then cutting
    deaf: bool = False  # accepts and forwards nothing
    seed: int = 0
    faults: int = 0
    pieces: int = 0
    open: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                self.open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.pieces += 1
                while self.deaf:
                    time.sleep(0.1)
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self.rate:
                    time.sleep(len(data) / self.rate)
                if self._chance(self.stall):
                    time.sleep(STALL_S)
                if self._chance(self.cut):
                    break
                if self._chance(self.truncate):
                    sink.sendall(data[: len(data) // 2])
                    break
                if self._chance(self.flip):
                    changed = bytearray(data)
                    changed[self.rng.randrange(len(changed))] ^= 1 << self.rng.randrange(8)
                    data = bytes(changed)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _chance(self, share: float) -> bool:
        hit = share > 0 and self.rng.random() < share
        self.faults += hit
        return hit

    def cut_all(self) -> None:
        """Close every connection now."""
        for end in self.open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open = []
        self.faults += 1

    def close(self) -> None:
        self.listener.close()
        self.cut_all()
