"""`python -m coro.ldap search|modify|whoami`: the client from the command line.

Entries and changes are LDIF, so what `search` prints can be edited and given to `modify`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import ssl
import sys
from collections.abc import Iterator
from typing import Any

from coro.ldap import ldif
from coro.ldap.client import Client
from coro.ldap.exceptions import LDAPError
from coro.ldap.protocol import Control
from coro.ldap.url import SCOPES

__all__ = ["COMMANDS", "add_commands"]


def _connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="ldap://HOST:PORT, ldaps://HOST, ldapi://%%2Fpath%%2Fof%%2Fsocket")
    parser.add_argument("--user", metavar="DN", help="name to log in as; the password is read from CORO_LDAP_PASSWORD")
    parser.add_argument("--external", action="store_true", help="log in by certificate or as the user of the system")
    parser.add_argument("--starttls", action="store_true", help="encrypt the connection first")
    parser.add_argument("--ca", metavar="FILE", help="PEM file with the authorities to trust, instead of the system's")
    parser.add_argument("--certificate", metavar="FILE", help="PEM file with the certificate to show")
    parser.add_argument("--key", metavar="FILE", help="PEM file with its key")
    parser.add_argument("--cleartext-passwords", action="store_true", help="send the password even without TLS")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="to wait for each answer")


def add_commands(commands: Any) -> None:
    """Add the commands to the subparsers of a parser."""
    search = commands.add_parser("search", help="print entries as LDIF")
    _connection(search)
    search.add_argument("filter", nargs="?", default="(objectClass=*)", help="such as (uid=fred)")
    search.add_argument("attributes", nargs="*", help='names; "+" for the operational ones, "1.1" for none')
    search.add_argument("--base", default="", metavar="DN", help="where to begin")
    search.add_argument("--scope", choices=sorted(SCOPES), default="sub")
    search.add_argument("--limit", type=int, default=0, metavar="N", help="entries at most")
    search.add_argument("--page", type=int, default=1000, metavar="N", help="entries of a page; 0 for no pages")
    search.add_argument("--json", action="store_true", help="an object in each line; values that are no text in base64")
    modify = commands.add_parser("modify", help="make the changes of an LDIF file")
    _connection(modify)
    modify.add_argument("file", nargs="?", help="LDIF with entries to add or changes; standard input without it")
    modify.add_argument("--continue", dest="go_on", action="store_true", help="go on behind changes that are refused")
    whoami = commands.add_parser("whoami", help="say who is logged in")
    _connection(whoami)


@contextlib.contextmanager
def _client(args: argparse.Namespace) -> Iterator[Client]:
    tls = None
    for name in (args.ca, args.certificate, args.key):
        if name:  # ssl would not say which file it is
            open(name, "rb").close()
    if args.ca or args.certificate:
        tls = ssl.create_default_context(cafile=args.ca)
        if args.certificate:
            tls.load_cert_chain(args.certificate, args.key)
    with Client(
        args.url,
        tls=tls,
        starttls=args.starttls,
        timeout=args.timeout,
        connect_timeout=args.timeout,
        cleartext_passwords=args.cleartext_passwords,
    ) as client:
        if args.external:
            client.sasl_bind("", "EXTERNAL")
        elif args.user:
            password = os.environ.get("CORO_LDAP_PASSWORD")
            if not password:
                raise SystemExit("expected the password in CORO_LDAP_PASSWORD")
            client.simple_bind(args.user, password)
        yield client


def _json(values: list[bytes]) -> list[Any]:
    import base64

    found: list[Any] = []
    for value in values:
        try:
            found.append(value.decode())
        except UnicodeDecodeError:
            found.append({"base64": base64.b64encode(value).decode()})
    return found


def _print(text: str) -> bool:
    """False if whoever reads it, such as head(1), has enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _search(args: argparse.Namespace) -> int:
    count = 0
    with _client(args) as client:
        for entry in client.search_iter(
            args.base,
            SCOPES[args.scope],
            args.filter,
            args.attributes or None,
            size_limit=args.limit,
            page_size=args.page,
        ):
            count += 1
            if args.json:
                text = json.dumps({"dn": entry.dn, **{name: _json(values) for name, values in entry.items()}})
            else:
                text = ldif.format_record(ldif.Entry(entry.dn, dict(entry.items())))
            if not _print(text):
                return 141  # as a program that SIGPIPE has ended
    if not args.json:
        print(f"{count} entries", file=sys.stderr)
    return 0


def _change(client: Client, record: Any) -> None:
    controls = [Control(one.oid, one.critical, one.value) for one in getattr(record, "controls", ())]
    match record:
        case ldif.Delete():
            client.delete(record.dn, controls)
        case ldif.Modify():
            client.modify(record.dn, list(record.changes), controls)
        case ldif.ModifyDN():
            client.modify_dn(record.dn, record.newrdn, record.deleteoldrdn, record.newsuperior, controls)
        case _:
            client.add(record.dn, record.attributes, controls)


def _modify(args: argparse.Namespace) -> int:
    done = failed = 0
    with _client(args) as client, contextlib.ExitStack() as stack:
        source = stack.enter_context(open(args.file, "rb")) if args.file else sys.stdin.buffer
        for record in ldif.read(source):
            try:
                _change(client, record)
            except LDAPError as exc:
                print(f"{record.dn}: {exc}", file=sys.stderr)
                failed += 1
                if not args.go_on or not client.alive:
                    break
            else:
                done += 1
    print(f"{done} changes made" + (f", {failed} refused" if failed else ""), file=sys.stderr)
    return 1 if failed else 0


def _whoami(args: argparse.Namespace) -> int:
    with _client(args) as client:
        print(client.whoami() or "anonymous")
    return 0


COMMANDS = {"search": _search, "modify": _modify, "whoami": _whoami}
