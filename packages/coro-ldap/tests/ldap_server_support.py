"""For tests of the LDAP server: it as a program of its own, OpenLDAP's beside it, a bare client, and entries.

The bare client knows nothing but how messages are framed, so it can send what no honest client does.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from real_programs.running import HOST, LIMIT, Server, find_program, free_port

from coro.asn1 import ber
from coro.ldap import query
from coro.ldap._wire import Framer, encode_message

BASE = "dc=example,dc=org"
ADMIN = f"cn=admin,{BASE}"
PASSWORD = "secret"


def entries(people: int = 3) -> str:
    """LDIF with a few branches and some people."""
    text = f"""dn: {BASE}
objectClass: top
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,{BASE}
objectClass: top
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: top
objectClass: organizationalUnit
ou: groups
"""
    for number in range(people):
        text += f"""
dn: uid=u{number},ou=people,{BASE}
objectClass: top
objectClass: person
objectClass: organizationalPerson
objectClass: inetOrgPerson
uid: u{number}
cn: User {number}
cn;lang-de: Benutzer {number}
sn: Sur{number % 7}
givenName: Given{number % 5}
mail: u{number}@example.org
telephoneNumber: +49 30 {number:06d}
title: {"Boss" if number % 3 == 0 else "Clerk"}
description: the person with  number {number}
manager: uid=u{number // 2},ou=people,{BASE}
userPassword: pw{number}
"""
    for number in range(0, people, 10):
        members = "".join(f"member: uid=u{one},ou=people,{BASE}\n" for one in range(number, min(number + 10, people)))
        text += f"\ndn: cn=g{number},ou=groups,{BASE}\nobjectClass: top\nobjectClass: groupOfNames\ncn: g{number}\n"
        text += members
    return text


class Ours(Server):
    """The server of coro.ldap as a program; `data` is the folder with its entries."""

    name = "coro-ldap"

    def __init__(self, ldif: str | None = None, data: Path | None = None, *options: str) -> None:
        super().__init__()
        self._ldif = entries() if ldif is None else ldif
        self.data = data if data is not None else self.folder / "data"
        self._options = options

    def prepare(self) -> None:
        (self.folder / "init.ldif").write_text(self._ldif)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "CORO_LDAP_PASSWORD": PASSWORD}

    def command(self) -> list[str]:
        return [
            sys.executable, "-m", "coro.ldap", "serve", "--suffix", BASE, "--folder", str(self.data),
            "--ldif", str(self.folder / "init.ldif"), "--listen", f"{HOST}:{self.port}", "--admin", ADMIN,
            *self._options,
        ]  # fmt: skip

    @property
    def url(self) -> str:
        return f"ldap://{HOST}:{self.port}"

    def kill(self) -> None:
        """As kill -9."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()


class Slapd(Server):
    """OpenLDAP's server with the same entries; everybody may read, and searches have no limit."""

    name = "slapd"

    def __init__(self, ldif: str) -> None:
        super().__init__()
        self._ldif = ldif

    def find(self) -> None:
        self._program = find_program("slapd", "slapd")
        self._add = find_program("slapadd", "slapd")

    def prepare(self) -> None:
        (self.folder / "db").mkdir()
        (self.folder / "init.ldif").write_text(self._ldif)
        schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "inetorgperson"))
        (self.folder / "slapd.conf").write_text(
            schemas + "modulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit unlimited\n"
            f"pidfile {self.folder}/pid\nargsfile {self.folder}/args\npassword-hash {{CLEARTEXT}}\n"
            f'database mdb\nmaxsize 268435456\nsuffix "{BASE}"\nrootdn "{ADMIN}"\nrootpw {PASSWORD}\n'
            f"directory {self.folder}/db\nindex objectClass,uid,cn,sn,mail eq\naccess to * by * read\n"
        )
        self.be_nobody()
        if self._identity:
            self.run("chmod", "-R", "a+rwX", str(self.folder)) if not self._identity else os.system(
                f"chown -R nobody {self.folder}"
            )
        self.run(self._add, "-q", "-f", str(self.folder / "slapd.conf"), "-l", str(self.folder / "init.ldif"))

    def command(self) -> list[str]:
        return [self._program, "-f", str(self.folder / "slapd.conf"), "-h", f"ldap://{HOST}:{self.port}", "-d", "0"]

    @property
    def url(self) -> str:
        return f"ldap://{HOST}:{self.port}"


class Full(Slapd):
    """slapd with TLS, a UNIX socket, sorting, and a referral to another server."""

    def __init__(self, ldif: str, folder: Path | None = None, referral: str = "", more: str = "") -> None:
        super().__init__(ldif)
        self.tls_port = free_port()
        self._tls = folder
        self._referral = referral
        self._more = more

    def prepare(self) -> None:
        if self._referral:
            self._ldif += (
                f"\ndn: ou=away,{BASE}\nobjectClass: referral\nobjectClass: extensibleObject\nou: away\n"
                f"ref: {self._referral}\n"
            )
        super().prepare()
        path = self.folder / "slapd.conf"
        text = path.read_text().replace("moduleload back_mdb\n", "moduleload back_mdb\nmoduleload sssvlv\n")
        if self._tls is not None:
            for name in ("server.pem", "server.key"):
                (self.folder / name).write_bytes((self._tls / name).read_bytes())
                os.chmod(self.folder / name, 0o644)
            text = (
                f"TLSCertificateFile {self.folder}/server.pem\nTLSCertificateKeyFile {self.folder}/server.key\n"
                f"TLSCACertificateFile {self.folder}/server.pem\n"
            ) + text
        path.write_text(text.replace("access to", f"overlay sssvlv\n{self._more}access to"))

    def command(self) -> list[str]:
        socket = quote(str(self.folder / "ldapi"), safe="")
        urls = f"ldap://{HOST}:{self.port} ldapi://{socket}"
        if self._tls is not None:
            urls += f" ldaps://{HOST}:{self.tls_port}"
        return [self._program, "-f", str(self.folder / "slapd.conf"), "-h", urls, "-d", "0"]


def bind_request(dn: str = "", password: str = "") -> bytes:
    login = ber.CONTEXT(0, False, password.encode())
    return ber.APPLICATION(0, True, ber.INTEGER(3) + ber.OCTET_STRING(dn.encode()) + login)


def search_request(
    filter: str | bytes = "(objectClass=*)",
    base: str = BASE,
    scope: int = 2,
    size: int = 0,
    names: tuple[str, ...] = (),
) -> bytes:
    return ber.APPLICATION(
        3,
        True,
        b"".join(
            (
                ber.OCTET_STRING(base.encode()),
                ber.ENUMERATED(scope),
                ber.ENUMERATED(0),
                ber.INTEGER(size),
                ber.INTEGER(0),
                ber.BOOLEAN(False),
                filter if isinstance(filter, bytes) else query.parse_query(filter),
                ber.SEQUENCE(*(ber.OCTET_STRING(name.encode()) for name in names)),
            )
        ),
    )


def replace_request(dn: str, attribute: str, value: str) -> bytes:
    change = ber.SEQUENCE(ber.OCTET_STRING(attribute.encode()), ber.SET(ber.OCTET_STRING(value.encode())))
    return ber.APPLICATION(
        6, True, ber.OCTET_STRING(dn.encode()) + ber.SEQUENCE(ber.SEQUENCE(ber.ENUMERATED(2), change))
    )


def control(oid: str, critical: bool, value: bytes | None = None) -> bytes:
    parts = [ber.OCTET_STRING(oid.encode()), ber.BOOLEAN(critical)]
    if value is not None:
        parts.append(ber.OCTET_STRING(value))
    return ber.CONTEXT(0, True, ber.SEQUENCE(*parts))


class Bare:
    """A blocking client that sends any bytes."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self.sock = socket.create_connection((host, port), LIMIT)
        self.framer = Framer()
        self._messages: list[tuple[int, int, Any]] = []
        self._last = 0

    def send(self, op: bytes, controls: bytes = b"") -> int:
        self._last += 1
        self.sock.sendall(encode_message(self._last, op, controls))
        return self._last

    def receive(self) -> tuple[int, int, Any]:
        """The next message: its id, its tag, and its content; for entries, a list of them.  EOFError at the end."""
        while not self._messages:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self._messages = self.framer.receive(data)
        identity, tag, payload = self._messages.pop(0)
        return identity, tag, payload if tag == 4 else ber.decode(payload)[0][1][2]

    def ask(self, op: bytes, controls: bytes = b"") -> tuple[int, Any]:
        """The code and the content of the answer."""
        identity = self.send(op, controls)
        while True:
            got, tag, content = self.receive()
            if tag != 4:
                assert got == identity
                return content[0], content

    def search(self, *args: Any, **kwargs: Any) -> tuple[int, list[Any]]:
        self.send(search_request(*args, **kwargs))
        found: list[Any] = []
        while True:
            _, tag, content = self.receive()
            if tag == 5:
                return content[0], found
            found += content

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
