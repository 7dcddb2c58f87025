"""`amqp://user:password@host:port/vhost?option=value` to the parameters of a client.

The grammar is that of https://www.rabbitmq.com/docs/uri-spec, the options those of
https://www.rabbitmq.com/docs/uri-query-parameters which make sense here. One deviation, which pika and aio-pika share:
a path of "/" alone is the virtual host "/", not the one with the empty name.
"""

from __future__ import annotations

import dataclasses
from urllib.parse import parse_qsl, unquote, urlsplit

PORT = 5672
TLS_PORT = 5671


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a broker listens: a host and a port, or the path of a UNIX socket."""

    host: str
    port: int

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a URL says. None: it does not say."""

    address: Address
    tls: bool
    auth: tuple[str, str] | None
    virtual_host: str | None
    heartbeat: int | None
    connect_timeout: float | None
    channel_max: int | None
    mechanism: str | None
    name: str | None


def parse(url: str) -> Parts:
    """Take a URL apart. ValueError names what is wrong; the password is never part of the text."""
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError as exc:
        raise ValueError(f"expected a URL such as amqp://user:password@host:5672/vhost: {exc}") from None
    if found.scheme not in ("amqp", "amqps"):
        raise ValueError(f"expected a URL that begins with amqp:// or amqps://, got {found.scheme!r}")
    if found.fragment:
        raise ValueError("expected a URL without '#'; write %23 in a name or password")
    tls = found.scheme == "amqps"
    if port is None:
        port = TLS_PORT if tls else PORT
    auth = None
    if found.username is not None:
        auth = unquote(found.username), unquote(found.password or "")
    path = found.path[1:]
    if "/" in path:
        raise ValueError(f"expected one virtual host behind the host, got {path!r}; write %2F for a slash in its name")
    options = dict(parse_qsl(found.query, keep_blank_values=True))
    heartbeat = _number(options.pop("heartbeat", None), "heartbeat")
    timeout = _number(options.pop("connection_timeout", None), "connection_timeout")
    channel_max = _number(options.pop("channel_max", None), "channel_max")
    mechanism = options.pop("auth_mechanism", None)
    name = options.pop("name", None)
    if options:
        known = "heartbeat, connection_timeout (milliseconds), channel_max, auth_mechanism, name"
        raise ValueError(f"expected options among {known}; got {', '.join(sorted(options))}")
    return Parts(
        Address(unquote(found.hostname or "127.0.0.1"), port),
        tls,
        auth,
        unquote(path) if path else None,
        heartbeat,
        None if timeout is None else timeout / 1000,
        channel_max,
        mechanism.upper() if mechanism else None,
        name,
    )


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"expected {name} to be a whole number, got {text!r}")
    return int(text)


def address(value: object, port: int) -> Address:
    """A host, ``host:port``, or a pair of both. TypeError or ValueError for anything else."""
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        if value.startswith("/"):
            return Address(value, 0)
        if value.startswith("["):
            host, bracket, rest = value[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise ValueError(f"expected an address such as [::1]:5672, got {value!r}")
            return Address(host, _port(rest[1:], value) if rest else port)
        if value.count(":") == 1:
            host, _, number = value.partition(":")
            return Address(host, _port(number, value))
        return Address(value, port)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
        return Address(*value)
    raise TypeError(f"expected a host as 'name', 'name:port' or ('name', port), got {value!r}")


def _port(text: str, value: str) -> int:
    number = _number(text, f"the port of {value!r}")
    if not number or number > 65535:
        raise ValueError(f"expected a port from 1 to 65535, got {value!r}")
    return number
