"""``python -m coro.http``: serve an application, get a URL, put a server under load.

Each command is a module `_cli_NAME` with HELP, ``add_arguments(parser)`` and ``run(args)``, which returns the exit
code; only the one that is asked for is imported.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

COMMANDS = {
    "serve": "serve a WSGI or ASGI application, or a handler",
    "get": "get a URL and print it, or write it to a file",
    "bench": "send many requests to a URL and tell how fast they are answered",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m coro.http", description="HTTP servers and clients of coro.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((one for one in given if one in COMMANDS), None)
    for name, about in COMMANDS.items():
        one = commands.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        if name == chosen:
            import_module(f"coro.http._cli_{name}").add_arguments(one)
    args = parser.parse_args(given)
    code: int = import_module(f"coro.http._cli_{args.command}").run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
