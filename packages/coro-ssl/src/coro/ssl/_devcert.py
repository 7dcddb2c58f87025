"""Certificates for development, in files: what ``python -m coro.ssl dev-cert`` does.

The CA is kept in the folder, so that it has to be trusted once only. It may issue for any name: whoever gets its key
can pretend to be any server towards those who trust it. So the key is readable for its owner only, and the CA is valid
for two years.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from coro.ssl.testing import CA, write_private

__all__ = ["make"]

#: Who a certificate is for if nothing is said.
HOSTS = ("localhost", "127.0.0.1", "::1")
#: Days for which the CA is valid.
CA_DAYS = 730


def make(
    folder: str | os.PathLike[str],
    hosts: list[str],
    *,
    name: str = "server",
    days: float = 90,
    key: str = "ec",
    client: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Make the files; returns their paths and what is in them. ValueError for what cannot be, FileExistsError for a
    certificate that is there unless ``force``."""
    if not name or os.path.basename(name) != name or name in (".", "..", "ca"):
        raise ValueError(f"the name is that of files in the folder, and not ca: {name!r} is not possible")
    if not 0 < days <= CA_DAYS:
        raise ValueError(f"a certificate is valid for more than 0 days and at most {CA_DAYS}, not {days:g}")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{name}.pem", place / f"{name}.key"]
    for path in paths:
        if path.exists() and not force:
            raise FileExistsError(f"{path} is there already; use --force to replace it, or another --name")
    ca_path, ca_key = place / "ca.pem", place / "ca.key"
    new = not ca_key.exists()
    if ca_path.exists() is new:
        there, missing = (ca_path, ca_key) if new else (ca_key, ca_path)
        raise FileExistsError(f"{there} is there without {missing}: use another folder")
    ca = CA("coro development CA", days=CA_DAYS) if new else CA.load(ca_path.read_bytes(), ca_key.read_bytes())
    end = ca.cert.get_notAfter()
    if end.datetime < datetime.now(UTC) + timedelta(days=days, minutes=-1):
        raise ValueError(
            f"the CA in {place} is valid until {end} only: use another folder, or a smaller number of days"
        )
    issued = ca.issue(*(hosts or HOSTS), key=key, days=days + 1, client=client, server=not client)
    if new:
        write_private(ca_key, ca.key_pem)
        ca_path.write_bytes(ca.pem)
    paths[0].write_bytes(issued.chain_pem)
    write_private(paths[1], issued.key_pem)
    return {
        "certificate": str(paths[0]),
        "key": str(paths[1]),
        "ca": str(ca_path),
        "new_ca": new,
        "hosts": issued.cert.get_hosts(),
        "valid_until": issued.cert.get_notAfter().to_string(),
    }
