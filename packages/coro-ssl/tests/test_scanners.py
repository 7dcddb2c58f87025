"""Short forms of what sslyze and testssl.sh say of both back ends' servers; the manual has the long form as a table."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import tls_peers
from real_programs import find_program

pytestmark = pytest.mark.slow

#: Seconds that a scan may take on a busy machine; alone it takes some seconds.
LONG = 280


def scanned(backend: str, *command: str) -> bytes:
    import coro

    def scan() -> bytes:
        with tls_peers.echo_server(tls_peers.server(backend, alpn=("http/1.1",))) as echo:
            done = tls_peers.run_program(*command, f"127.0.0.1:{echo.port}", limit=LONG)
            return bytes(done.stdout)

    return coro.run(scan)


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_sslyze(backend: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("sslyze") is None:
        if os.environ.get("CORO_REQUIRE_SERVERS") == "1" and (3, 12) <= sys.version_info < (3, 15):
            pytest.fail("needs sslyze: install the dependency group `peers` of coro-ssl")
        pytest.skip("needs sslyze, which there is for Python 3.12 to 3.14: pip install sslyze")
    report = tmp_path / "report.json"
    output = scanned(backend, sys.executable, "-W", "ignore", "-m", "sslyze", f"--json_out={report}")
    assert report.exists(), output.decode()
    [server] = json.loads(report.read_text())["server_scan_results"]
    found: dict[str, Any] = server["scan_result"]
    assert found is not None, output.decode()
    result = {name: part["result"] for name, part in found.items() if part["result"]}
    for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert result[f"{version}_cipher_suites"]["accepted_cipher_suites"] == [], version
    suites = [
        one["cipher_suite"]["name"]
        for version in ("tls_1_2", "tls_1_3")
        for one in result[f"{version}_cipher_suites"]["accepted_cipher_suites"]
    ]
    assert len(suites) >= 5
    assert all(name.startswith(("TLS_ECDHE_", "TLS_AES_", "TLS_CHACHA20_")) for name in suites)
    assert all("_GCM_" in name or "CHACHA20" in name for name in suites)
    assert result["heartbleed"]["is_vulnerable_to_heartbleed"] is False
    assert result["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"] is False
    assert result["robot"]["robot_result"] == "NOT_VULNERABLE_RSA_NOT_SUPPORTED"
    assert result["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"] is False
    assert result["session_renegotiation"]["supports_secure_renegotiation"] is True
    assert result["tls_compression"]["supports_compression"] is False
    assert result["tls_extended_master_secret"]["supports_ems_extension"] is True


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_testssl(backend: str, tmp_path: Path) -> None:
    program = find_program("testssl", "testssl.sh")
    report = tmp_path / "report.json"
    options = ["--quiet", "--color", "0", "--warnings", "off", "--protocols", "--jsonfile", str(report)]
    output = scanned(backend, program, *options)
    findings = {one["id"]: one for one in json.loads(report.read_text())}
    assert findings["TLS1_2"]["finding"] == "offered", output.decode()
    assert findings["TLS1_3"]["finding"].startswith("offered")
    assert all(findings[old]["finding"] == "not offered" for old in ("SSLv2", "SSLv3", "TLS1", "TLS1_1"))
    bad = [one for one in findings.values() if one["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL")]
    assert bad == []
