"""Who holds the connections of a server, and which one goes when there is no room.

There are places for so many connections. One address may have a share of them once half are taken; a connection beyond
its share takes the place of that address's longest silent one. When all are taken, the longest silent connection goes,
those on which nobody is logged in first. A connection with a request that is not answered is not silent. So silent
strangers hold nothing, and one address cannot shut out the others.

An address is one of IPv4, or a /64 of IPv6, which one client usually has as a whole. Processes of this machine that
come over a UNIX socket have no share of their own, only the limit for all.

Cost: a dict entry moved for each read; a look at each place when the server is full.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Place", "Places", "client_of"]


def client_of(address: Any) -> bytes | None:
    """What stands for a client in the shares: a part of its address; None for a UNIX socket."""
    if not isinstance(address, tuple):
        return None
    ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if ip.version == 4:
        return ip.packed
    return ip.ipv4_mapped.packed if ip.ipv4_mapped else ip.packed[:8]


class Place:
    """The place of one connection.

    evict: called when it has to go; does not wait.  is_silent, is_known: whether it has no request under way, and
    whether somebody is logged in.
    """

    __slots__ = ("client", "evict", "is_known", "is_silent")

    def __init__(self, client: bytes | None, evict: Callable[[], object]) -> None:
        self.client = client
        self.evict = evict
        self.is_silent: Callable[[], bool] = lambda: True
        self.is_known: Callable[[], bool] = lambda: False


class Places:
    """most: how many there are.  share: how many one client may have when half are taken; None: a quarter."""

    def __init__(self, most: int, share: int | None) -> None:
        self.most = most
        self.share = share if share is not None else max(most // 4, 1)
        #: How many had to go.
        self.evicted = 0
        # The longest silent one first.
        self._places: dict[Place, None] = {}
        self._of: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, place: Place) -> bool:
        """Take a place, if need be that of another one; False: there is none."""
        client = place.client
        if client is not None and self._of[client] >= self.share and len(self) >= self.most // 2:
            if not self._evict(one for one in self._places if one.client == client):
                return False
        elif len(self) >= self.most and not self._evict(iter(self._places)):
            return False
        self._places[place] = None
        if client is not None:
            self._of[client] += 1
        return True

    def _evict(self, some: Iterator[Place]) -> bool:
        silent = [one for one in some if one.is_silent()]
        if not silent:
            return False
        gone = next((one for one in silent if not one.is_known()), silent[0])
        self.leave(gone)
        self.evicted += 1
        gone.evict()
        return True

    def touch(self, place: Place) -> None:
        """It is not silent now."""
        if place in self._places:
            del self._places[place]
            self._places[place] = None

    def leave(self, place: Place) -> None:
        """Give it back; one that had to go has none any more."""
        if place not in self._places:
            return
        del self._places[place]
        if place.client is not None:
            self._of[place.client] -= 1
            if not self._of[place.client]:
                del self._of[place.client]
