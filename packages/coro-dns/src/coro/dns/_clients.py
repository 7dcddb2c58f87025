"""What one client may take of a server: connections, look-ups that are open at a time, and work.

All three are there for everybody as long as there is enough. When half of the places are taken, a network of clients
gets a quarter of them at most; when a quarter is, one that has caused more work than its share waits until it is paid
for. So a flood from one place leaves room for others, and a single client of an idle server is not held up. Of look-ups
there are no more places than the cache may have queries open: else look-ups of silent servers, which last long, would
let those of all others wait for their turn to ask.

A network is a /24 of IPv4 and a /56 of IPv6. Of connections it is a single address of IPv4: there nobody can forge one.
The connection that goes is the one that has been silent for longest, of the client with the most of them (RFC 7766,
section 6.2.3); one with a question that is not answered yet stays.
"""

from __future__ import annotations

import ipaddress
import secrets
from typing import Any

from coro.dns._prepared import RateLimit

__all__ = ["Clients", "Streams", "packed"]

SHARE = 4  # a client has a quarter of the places
#: Seconds of its share of work that a network may cause at once.
BURST = 10.0
#: When all places are taken, a silent connection is closed after this share of the idle time, but not before so many
#: seconds.
IDLE_LEAST, IDLE_SECONDS = 0.02, 0.2


def packed(host: str) -> bytes:
    """The bytes of an address: 4 of IPv4, also if it is written as one of IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 6 and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed


class Clients:
    """Who has look-ups open, at most `most` at a time, of which `room` are not held up by others, and what they have
    cost: `rate` a second for a network, None without a limit."""

    def __init__(self, most: int, rate: float | None, room: int | None = None) -> None:
        self.most = most
        self.room = most if room is None else min(most, room)
        self.open = 0
        self.of: dict[bytes, int] = {}
        self.work = None if rate is None else RateLimit(rate, rate * BURST, secrets.token_bytes(16))

    @staticmethod
    def _network(address: bytes) -> bytes:
        return address[:3] if len(address) == 4 else address[:7]

    def enter(self, address: bytes) -> bool:
        """Take a place; False: there is none for this client."""
        network = self._network(address)
        own = self.of.get(network, 0)
        if self.open >= self.most or (self.open >= self.room // 2 and own >= max(self.room // SHARE, 1)):
            return False
        if self.work is not None and self.open >= self.room // SHARE and self.work.is_spent(address):
            return False
        self.open += 1
        self.of[network] = own + 1
        return True

    def leave(self, address: bytes) -> None:
        """Give it back."""
        network = self._network(address)
        self.open -= 1
        if self.of[network] == 1:
            del self.of[network]
        else:
            self.of[network] -= 1

    def charge(self, address: bytes, cost: float) -> None:
        """A look-up has cost so much: datagrams sent, signatures checked."""
        if self.work is not None and cost:
            self.work.charge(address, cost)


class Stream:
    """One connection."""

    __slots__ = ("busy", "client", "sock")

    def __init__(self, sock: Any, client: bytes) -> None:
        self.sock = sock
        self.client = client
        self.busy = 0  # questions that are not answered yet


class Streams:
    """The connections of a server, at most `most`; one may be silent for `idle` seconds."""

    def __init__(self, most: int, idle: float) -> None:
        self.most = most
        self.idle = idle
        self.count = 0
        self.evicted = 0
        #: Client -> its connections, in the order in which they became silent.
        self.of: dict[bytes, dict[Stream, None]] = {}

    def __len__(self) -> int:
        return self.count

    def enter(self, sock: Any, host: str) -> Stream | None:
        """A place for a connection, if need be that of another one, which is closed; None: there is none."""
        address = packed(host)
        client = address if len(address) == 4 else address[:7]
        own = self.of.get(client, {})
        if len(own) >= max(self.most // SHARE, 1) and self.count >= self.most // 2:
            if not self._evict(own):
                return None
        elif self.count >= self.most:
            # its own share is not used up, so another client has more
            if not any(self._evict(some) for some in sorted(self.of.values(), key=len, reverse=True)):
                return None
        stream = Stream(sock, client)
        self.of.setdefault(client, {})[stream] = None
        self.count += 1
        return stream

    def _evict(self, some: dict[Stream, None]) -> bool:
        silent = next((stream for stream in some if not stream.busy), None)
        if silent is None:
            return False
        self.leave(silent)
        self.evicted += 1
        silent.sock.close()
        return True

    def leave(self, stream: Stream) -> None:
        """It is closed."""
        own = self.of.get(stream.client)
        if own is None or stream not in own:
            return  # it had to go
        del own[stream]
        self.count -= 1
        if not own:
            del self.of[stream.client]

    def begin(self, stream: Stream) -> None:
        """A question has come."""
        stream.busy += 1

    def end(self, stream: Stream) -> None:
        """It is answered; the connection is silent again if it was the last one."""
        stream.busy -= 1
        own = self.of.get(stream.client)
        if not stream.busy and own is not None and stream in own:
            del own[stream]
            own[stream] = None

    def patience(self) -> float:
        """The seconds for which a connection may be silent: fewer as the second half of the places fills."""
        free = max(self.most - self.count, 0) / max(self.most, 1)
        return max(self.idle * max(min(2 * free, 1.0), IDLE_LEAST), min(self.idle, IDLE_SECONDS))

    def close(self) -> None:
        """Close all."""
        for some in list(self.of.values()):
            for stream in list(some):
                stream.sock.close()
