"""Asking a server about a zone: its serial, a transfer, a notification, an update.

Over UDP, datagrams that are not the reply are ignored, and with a key those without a good signature too: a forger can
delay, and nothing else. Transfers and updates go over TCP, or TLS (RFC 9103): an update that was sent twice could find
its own prerequisites wrong.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import coro
import coro.tls
from coro.dns import _wire
from coro.dns._packet.numbers import RCODE_MAP
from coro.dns._zone.data import SOA, Data, Record, serial_of, text_of
from coro.dns._zone.transfer import AXFR, BYTES, IXFR, RECORDS, Receiver
from coro.dns.exceptions import DNS_Signature_Error, DNS_Transfer_Error
from coro.dns.tsig import Checker, Key, sign, verify_reply

__all__ = ["Address", "address_of", "exchange", "notify", "receive", "serial_at", "update_message"]

Address = tuple[str, int]

QUERY, NOTIFY, UPDATE = 0, 4, 5
#: Seconds for the reply to a datagram: one try after the other.
WAITS = (1.0, 2.0, 4.0)
NOTIFY_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)


def address_of(server: str | tuple[str, int], port: int = 53) -> Address:
    """``"192.0.2.1"`` or ``("192.0.2.1", 5353)``."""
    return (server, port) if isinstance(server, str) else (server[0], server[1])


def _query(origin: bytes, rtype: int, opcode: int = QUERY, answer: Sequence[Record] = (),
           authority: Sequence[Record] = ()) -> bytes:  # fmt: skip
    flags = opcode << 11 | (0x0400 if opcode == NOTIFY else 0)
    return _wire.build(secrets.randbits(16), flags, origin, rtype, 1, answer, authority)


def update_message(origin: bytes, conditions: Sequence[Record], changes: Sequence[Record]) -> bytes:
    """An update (RFC 2136, section 2)."""
    return _query(origin, SOA, UPDATE, conditions, changes)


def _fits(reply: _wire.Message, query: bytes, origin: bytes) -> bool:
    if reply.id != int.from_bytes(query[:2], "big") or not reply.is_reply or reply.opcode != query[2] >> 3 & 15:
        return False
    return not reply.questions or reply.qname == origin


def _error(origin: bytes, server: Address, text: str, rtype: str = "SOA") -> DNS_Transfer_Error:
    return DNS_Transfer_Error(text_of(origin), rtype, f"{server[0]}:{server[1]}", text)


@contextmanager
def _connected(server: Address, tls: Any, name: str, source: str) -> Iterator[Any]:
    sock = coro.tcp6_sock() if ":" in server[0] else coro.tcp_sock()
    with sock:
        if source:
            sock.bind((source, 0))
        sock.connect_addr(server)
        yield sock if tls is None else coro.tls.context(tls).wrap(sock, server_hostname=name or server[0])


def _text(error: BaseException) -> str:
    return "the connection ended too early" if isinstance(error, EOFError) else str(error) or type(error).__name__


def _send(stream: Any, message: bytes) -> None:
    stream.send(len(message).to_bytes(2, "big") + message)


def _message(stream: Any) -> bytes:
    out: bytes = stream.recv_exact(int.from_bytes(stream.recv_exact(2), "big"))
    return out


def _over_udp(
    server: Address, query: bytes, origin: bytes, key: Key | None, waits: Sequence[float], source: str
) -> _wire.Message:
    """The reply. Raises DNS_Transfer_Error, DNS_Signature_Error if only badly signed ones came."""
    said: Exception | None = None
    sock = coro.udp6_sock() if ":" in server[0] else coro.udp_sock()
    with sock:
        if source:
            sock.bind((source, 0))
        sock.connect_addr(server)
        for wait in waits:
            message, code = sign(query, key) if key else (query, b"")
            try:
                with coro.timeout(wait):
                    sock.send(message)
                    while True:
                        data = sock.recv(65535)
                        try:
                            reply = _wire.parse(data, len(data) > 2 and bool(data[2] & 2))
                            if not _fits(reply, query, origin):
                                continue
                            if key:
                                verify_reply(data, key, code)
                            return reply
                        except DNS_Signature_Error as e:
                            said = e
                        except ValueError:
                            pass
            except coro.TimeoutError:
                pass
            except OSError as e:
                said = e
    if isinstance(said, DNS_Signature_Error):
        raise said
    raise _error(origin, server, f"no reply ({said})" if said else f"no reply in {sum(waits):g} seconds") from said


def exchange(
    server: Address, query: bytes, origin: bytes, key: Key | None, limit: float, tls: Any = None, tls_name: str = "",
    source: str = "",
) -> _wire.Message:  # fmt: skip
    """The reply to a message over TCP or TLS. Raises DNS_Transfer_Error, DNS_Signature_Error."""
    message, code = sign(query, key) if key else (query, b"")
    try:
        with coro.timeout(limit), _connected(server, tls, tls_name, source) as stream:
            _send(stream, message)
            data = _message(stream)
        reply = _wire.parse(data)
    except (OSError, EOFError, coro.TimeoutError, coro.tls.TLSError) as e:
        raise _error(origin, server, f"no reply: {_text(e)}") from e
    except ValueError as e:
        raise _error(origin, server, str(e)) from e
    if not _fits(reply, query, origin):
        raise _error(origin, server, "a reply that belongs to another question")
    if key:
        verify_reply(data, key, code)
    return reply


def _serial(origin: bytes, server: Address, reply: _wire.Message) -> int:
    found = [data for name, rtype, _, _, data in reply.answer if rtype == SOA and name == origin]
    if reply.rcode or len(found) != 1 or len(found[0]) < 22:
        code = RCODE_MAP.get(reply.rcode, reply.rcode)
        raise _error(origin, server, f"expected its SOA record, got {code if reply.rcode else 'another answer'}")
    return serial_of(found[0])


def serial_at(
    origin: bytes, server: Address, key: Key | None, source: str = "", tls: Any = None, tls_name: str = ""
) -> int:
    """The serial of a zone at a server, asked over UDP, or over TLS if zones come so. Raises DNS_Transfer_Error,
    DNS_Signature_Error."""
    query = _query(origin, SOA)
    if tls is None:
        return _serial(origin, server, _over_udp(server, query, origin, key, WAITS, source))
    return _serial(origin, server, exchange(server, query, origin, key, sum(WAITS), tls, tls_name, source))


def notify(origin: bytes, server: Address, soa: Record | None, key: Key | None, source: str = "") -> int:
    """Say that a zone has changed (RFC 1996); the response code. Raises as `serial_at`."""
    query = _query(origin, SOA, NOTIFY, [soa] if soa else [])
    return _over_udp(server, query, origin, key, NOTIFY_WAITS, source).rcode


def receive(
    origin: bytes,
    server: Address,
    *,
    key: Key | None = None,
    known: Data | None = None,
    idle: float = 30.0,
    limit: float = 3600.0,
    most: int = RECORDS,
    most_bytes: int = BYTES,
    tls: Any = None,
    tls_name: str = "",
    source: str = "",
    history: int = 0,
) -> Receiver | None:
    """Transfer a zone, or with `known` what has changed since; None if nothing has. Raises DNS_Transfer_Error,
    DNS_Signature_Error."""
    kind = IXFR if known else AXFR
    name = "IXFR" if known else "AXFR"
    query = _query(origin, kind, authority=[known.soa_record] if known else [])
    message, code = sign(query, key) if key else (query, b"")
    checker = Checker(key, code) if key else None
    receiver = Receiver(origin, known, most, history)
    current = known.serial if known else None
    size = 0
    deadline = time.monotonic() + limit
    first = True
    try:
        with coro.timeout(limit), _connected(server, tls, tls_name, source) as stream:
            _send(stream, message)
            while not receiver.done:
                with coro.timeout(max(min(idle, deadline - time.monotonic()), 0.0)):
                    data = _message(stream)
                size += len(data)
                if size > most_bytes:
                    raise _error(origin, server, f"more than {most_bytes} bytes", name)
                reply = _wire.parse(data)
                if not _fits(reply, query, origin) or first and not reply.questions and not reply.rcode:
                    raise _error(origin, server, "a message that belongs to another question", name)
                first = False
                if checker:
                    checker.check(data)
                if reply.rcode:
                    text = f"the server says {RCODE_MAP.get(reply.rcode, reply.rcode)}"
                    raise _error(origin, server, text + ("" if key else ": does it expect a key?"), name)
                if reply.truncated or not reply.answer:
                    raise _error(origin, server, "an empty or truncated message", name)
                receiver.take(reply.answer)
                if receiver.end(current):
                    return None
        if checker:
            checker.finish()
    except DNS_Transfer_Error as e:
        if e.nameserver:
            raise
        raise _error(origin, server, e.error_string, name) from e
    except (OSError, EOFError, coro.TimeoutError, coro.tls.TLSError, ValueError) as e:
        raise _error(origin, server, _text(e), name) from e
    return receiver
