"""The command as the only name server of a network namespace: getent(1) finds names by it, and nothing else can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dns_tree import Nsd
from real_programs import find_program, missing

pytestmark = pytest.mark.slow

ZONE = """
. 3600 IN SOA a.root. nobody. 1 3600 900 86400 300
. 3600 NS a.root.
a.root. 3600 A 127.53.0.1
www.example. 3600 A 192.0.2.1
alias.example. 3600 CNAME www.example.
"""

SCRIPT = """
set -e
ip link set lo up
ip addr add 192.0.2.200/32 dev lo
mount --bind resolv.conf /etc/resolv.conf
"$@" &
NSD=$!
$PYTHON -m coro.dns serve --root 127.53.0.1 --listen 127.0.0.53 --metrics 127.0.0.1:9153 > serve.out 2>&1 &
SERVE=$!
trap 'kill $NSD $SERVE; wait || true' EXIT
until grep -q counters serve.out; do sleep 0.02; done
until getent hosts www.example; do sleep 0.05; done
getent hosts alias.example
! getent hosts missing.example
$PYTHON -c "
import urllib.request
print(urllib.request.urlopen('http://127.0.0.1:9153/').read().decode())"
"""


def test_getent(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        missing("network namespaces are Linux's, and root's", required=False)
    unshare = find_program("unshare", "util-linux")
    find_program("ip", "iproute2")
    if subprocess.run([unshare, "-n", "-m", "true"], capture_output=True).returncode:
        missing("this machine allows no new namespaces", required=False)
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\noptions timeout:5\n")
    nsd = Nsd("127.53.0.1", {".": ZONE})
    try:
        done = subprocess.run(
            [unshare, "-n", "-m", "sh", "-c", SCRIPT, "sh", *nsd.command()],
            cwd=tmp_path,
            env={**os.environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=40,
        )
    finally:
        nsd.__exit__(None, None, None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("192.0.2.1") >= 2
    assert "coro_dns_cache_sent" in done.stdout
