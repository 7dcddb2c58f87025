"""How a client logs in: the response of each SASL mechanism that brokers of AMQP 0-9-1 offer.

PLAIN is RFC 4616. AMQPLAIN is a field table without its length, as RabbitMQ's module of that name reads it.
EXTERNAL (RFC 4422, appendix A) has an empty response: the certificate of the client says who it is.
"""

from __future__ import annotations

from coro.amqp import wire
from coro.amqp.exceptions import AuthenticationError

#: In the order of preference, where nobody chooses. EXTERNAL is only taken when asked for.
PREFERRED = ("PLAIN", "AMQPLAIN")
KNOWN = ("PLAIN", "AMQPLAIN", "EXTERNAL")


def choose(offered: str, wanted: str | None) -> str:
    """The mechanism to use. AuthenticationError if the broker does not offer it."""
    names = offered.split()
    candidates = PREFERRED if wanted is None else (wanted,)
    for name in candidates:
        if name in names:
            return name
    raise AuthenticationError(
        f"expected the broker to offer the mechanism {' or '.join(candidates)}, it offers {', '.join(names) or 'none'}"
    )


def response(mechanism: str, user: str, password: str) -> bytes:
    """What is sent with start-ok."""
    if mechanism == "EXTERNAL":
        return b""
    if mechanism == "AMQPLAIN":
        return wire.pack_table({"LOGIN": user, "PASSWORD": password})[4:]
    return b"\0" + user.encode() + b"\0" + password.encode()
