"""Node's clients against the server: ldapts and ldapjs (`npm install ldapts ldapjs`, NODE_PATH)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours, entries
from real_programs.running import LIMIT, find_program, missing

pytestmark = pytest.mark.slow
PEERS = Path(__file__).parents[2] / "peers"
FOUND: dict[str, list[Any]] = {
    "ldapts": [[{"dn": f"cn=Grün,{BASE}", "cn": "Grün", "sn": "First"}], True, 10, 32, 49],
    "ldapjs": [[[f"cn=Two,{BASE}", ["Twain"]]], True, 10, f"dn:{ADMIN}", 32, 49],
}


@pytest.mark.parametrize("library", FOUND)
def test_node(library: str) -> None:
    node = find_program("node", "nodejs")
    environment = {**os.environ, "NODE_PATH": os.environ.get("NODE_PATH", "/usr/share/nodejs:/usr/lib/node_modules")}
    there = subprocess.run([node, "-e", f"require('{library}')"], capture_output=True, env=environment, check=False)
    if there.returncode:
        missing(f"needs {library} for Node: npm install {library}, and NODE_PATH", required=False)
    with Ours(entries(10)) as server:
        done = subprocess.run(
            [node, str(PEERS / f"{library}_peer.js"), server.url, ADMIN, PASSWORD, BASE],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env=environment,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == FOUND[library]
