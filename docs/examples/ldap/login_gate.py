"""Who may enter: checks names and passwords of a whole building at once against one directory.

    python login_gate.py URL BASE [--group DN] < logins.txt

Each line of the input is a name and a password. The name is looked up with a filter made of values, so nobody can
break out of it; the password is checked over a connection of its own, so the program's login stays what it is. With
--group, members of that group may enter, others may not. The program's own login is read from CORO_LDAP_USER and
CORO_LDAP_PASSWORD.
"""

import argparse
import os
import sys

import coro
from coro.ldap import Client
from coro.ldap.exceptions import InvalidCredentials, NoSuchObject
from coro.ldap.filters import Equal


def check(directory: Client, limit: coro.semaphore, base: str, group: str | None, name: str, password: str) -> str:
    """What to say about one login."""
    found = list(directory.search_iter(base, filter=Equal("uid", name), attributes=[]))
    if len(found) != 1:
        return "unknown"
    user = found[0].dn
    with limit:
        if not directory.check_password(user, password):
            return "wrong password"
    try:
        if group is not None and not directory.compare(group, "member", user):
            return "not a member"
    except NoSuchObject:
        return "no such group"
    return "welcome"


def run(args: argparse.Namespace) -> int:
    """Check all logins at the same time; says what came of each, in their order."""
    logins = [line.split(maxsplit=1) for line in sys.stdin.read().splitlines() if line.strip()]
    # Each check takes a connection for a moment; the directory need not have all of them at once.
    limit = coro.semaphore(20)
    with Client(args.url, starttls=args.starttls) as directory:
        try:
            directory.simple_bind(os.environ.get("CORO_LDAP_USER", ""), os.environ.get("CORO_LDAP_PASSWORD", ""))
        except InvalidCredentials as exc:
            print(f"the login of this program is refused: {exc}", file=sys.stderr)
            return 1
        threads = [coro.spawn(check, directory, limit, args.base, args.group, *login) for login in logins]
        for (name, _), thread in zip(logins, threads, strict=True):
            print(f"{name}: {thread.get()}")
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("base")
    parser.add_argument("--group")
    parser.add_argument("--starttls", action="store_true")
    return int(coro.run(run, parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
