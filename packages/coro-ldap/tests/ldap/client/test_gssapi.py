"""Logins by a Kerberos ticket, at a real slapd, with a realm of its own on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ldap_server_support import BASE, Slapd, entries
from real_programs.running import HOST, LIMIT, Server, find_program

pytestmark = pytest.mark.slow  # real servers
REALM = "TEST.LAN"


class Realm(Server):
    """A Kerberos KDC: people u0 to u2, and the service ldap/localhost, whose key is in `keytab`."""

    name = "krb5kdc"

    def find(self) -> None:
        self._kdc = find_program("krb5kdc", "krb5-kdc")
        self._util = find_program("kdb5_util", "krb5-kdc")
        self._admin = find_program("kadmin.local", "krb5-admin-server")
        self._kinit = find_program("kinit", "krb5-user")

    @property
    def keytab(self) -> Path:
        return self.folder / "keytab"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/tickets",
            "KRB5_KTNAME": str(self.keytab),
        }

    def call(self, *command: str, text: str = "") -> None:
        done = subprocess.run(
            command, env=self.environment(), input=text, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _configure(self) -> None:
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\nrdns = false\ndns_canonicalize_hostname = false\n"
            "dns_lookup_kdc = false\ndns_lookup_realm = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\nkdc = {HOST}:{self.port}\n}}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = {HOST}:{self.port}\nkdc_tcp_listen = {HOST}:{self.port}\n"
            f"[realms]\n{REALM} = {{\ndatabase_name = {self.folder}/principal\n"
            f"key_stash_file = {self.folder}/stash\nacl_file = {self.folder}/acl\n}}\n"
        )

    def prepare(self) -> None:
        self._configure()
        self.call(self._util, "create", "-s", "-r", REALM, "-P", "master")
        for number in range(3):
            self.call(self._admin, "-q", f"addprinc -pw pw{number} u{number}")
        self.call(self._admin, "-q", "addprinc -randkey ldap/localhost")
        self.call(self._admin, "-q", f"ktadd -k {self.keytab} ldap/localhost")
        self.keytab.chmod(0o644)

    def command(self) -> list[str]:
        self._configure()
        return [self._kdc, "-n", "-P", str(self.folder / "pid")]

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 5):
            return True

    def ticket(self, number: int) -> None:
        self.call(self._kinit, f"u{number}@{REALM}", text=f"pw{number}\n")


class KerberosSlapd(Slapd):
    def __init__(self, realm: Realm) -> None:
        super().__init__(entries(5))
        self._realm = realm

    def prepare(self) -> None:
        super().prepare()
        path = self.folder / "slapd.conf"
        path.write_text(
            "sasl-host localhost\nsasl-realm localhost\nsasl-secprops none\n"
            f"authz-regexp ^uid=([^,]*),(cn=[^,]*,)?cn=gssapi,cn=auth$ uid=$1,ou=people,{BASE}\n" + path.read_text()
        )

    def environment(self) -> dict[str, str]:
        return self._realm.environment()


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    if not list(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so*")):
        pytest.skip("needs the Debian package libsasl2-modules-gssapi-mit")
    with Realm() as running:
        running.folder.chmod(0o755)
        yield running


# libkrb5 reads the environment of its process, so the client is one of its own.
LOGIN = """
import sys, coro
from coro.ldap import Client, sasl
from coro.ldap.exceptions import LDAPError

def run():
    turns = []
    def tick():
        while True:
            turns.append(None)
            coro.yield_slice()
    coro.spawn(tick, daemon=True)
    with Client(sys.argv[1], timeout=60) as client:
        try:
            print(sasl.bind(client, "GSSAPI", host="localhost"), client.whoami(), len(turns) > 2)
            # Another one over the same connection, and something behind it: no layer is on.
            sasl.bind(client, "GSSAPI", host="localhost", authorization=client.whoami())
            print(client.read("BASE").text("dc"))
            sasl.bind(client, "GSSAPI", host="localhost", authorization="dn:uid=u0,ou=people,BASE")
        except LDAPError as exc:
            print(type(exc).__name__, exc)

coro.run(run)
""".replace("BASE", BASE)


def login(realm: Realm, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOGIN, url], env=realm.environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gssapi(realm: Realm) -> None:
    pytest.importorskip("kerberos", reason="needs the distribution kerberos")
    with KerberosSlapd(realm) as server:
        assert "SASLError GSSAPI" in login(realm, server.url)
        for number in (1, 2):
            realm.ticket(number)
            assert login(realm, server.url).startswith(
                f"GSSAPI dn:uid=u{number},ou=people,{BASE} True\nexample\nInsufficientAccessRights"
            )
