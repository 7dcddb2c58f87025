"""`python -m coro.ldap search|modify|whoami` against our own server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from ldap_client_support import HANG
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Ours]:
    with Ours() as running:
        yield running


def run(*arguments: str, given: str = "", code: int = 0, password: str = PASSWORD) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "coro.ldap", *arguments], input=given, capture_output=True, text=True, timeout=HANG,
        env={**os.environ, "CORO_LDAP_PASSWORD": password},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_search_modify_and_whoami(server: Ours) -> None:
    login = ("--user", ADMIN, server.url)
    assert run("whoami", server.url)[0] == "anonymous\n"
    assert run("whoami", *login)[0] == f"dn:{ADMIN}\n"
    found, count = run("search", "--base", BASE, *login, "(uid=u1)", "cn", "mail")
    assert f"dn: uid=u1,ou=people,{BASE}\n" in found and "mail: u1@example.org" in found and count == "1 entries\n"
    found, _ = run("search", "--base", BASE, "--json", "--page", "2", *login, "(uid=*)", "uid")
    assert [json.loads(line)["uid"] for line in found.splitlines()] == [["u0"], ["u1"], ["u2"]]
    name = f"cn=new,{BASE}"
    changes = f"""dn: {name}
changetype: add
objectClass: person
cn: new
sn: N

dn: {name}
changetype: modify
replace: sn
sn: M
-

dn: {name}
changetype: modrdn
newrdn: cn=newer
deleteoldrdn: 1

dn: cn=newer,{BASE}
changetype: delete
"""
    assert run("modify", *login, given=changes)[1] == "4 changes made\n"
    bad = f"dn: cn=none,{BASE}\nchangetype: delete\n\n" * 2
    assert "1 refused" in run("modify", *login, given=bad, code=1)[1]
    assert "2 refused" in run("modify", "--continue", *login, given=bad, code=1)[1]
    # What search prints can be read by modify.
    found, _ = run("search", "--base", BASE, *login, "(uid=u2)")
    run("modify", *login, given=f"dn: uid=u2,ou=people,{BASE}\nchangetype: delete\n")
    run("modify", *login, given=found)
    assert "1 entries" in run("search", "--base", BASE, *login, "(uid=u2)")[1]


def test_whoever_reads_has_enough(server: Ours) -> None:
    """As behind a pipe to head(1)."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "coro.ldap", "search", "--base", BASE, "--user", ADMIN, server.url], timeout=HANG,
        stdout=write, stderr=subprocess.PIPE, text=True, env={**os.environ, "CORO_LDAP_PASSWORD": PASSWORD},
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_mistakes(server: Ours) -> None:
    assert "No such file or directory: 'none.pem'" in run("whoami", "--ca", "none.pem", server.url, code=1)[1]
    assert "invalidCredentials" in run("whoami", server.url, "--user", ADMIN, password="x", code=1)[1]
    assert "CORO_LDAP_PASSWORD" in run("whoami", server.url, "--user", ADMIN, password="", code=1)[1]
    assert "cannot connect" in run("whoami", "ldap://127.0.0.1:1", code=1)[1]
    assert run("whoami", "ldap://directory.1", code=1)[1].startswith("coro.ldap: 'directory.1' is neither")
    assert "position" in run("search", server.url, "(uid=", code=1)[1]
