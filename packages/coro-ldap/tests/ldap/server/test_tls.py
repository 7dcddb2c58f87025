"""StartTLS, ldaps and ldapi with OpenLDAP's programs: encryption, EXTERNAL by certificate and by the kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours
from real_programs.running import HOST, LIMIT, find_program, free_port

pytestmark = pytest.mark.slow
USER = f"uid=u1,ou=people,{BASE}"


def certificate(folder: Path, name: str, subject: str) -> None:
    """A self-signed certificate."""
    subprocess.run(
        [find_program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", subject, "-addext", f"subjectAltName=IP:{HOST}", "-keyout",
         str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")],
        check=True, capture_output=True, timeout=LIMIT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    certificate(found, "server", "/CN=server")
    certificate(found, "other", "/CN=other")
    certificate(found, "user", "/DC=org/DC=example/OU=people/UID=u1")
    return found


class Secure(Ours):
    """With a certificate, a port for ldaps, and passwords only over TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.tls_port = free_port()
        self._options = (
            "--certificate", str(folder / "server.pem"), "--key", str(folder / "server.key"), "--client-ca",
            str(folder / "user.pem"), "--tls-listen", f"{HOST}:{self.tls_port}", "--require-tls",
        )  # fmt: skip


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Secure]:
    with Secure(folder) as running:
        yield running


def whoami(url: str, *arguments: str, trusted: Path | None = None, code: int = 0, **variables: str) -> str:
    environment = {**os.environ, "LDAPTLS_CACERT": str(trusted), **variables}
    done = subprocess.run(
        [find_program("ldapwhoami", "ldap-utils"), "-H", url, *arguments],
        capture_output=True, text=True, timeout=LIMIT, env=environment,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_starttls(server: Secure, folder: Path) -> None:
    login = ("-x", "-D", ADMIN, "-w", PASSWORD)
    assert whoami(server.url, "-ZZ", *login, trusted=folder / "server.pem") == f"dn:{ADMIN}\n"
    whoami(server.url, "-ZZ", *login, trusted=folder / "other.pem", code=1)
    whoami(server.url, *login, code=13)


def test_ldaps(server: Secure, folder: Path) -> None:
    url = f"ldaps://{HOST}:{server.tls_port}"
    assert whoami(url, "-x", "-D", USER, "-w", "pw1", trusted=folder / "server.pem") == f"dn:{USER}\n"
    assert whoami(url, "-Y", "PLAIN", "-Q", "-O", "none", "-U", "u1", "-w", "pw1", trusted=folder / "server.pem") == (
        f"dn:{USER}\n"
    )
    shown = {"LDAPTLS_CERT": str(folder / "user.pem"), "LDAPTLS_KEY": str(folder / "user.key")}
    assert whoami(url, "-Y", "EXTERNAL", "-Q", trusted=folder / "server.pem", **shown) == f"dn:{USER}\n"


def test_ldapi(folder: Path) -> None:
    class Local(Ours):
        def command(self) -> list[str]:
            found = super().command()
            found[found.index("--listen") + 1] = str(self.folder / "ldapi")
            return found

        def answers(self) -> bool:
            return (self.folder / "ldapi").exists()

    with Local() as server:
        url = "ldapi://" + quote(str(server.folder / "ldapi"), safe="")
        name = f"gidNumber={os.getegid()}+uidNumber={os.geteuid()},cn=peercred,cn=external,cn=auth"
        assert whoami(url, "-Y", "EXTERNAL", "-Q") == f"dn:{name}\n"
