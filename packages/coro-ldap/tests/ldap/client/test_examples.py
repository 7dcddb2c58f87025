"""The program in docs/examples/ldap, against our own server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ldap_client_support import HANG
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours, entries

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[5] / "docs" / "examples" / "ldap"


def test_login_gate() -> None:
    with Ours(entries(12)) as server:
        logins = "u1 pw1\nu2 wrong\n*)(uid=* x\nu11 pw11\n"
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "login_gate.py"), server.url, BASE, "--group", f"cn=g0,ou=groups,{BASE}"],
            input=logins, capture_output=True, text=True, timeout=HANG,
            env={**os.environ, "CORO_LDAP_USER": ADMIN, "CORO_LDAP_PASSWORD": PASSWORD},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "u1: welcome",
            "u2: wrong password",
            "*)(uid=*: unknown",
            "u11: not a member",
        ]
