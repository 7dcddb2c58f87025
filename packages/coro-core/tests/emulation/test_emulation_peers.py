"""Client libraries as they are, under thread emulation, against real servers: 200 threads each, every thread with data
of its own, all of them waiting in the server at the same time while the loop goes on.

The programs are in the folder `peers`, the servers come from `real_programs`. Each program runs in a process of its own
and tells in its output what the server saw.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import real_programs
from real_programs import DATABASE, PASSWORD, USER

PEERS = Path(__file__).resolve().parents[1] / "peers"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="servers are started as Debian has them"),
]


def run_peer(script: str, *arguments: object) -> list[str]:
    return real_programs.run_peer(PEERS / f"{script}.py", *arguments)


def check(lines: list[str], *expected: str) -> None:
    """What the program printed, and then that the loop went on."""
    assert lines[:-1] == list(expected)
    assert re.fullmatch(r"\d+ ticks, at most \d+\.\d+ s apart", lines[-1])


def test_pymysql_with_mariadb():
    real_programs.require_library("pymysql")
    with real_programs.MariaDB() as server:
        lines = run_peer("client_pymysql", server.port, USER, PASSWORD, DATABASE)
    check(lines, "200 statements wait", "2000 rows")


def test_pg8000_with_postgresql():
    real_programs.require_library("pg8000")
    with real_programs.PostgreSQL() as server:
        lines = run_peer("client_pg8000", server.port, USER, PASSWORD, "postgres")
    check(lines, "200 statements wait", "2000 rows")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_psycopg_with_postgresql(driver):
    real_programs.require_library(driver)
    with real_programs.PostgreSQL() as server:
        lines = run_peer("client_psycopg", driver, server.port, USER, PASSWORD, "postgres")
    check(lines, "200 statements wait", "2000 rows")


def test_redis():
    real_programs.require_library("redis")
    with real_programs.Redis() as server:
        lines = run_peer("client_redis", server.port)
    check(lines, "200 clients wait", "counted 200", "10 clients wait")


def test_ftplib_with_vsftpd():
    with real_programs.Vsftpd() as server:
        lines = run_peer("client_ftp", server.port, server.gate)
    check(lines, "200 sessions wait", "200 files")


def test_requests_and_urllib3_with_nginx():
    real_programs.require_library("requests", "urllib3")
    with real_programs.Nginx() as server, real_programs.Script(PEERS / "server_http.py", "200") as gate:
        lines = run_peer(
            "client_http",
            *(server.port, server.tls_port, server.certificate, server.root, gate.port),
        )
    check(lines, "requests", "urllib3, 400 requests")


def test_smtplib_with_aiosmtpd():
    real_programs.require_library("aiosmtpd")
    with real_programs.Script(PEERS / "server_smtp.py", "200") as server:
        lines = run_peer("client_smtp", server.port, server.folder / "mails")
    check(lines, "200 messages wait", "200 mails")


@pytest.mark.each_python
@pytest.mark.parametrize("part", ["socketserver", "http_server", "executor", "queue", "logging"])
def test_library_of_cpython(part):
    check(run_peer("crowd_stdlib", part), part)
