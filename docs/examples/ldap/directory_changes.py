"""What has changed in a directory since the last run of this program, and with --follow, what changes from now on.

    python directory_changes.py URL BASE STATE [--filter FILTER] [--follow]

Prints a line for each entry: + for a new one, ~ for a changed one, - for one that is gone. STATE is a file with the
names of all entries and the cookie of the server; without it, everything is new. It is replaced as a whole, so the
names and the cookie in it belong together. The login is read from CORO_LDAP_USER and CORO_LDAP_PASSWORD.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from uuid import UUID

import coro
from coro.ldap import LDAPError
from coro.ldap.client import client
from coro.ldap.protocol import Entry
from coro.ldap.sync import Copy, Listener, Lost, Refreshed


def load(path: Path) -> Copy:
    """The copy as it was saved: names without attributes."""
    if not path.exists():
        return Copy()
    state = json.loads(path.read_text())
    return Copy(((UUID(key), Entry(dn)) for key, dn in state["names"].items()), bytes.fromhex(state["cookie"]))


def save(path: Path, copy: Copy) -> None:
    """Save names and cookie in one step."""
    assert copy.cookie is not None
    state = {"cookie": copy.cookie.hex(), "names": {str(key): entry.dn for key, entry in copy.items()}}
    new = path.with_name(path.name + ".new")
    with open(new, "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def login(directory: client) -> None:
    """Log in if there is a user."""
    if user := os.environ.get("CORO_LDAP_USER"):
        directory.simple_bind(user, os.environ.get("CORO_LDAP_PASSWORD", ""))


def run(args: argparse.Namespace) -> int:
    """Print changes until the end."""
    copy = load(args.state)
    with Listener(
        args.url, args.base, filter=args.filter, bind=login, cookie=copy.cookie, persist=args.follow
    ) as listener:
        try:
            for event in listener:
                if isinstance(event, Lost):
                    print(f"connection lost, next attempt in {event.pause:g} s: {event.error}", file=sys.stderr)
                for change in copy.apply(event):
                    if change.after is None:
                        assert change.before is not None
                        print("-", change.before.dn, flush=args.follow)
                    else:
                        print("+" if change.before is None else "~", change.after.dn, flush=args.follow)
                if event.cookie is not None:
                    save(args.state, copy)
                if isinstance(event, Refreshed) and args.follow:
                    print(f"following {len(copy)} entries", file=sys.stderr)
        except LDAPError as exc:
            print(f"the server does not let us follow it: {exc}", file=sys.stderr)
            return 1
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("base")
    parser.add_argument("state", type=Path)
    parser.add_argument("--filter", default="(objectClass=*)")
    parser.add_argument("--follow", action="store_true")
    return int(coro.run(run, parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
