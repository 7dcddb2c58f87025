"""``python -m coro.dns query``: one question to the servers of the system or to those that are named, and the reply as
dig(1) shows it, or as JSON.

Words may be in dig's notation: ``@192.0.2.1``, ``+short``, ``+tcp``, ``+tls``, ``+dnssec``; the same is there as
options. Records are in the notation of zone files (RFC 1035, section 5), those of types that are not known here as RFC
3597 has it.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import ssl
import sys
import time
from typing import Any

import coro
from coro.dns import _wire, packet
from coro.dns._stub.questions import Query, Refusal
from coro.dns._values import number_of, type_name
from coro.dns.exceptions import DNS_Error, DNS_Malformed_Qname_Error
from coro.dns.stub_resolver import TLS, stub_resolver
from coro.resolver import addresses as addresses_of

__all__ = ["ask", "options", "shown"]

_RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}
_FLAGS = (("qr", 0x8000), ("aa", 0x0400), ("tc", 0x0200), ("rd", 0x0100), ("ra", 0x0080), ("ad", 0x0020), ("cd", 0x10))
_WORDS = ("short", "tcp", "tls", "dnssec", "json")


def options(parser: argparse.ArgumentParser) -> None:
    """Add what belongs to the command."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[@SERVER] NAME [TYPE] [+short ...]",
        help="a name, a type (A), servers behind @, and the options below behind +",
    )
    parser.add_argument("-x", "--reverse", action="store_true", help="NAME is an address: what is its name?")
    parser.add_argument("-p", "--port", type=int, help="of the servers (53; 853 with TLS)")
    parser.add_argument("--short", action="store_true", help="the data of the answer only")
    parser.add_argument("--tcp", action="store_true", help="over TCP")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--tls-name", default="", metavar="NAME", help="what the certificate has to have (the address)")
    parser.add_argument("--tls-ca", metavar="FILE", help="certificates to trust instead of the system's")
    parser.add_argument("--dnssec", action="store_true", help="ask for signatures, too")
    parser.add_argument("--recurse", action="store_true", help="ask the root and the servers below it")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="for everything (10)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def shown(rtype: int, data: bytes) -> str:
    """The data of a record in the notation of zone files. Names that may be compressed are in small letters: they can
    end in letters of the question, which are mixed by chance."""
    try:
        return packet.rdata_to_text(rtype, packet.canonical(rtype, data))
    except packet.UnpackError:  # it does not fit its type
        return f"\\# {len(data)} {data.hex().upper()}".rstrip()


def _words(given: argparse.Namespace) -> tuple[list[str], str, int]:
    servers, plain = [], []
    for word in given.words:
        if word.startswith("@"):
            servers.append(word[1:])
        elif word.startswith("+"):
            if word[1:] not in _WORDS:
                raise ValueError(f"expected one of {', '.join('+' + one for one in _WORDS)}, not {word!r}")
            setattr(given, word[1:], True)
        else:
            plain.append(word)
    if not 1 <= len(plain) <= 2:
        raise ValueError(f"expected a name and perhaps a type, not {' '.join(plain)!r}")
    rtype = 12 if given.reverse else 1
    if len(plain) == 2:
        try:
            rtype = number_of(plain[1])
        except ValueError:
            rtype, plain = number_of(plain[0]), plain[::-1]  # dig takes them in any order
    name = ipaddress.ip_address(plain[0]).reverse_pointer if given.reverse else plain[0]
    return servers, name, rtype


def _resolver(given: argparse.Namespace, servers: list[str]) -> stub_resolver:
    if not servers:
        if given.tls:
            raise ValueError("over TLS a server has to be named: @ADDRESS")
        return stub_resolver(port=given.port or 53, use_tcp=given.tcp or None)
    addresses = [server if _is_address(server) else addresses_of(server, int(coro.AF.INET))[0] for server in servers]
    if not given.tls:
        return stub_resolver([(one, given.port or 53) for one in addresses], use_tcp=given.tcp)
    context = ssl.create_default_context(cafile=given.tls_ca)
    pairs = zip(addresses, servers, strict=True)
    return stub_resolver([TLS(one, context, given.tls_name or name, given.port or 853) for one, name in pairs])


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _record(record: tuple[bytes, int, int, int, bytes]) -> str:
    owner, rtype, rclass, ttl, data = record
    name = _wire.to_text(owner).removesuffix(".") + "."
    return f"{name}\t{ttl}\t{'IN' if rclass == 1 else f'CLASS{rclass}'}\t{type_name(rtype)}\t{shown(rtype, data)}"


def _print(message: _wire.Message, size: int, server: str, how: str, seconds: float) -> None:
    flags = " ".join(name for name, bit in _FLAGS if message.flags & bit)
    sections = (("ANSWER", message.answer), ("AUTHORITY", message.authority), ("ADDITIONAL", message.additional))
    counts = ", ".join(f"{name}: {len(records)}" for name, records in sections)
    status = _RCODES.get(message.rcode, f"RCODE{message.rcode}")
    print(f";; status: {status}, id: {message.id}\n;; flags: {flags}; QUERY: {message.questions}, {counts}")
    if message.udp_size:
        print(f";; EDNS: version {message.edns_version}, udp {message.udp_size}{', do' if message.dnssec_ok else ''}")
    name = _wire.to_text(message.qname or b"\0").removesuffix(".")
    print(f"\n;; QUESTION SECTION:\n;{name}.\tIN\t{type_name(message.qtype)}")
    for title, records in sections:
        if records:
            print(f"\n;; {title} SECTION:")
            for record in records:
                print(_record(record))
    print(f"\n;; Query time: {seconds * 1000:.0f} msec\n;; SERVER: {server} ({how})\n;; MSG SIZE rcvd: {size}")


def ask(given: argparse.Namespace) -> int:
    """The command; returns the status: 0, 1 without records, 2 if nobody can tell."""
    try:
        servers, name, rtype = _words(given)
        resolver = _resolver(given, servers)
        encoded = name if name.isascii() else name.encode("idna").decode()
        wire = _wire.from_text(encoded)
    except (ValueError, OSError, coro.NameError, DNS_Malformed_Qname_Error) as e:
        print(f"coro.dns: {e}", file=sys.stderr)
        return 2
    settings = resolver._now()
    query = Query(wire, rtype, 1232, given.dnssec, True, settings.use_tcp, None)
    how = "TLS" if given.tls else "TCP" if settings.use_tcp else "UDP"
    limit = coro.timeout(given.timeout)
    failures: list[str] = []
    try:
        with limit, resolver:
            for one in resolver._transports * settings.attempts:
                began = time.monotonic()
                try:
                    message, data = one.ask(query, min(settings.timeout, given.timeout))
                except Refusal as e:
                    failures.append(f"{one.server.text}: {e}")
                    continue
                seconds = time.monotonic() - began
                return _report(given, message, data, one.server.text, how, seconds, rtype)
    except coro.TimeoutError:
        if not limit.expired:
            raise
        failures.append(f"no reply in {given.timeout:g} seconds")
    except (DNS_Error, OSError) as e:
        failures.append(str(e))
    print("coro.dns: " + "; ".join(failures), file=sys.stderr)
    return 2


def _report(
    given: argparse.Namespace, message: _wire.Message, data: bytes, server: str, how: str, seconds: float, rtype: int
) -> int:
    if given.json:
        records = [
            {"name": _wire.to_text(owner), "type": type_name(kind), "ttl": ttl, "data": shown(kind, one)}
            for owner, kind, _, ttl, one in message.answer
        ]
        said: dict[str, Any] = {"rcode": message.rcode, "server": server, "seconds": seconds, "records": records}
        print(json.dumps(said))
    elif given.short:
        for record in message.answer:
            print(shown(record[1], record[4]))
    else:
        _print(message, len(data), server, how, seconds)
    found = any(record[1] == rtype or rtype == 255 for record in message.answer)
    return 0 if found else 2 if message.rcode not in (0, 3) else 1
