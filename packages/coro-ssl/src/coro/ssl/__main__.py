"""``python -m coro.ssl probe HOST:PORT``: what a TLS server offers. ``python -m coro.ssl dev-cert``: certificates for
development.

Exit codes: 0 when all is well; 1 when the server cannot be reached or a certificate not made; 2 for a wrong command
line; 3 when the server answers, and a client that checks certificates would refuse it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coro.ssl", description="Look at TLS servers; make certificates.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    probe = commands.add_parser(
        "probe",
        help="show what a server offers: versions, ciphers, certificates, protocols",
        description="Show what a TLS server offers: versions, ciphers, key exchange, certificates, protocols of ALPN.",
    )
    probe.add_argument("address", metavar="HOST[:PORT]", help="the server; the port is 443 if it is not given")
    probe.add_argument("--name", help="the name to ask for, and to compare the certificate with (default: HOST)")
    probe.add_argument("--ca", metavar="FILE", help="trust the certificates in FILE, not those of the system")
    probe.add_argument(
        "--alpn", default="h2,http/1.1", metavar="A,B", help="protocols to offer (default: %(default)s); '' for none"
    )
    probe.add_argument(
        "--starttls", choices=("smtp", "imap", "pop3", "ldap", "postgres"), help="begin TLS as this protocol does"
    )
    probe.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds for each connection (10)")
    probe.add_argument("--json", action="store_true", help="print one JSON object")
    cert = commands.add_parser(
        "dev-cert",
        help="make a private CA and a certificate for development",
        description="Make a private CA, or use the one in the folder, and a certificate that it signs. Writes ca.pem, "
        "ca.key, NAME.pem and NAME.key. A browser or client that trusts ca.pem accepts the certificate.",
    )
    cert.add_argument("hosts", nargs="*", metavar="HOST", help="names and addresses (localhost, 127.0.0.1 and ::1)")
    cert.add_argument("--folder", default=".", metavar="DIR", help="where to write (default: the current folder)")
    cert.add_argument("--name", default="server", help="the files' name (default: %(default)s)")
    cert.add_argument("--days", type=float, default=90.0, help="how long it is valid (default: 90)")
    cert.add_argument("--key", default="ec", metavar="KIND", help="ec (default), ec384, rsa, rsa4096, ed25519 ...")
    cert.add_argument("--client", action="store_true", help="for a client, not a server")
    cert.add_argument("--force", action="store_true", help="replace a certificate that is there")
    cert.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code. ``arguments`` are those of the command line if None."""
    options = _parser().parse_args(arguments)
    if options.command == "probe":
        return _probe(options)
    return _dev_cert(options)


def _probe(options: argparse.Namespace) -> int:
    import coro
    from coro.ssl import _context
    from coro.ssl import _probe as probing

    try:
        host, port = probing.address(options.address)
        protocols = [_context.protocol(one) for one in options.alpn.split(",") if one]
        if options.ca is not None:  # OpenSSL's error would not say which file it is
            with open(options.ca, "rb"):
                pass
    except (OSError, ValueError) as e:
        print(f"python -m coro.ssl probe: {e}", file=sys.stderr)
        return 2

    def tell(what: str) -> None:
        if sys.stderr.isatty() and not options.json:
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)

    try:
        found = coro.run(
            probing.probe,
            host,
            port,
            name=options.name,
            ca=options.ca,
            protocols=protocols,
            starttls=options.starttls,
            timeout=options.timeout,
            tell=tell,
        )
    except (OSError, ValueError, coro.NameError) as e:
        tell("")
        print(f"python -m coro.ssl probe: {options.address}: {e}", file=sys.stderr)
        return 1
    tell("")
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(probing.text(found))
    return 0 if found["trusted"] else 3


def _dev_cert(options: argparse.Namespace) -> int:
    try:
        from coro.ssl._devcert import make
    except ImportError as e:
        print(f"python -m coro.ssl dev-cert: {e}", file=sys.stderr)
        return 1
    try:
        made = make(
            options.folder,
            options.hosts,
            name=options.name,
            days=options.days,
            key=options.key,
            client=options.client,
            force=options.force,
        )
    except (OSError, ValueError) as e:
        print(f"python -m coro.ssl dev-cert: {e}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(made, indent=2))
    else:
        print(f"{made['certificate']}  certificate for {', '.join(made['hosts'])}, valid until {made['valid_until']}")
        print(f"{made['key']}  its private key")
        print(f"{made['ca']}  the CA to trust{'' if made['new_ca'] else ' (was there already)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
