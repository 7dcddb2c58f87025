"""``python -m coro.ldap``: an LDAP server for a folder or an LDIF file, and a client, from the command line."""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from collections.abc import Sequence
from typing import Any

import coro
from coro.ldap._cli import COMMANDS, add_commands
from coro.ldap.exceptions import LDAPError
from coro.ldap.server import DEFAULT_RULES, Directory, Level, Limits, Rule, Server, Store


def _address(text: str) -> Any:
    if "/" in text:
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT or the path of a UNIX socket, got {text!r}")
    return host.strip("[]"), int(port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coro.ldap", description="LDAP from the command line.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="run a server",
        description="Serve the entries of a folder, or of an LDIF file without keeping changes. "
        "The password of the administrator is read from the environment: CORO_LDAP_PASSWORD.",
    )
    serve.add_argument("--suffix", action="append", required=True, help="name of a highest entry: dc=example,dc=org")
    serve.add_argument("--folder", help="folder in which entries and changes are kept")
    serve.add_argument("--ldif", help="first entries; with --folder only used if that is empty")
    serve.add_argument(
        "--listen", type=_address, default=("127.0.0.1", 3389), help="HOST:PORT or path of a UNIX socket"
    )
    serve.add_argument("--tls-listen", type=_address, help="HOST:PORT for ldaps")
    serve.add_argument("--certificate", help="PEM file with the certificate")
    serve.add_argument("--key", help="PEM file with its key")
    serve.add_argument("--client-ca", help="PEM file: ask clients for a certificate of this authority")
    serve.add_argument("--admin", help="name of the administrator, such as cn=admin,dc=example,dc=org")
    serve.add_argument("--anonymous-read", action="store_true", help="let strangers read everything except passwords")
    serve.add_argument("--require-tls", action="store_true", help="take passwords only over TLS")
    serve.add_argument("--connections", type=int, default=Limits.connections, help="at a time")
    serve.add_argument("--json", action="store_true", help="say where it listens as JSON")
    add_commands(commands)
    return parser


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if args.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.certificate, args.key)
    if args.client_ca:
        context.load_verify_locations(args.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _serve(args: argparse.Namespace) -> None:
    directory = Directory(*args.suffix)
    store = None
    if args.folder is not None:
        store = Store(directory, args.folder, initial=args.ldif)
    elif args.ldif is not None:
        with open(args.ldif, "rb") as f:
            directory.load(f)
    admins = {}
    if args.admin is not None:
        password = os.environ.get("CORO_LDAP_PASSWORD")
        if not password:
            raise SystemExit("expected the administrator's password in CORO_LDAP_PASSWORD")
        admins[args.admin] = password
    rules = DEFAULT_RULES
    if args.anonymous_read:
        rules = (*DEFAULT_RULES[:-1], Rule("anyone", Level.READ))
    server = Server(
        directory,
        args.listen,
        tls=_tls(args),
        tls_address=args.tls_listen,
        store=store,
        rules=rules,
        admins=admins,
        limits=Limits(connections=args.connections),
        require_tls=args.require_tls,
    )
    try:
        with server:
            if args.json:
                print(json.dumps({"addresses": server.addresses, "entries": len(directory)}), flush=True)
            else:
                where = ", ".join(map(str, server.addresses))
                print(f"serving {len(directory)} entries on {where}", flush=True)
            server.wait()
    finally:
        if store is not None:
            store.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        if args.command in COMMANDS:
            code: int = coro.run(COMMANDS[args.command], args)
            return code
        coro.run(_serve, args)
    except KeyboardInterrupt:
        return 130
    except (LDAPError, OSError, ValueError, coro.NameError) as exc:
        print(f"coro.ldap: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
