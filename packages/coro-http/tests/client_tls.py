"""A certificate for tests of https, and contexts that use it. Of Python's ssl module alone none can be made."""

from __future__ import annotations

import ssl
from pathlib import Path

#: For localhost and 127.0.0.1, of its own authority, from 2020 to 2119; a key of tests.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8xt8b0gXzoPWXLPT
KCSTbaBki7QNbBzfF3Z1Z6UObkyhRANCAAThKUkiIzwfxcs8sIFg0d7lkO5NEOop
aj4swlQIAMe1lUlmG2vO1fq4pQJj9UFg94mFEvbqw6wQQrR3V0HJ6NUc
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjExOTEyMzEyMzU5NTlaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOEpSSIjPB/Fyzyw
gWDR3uWQ7k0Q6ilqPizCVAgAx7WVSWYba87V+rilAmP1QWD3iYUS9urDrBBCtHdX
Qcno1RyjXjBcMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgKEMB0GA1Ud
DgQWBBRJkvj3SwikbZq/rMZOHIEr38rdijAaBgNVHREEEzARgglsb2NhbGhvc3SH
BH8AAAEwCgYIKoZIzj0EAwIDRwAwRAIgZZYASRE+eYZ+2U4u1Z9E66BXL/jD7A2I
VJvrHlV5rjUCIHEP6GOw8FE7WzxsqHaxJJ4UkdccPCIVvyYDii8o1LHg
-----END CERTIFICATE-----
"""


def server_context(folder: Path) -> ssl.SSLContext:
    """For servers: the certificate, by way of a file in ``folder``."""
    path = folder / "certificate.pem"
    path.write_text(CERTIFICATE)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(path)
    made.set_alpn_protocols(["http/1.1"])
    return made


def client_context() -> ssl.SSLContext:
    """For clients: trusts the certificate, and nothing else."""
    return ssl.create_default_context(cadata=CERTIFICATE)
