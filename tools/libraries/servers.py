"""The servers that programs of `cases/` ask for, started once for all of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

import pytest
from real_programs import HOST, MariaDB, Nginx, PostgreSQL, RabbitMQ, Redis, Server, find_program

__all__ = ["start"]

_SLAPD = """
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
database mdb
maxsize 100000000
suffix "dc=example,dc=org"
rootdn "cn=admin,dc=example,dc=org"
rootpw secret
directory {folder}/data
dbnosync
"""
_TREE = "dn: dc=example,dc=org\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n"


class Slapd(Server):
    """OpenLDAP with one entry, dc=example,dc=org, and its administrator."""

    name = "slapd"

    def find(self) -> None:
        self._program = find_program("slapd", "slapd")
        self._add = find_program("slapadd", "slapd")

    def prepare(self) -> None:
        (self.folder / "data").mkdir()
        (self.folder / "conf").write_text(_SLAPD.format(folder=self.folder))
        (self.folder / "tree").write_text(_TREE)
        self.run(self._add, "-q", "-f", f"{self.folder}/conf", "-l", f"{self.folder}/tree")

    def command(self) -> list[str]:
        return [self._program, "-f", f"{self.folder}/conf", "-h", f"ldap://{HOST}:{self.port}", "-d", "0"]


class Files(Nginx):
    """nginx with one small file."""

    def prepare(self) -> None:
        super().prepare()
        (self.root / "file").write_text("content")


_SERVERS: dict[str, Any] = {
    "mariadb": MariaDB,
    "nginx": Files,
    "postgresql": PostgreSQL,
    "rabbitmq": RabbitMQ,
    "redis": Redis,
    "slapd": Slapd,
}


def start(names: Iterable[str], stack: contextlib.ExitStack) -> dict[str, int]:
    """Start these servers until `stack` is closed; their ports. One that is not installed is left out, and said so;
    with CORO_REQUIRE_SERVERS=1 it is a failure."""
    ports = {}
    for name in sorted(set(names)):
        try:
            ports[name] = stack.enter_context(_SERVERS[name]()).port
        except pytest.skip.Exception as reason:
            print(f"{name} is not there: {reason}", flush=True)
    return ports
