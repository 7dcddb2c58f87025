"""Programs of our own that take the part of a peer: a server in Python without coro, a client in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .running import Server


class Script(Server):
    """A server written in Python: it runs without coro, on the Python of the tests, and is given the port and
    `arguments`."""

    def __init__(self, script: Path, *arguments: str) -> None:
        self.name = script.stem
        self._script = script
        self._arguments = arguments
        super().__init__()

    def command(self) -> list[str]:
        return [sys.executable, str(self._script), str(self.port), *self._arguments]


def _environment(folder: str) -> dict[str, str]:
    """This process's, without what sends clients elsewhere or makes them trust others.

    Some clients load the system's certificates for every connection, and discard them: 25 ms each time that would only
    slow the tests down, so there are none.
    """
    dropped = ("_PROXY", "CA_BUNDLE", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD")
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith(dropped)}
    return {**environment, "SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": folder}


def run_peer(script: Path, *arguments: object, limit: float = 120) -> list[str]:
    """Run a program in Python in a process of its own; returns its lines. AssertionError with what it wrote, unless it
    succeeds within `limit` seconds without writing to stderr."""
    command = [sys.executable, "-X", "faulthandler", str(script), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=folder,
                env=_environment(folder),
            )
        except subprocess.TimeoutExpired as exc:
            output = b"\n".join(part for part in (exc.stdout, exc.stderr) if isinstance(part, bytes))
            raise AssertionError(f"{script.name} still ran after {limit} s\n{output.decode()}") from None
    assert done.returncode == 0 and done.stderr == "", f"{script.name} ended with {done.returncode}\n{done.stderr}"
    return done.stdout.splitlines()
