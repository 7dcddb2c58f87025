"""Those who have not shown yet that they may come in: how many there may be, and how fast they may guess.

Strangers are counted apart from sessions, so that no number of them keeps an owner out. When their places are taken, a
new one gets the place of the one who has said nothing for longest, of the address that holds most of them.

Each wrong token makes the next answer to its address slower: 0.5 s, 1 s, 2 s, ... up to MOST_PAUSE. The pause comes
before the token is compared. So nothing is learnt sooner by going away, and all connections of an address together
get no more guesses than they have places. Who waits in such a pause keeps his place against newcomers of the same
address. An address is forgotten FORGET seconds after its last wrong token; a right one does not excuse it, because
users of one machine share an address.

Each refusal is a line in stderr. Beyond LINES in a second they are counted, and the next line has the number.

Cost: a small object a stranger; two numbers for each of the last ADDRESSES addresses that were wrong. An IPv6 network
of 64 bits counts as one address: whoever has one of them has all.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from coro._clock import ticks
from coro._runtime.output import one_line, print_stderr

__all__ = ["MAX_STRANGERS", "Stranger", "Strangers", "origin"]

#: Connections at a time that have not shown a token, or that have not finished their TLS handshake.
MAX_STRANGERS = 32
#: Seconds of the first pause, and of the longest.
FIRST_PAUSE = 0.5
MOST_PAUSE = 8.0
#: Seconds until an address that was wrong is as good as any other.
FORGET = 600.0
#: Addresses that are remembered.
ADDRESSES = 1024
#: Refusals in a second that have a line of their own.
LINES = 10


def _now() -> float:
    return ticks.monotonic_ns() / 1e9


def origin(address: Any) -> str:
    """What the connections of one place have in common: the address without its port, the network for IPv6."""
    if not isinstance(address, tuple) or not address:
        return "the UNIX socket"
    text = str(address[0])
    try:
        ip = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip) if ip.is_loopback else str(ipaddress.ip_network((int(ip), 64), strict=False))


class Stranger:
    """A connection that has not shown yet that it may come in."""

    def __init__(self, all_of_them: Strangers, address: Any) -> None:
        self.origin = origin(address)
        #: Called when another gets his place.
        self.end: Callable[[], object] = bool
        self.pausing = False
        self._all = all_of_them

    def pause(self) -> float:
        """Seconds to wait before a token of this stranger is looked at. He is not shut out meanwhile."""
        self.pausing = True
        return self._all.pause_of(self.origin)

    def was_wrong(self) -> None:
        """His token was not the one."""
        self._all.note_wrong_token(self)

    def refuse(self, why: str) -> None:
        """Write why he does not come in."""
        self._all.tell(self.origin, why)


class Strangers:
    """Those of one back door."""

    def __init__(self, most: int = MAX_STRANGERS) -> None:
        self.most = most
        self._here: dict[Stranger, None] = {}  # in the order of their coming
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def __len__(self) -> int:
        return len(self._here)

    def enter(self, address: Any) -> Stranger | None:
        """A place for one more, who takes it from another if need be; None if all of them are more entitled."""
        new = Stranger(self, address)
        if len(self._here) >= self.most:
            loser = self._loser(new.origin)
            if loser is None:
                new.refuse("too many connections of this address wait for an answer to their tokens")
                return None
            loser.refuse("it had shown no token when its place was needed")
            self.leave(loser)
            loser.end()
        self._here[new] = None
        return new

    def leave(self, one: Stranger) -> None:
        """He has come in, or has gone. May be called again."""
        self._here.pop(one, None)

    def _loser(self, newcomer: str) -> Stranger | None:
        counts = Counter(one.origin for one in self._here)
        most = max(counts.values())
        crowd = [one for one in self._here if counts[one.origin] == most]
        for one in crowd:
            if not one.pausing:
                return one
        for one in self._here:
            if not one.pausing and one.origin == newcomer:
                return one
        return crowd[0] if most > counts[newcomer] + 1 else None

    def pause_of(self, origin: str) -> float:
        """Seconds from now until a token of this address may be looked at."""
        times, last = self._wrong.get(origin, (0, 0.0))
        if not times or _now() - last >= FORGET:
            return 0.0
        return float(min(FIRST_PAUSE * 2.0 ** min(times - 1, 30), MOST_PAUSE))

    def note_wrong_token(self, one: Stranger) -> None:
        """Make the next pause of his address longer."""
        now = _now()
        times, last = self._wrong.pop(one.origin, (0, now))
        self._wrong[one.origin] = (1 if now - last >= FORGET else times + 1), now
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
        one.refuse("wrong token")

    def tell(self, origin: str, why: str) -> None:
        """Write a refusal, or count it."""
        second = int(_now())
        if second != self._second:
            self._second = second
            self._lines = 0
        if self._lines >= LINES:
            self._left_out += 1
            return
        self._lines += 1
        more = f" (and {self._left_out} refusals before this one that have no line)" if self._left_out else ""
        self._left_out = 0
        print_stderr(f"backdoor: refused a connection of {one_line(origin)}: {why}{more}")
