"""`amqp://user:password@host:port/vhost?option=value` to the parameters of a client.

The grammar is that of https://www.rabbitmq.com/docs/uri-spec, the options those of
https://www.rabbitmq.com/docs/uri-query-parameters which make sense here. One deviation, which pika and aio-pika share:
a path of "/" alone is the virtual host "/", not the one with the empty name.

Also read is what Celery and kombu write (https://docs.celeryq.dev/projects/kombu/en/stable/userguide/connections.html):
everything behind the slash after the host is the virtual host, so "//" is "/"; `pyamqp://` for `amqp://`; several URLs
with ";" between them.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
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
class TLS:
    """What an ``amqps://`` URL says of TLS: paths of files in PEM, whether the broker is verified, its name."""

    ca: str | None
    cert: str | None
    key: str | None
    password: str | None
    verify: bool
    server_name: str | None

    def context(self) -> ssl.SSLContext:
        """A context for it; ValueError names the file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as exc:
            raise ValueError(f"expected cacertfile to be a file with certificates, {self.ca!r} is not: {exc}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            try:
                # (a function, so that OpenSSL does not ask on the terminal)
                context.load_cert_chain(self.cert, self.key, lambda: self.password or "")
            except OSError as exc:
                raise ValueError(
                    f"expected certfile and keyfile to be a certificate and its key, got {self.cert!r} and "
                    f"{self.key!r}: {exc}"
                ) from None
        return context


def split(text: str) -> list[str]:
    """The URLs in a text that has several, with ";" between them."""
    return [each for each in re.split(r";(?=[a-z]*amqps?://)|;\Z", text) if each]


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a URL says. None: it does not say."""

    address: Address
    tls: TLS | None
    auth: tuple[str, str] | None
    virtual_host: str | None
    heartbeat: int | None
    connect_timeout: float | None
    frame_max: int | None
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
    if found.scheme not in ("amqp", "amqps", "pyamqp"):
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
    options = dict(parse_qsl(found.query, keep_blank_values=True))
    heartbeat = _number(options.pop("heartbeat", None), "heartbeat")
    timeout = _number(options.pop("connection_timeout", None), "connection_timeout")
    frame_max = _number(options.pop("frame_max", None), "frame_max")
    channel_max = _number(options.pop("channel_max", None), "channel_max")
    mechanism = options.pop("auth_mechanism", None)
    name = options.pop("name", None)
    security = _tls(options) if tls else None
    if options:
        if not tls and options.keys() & set(_OF_TLS):
            raise ValueError(f"expected amqps:// with the options for TLS, got {', '.join(sorted(options))}")
        known = "heartbeat, connection_timeout (milliseconds), frame_max, channel_max, auth_mechanism, name, "
        known += "and with amqps:// " + ", ".join(_OF_TLS)
        raise ValueError(f"expected options among {known}; got {', '.join(sorted(options))}")
    return Parts(
        Address(unquote(found.hostname or "127.0.0.1"), port),
        security,
        auth,
        unquote(path) if path else None,
        heartbeat,
        None if timeout is None else timeout / 1000,
        frame_max,
        channel_max,
        mechanism.upper() if mechanism else None,
        name,
    )


_OF_TLS = ("cacertfile", "certfile", "keyfile", "password", "verify", "server_name_indication")


def _tls(options: dict[str, str]) -> TLS:
    ca, cert, key, password, verify, server_name = (options.pop(name, None) for name in _OF_TLS)
    if verify not in (None, "verify_peer", "verify_none"):
        raise ValueError(f"expected verify to be verify_peer or verify_none, got {verify!r}")
    if key is not None and cert is None:
        raise ValueError("expected certfile with keyfile: a key alone proves nothing")
    if "" in (ca, cert, key, server_name):
        raise ValueError("expected cacertfile, certfile, keyfile and server_name_indication not to be empty")
    return TLS(ca, cert, key, password, verify != "verify_none", server_name)


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
