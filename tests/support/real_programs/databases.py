"""Databases: MariaDB, PostgreSQL, Redis. Each has one empty database and one user, USER with PASSWORD."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket

from .running import HOST, Server, find_program, missing

USER, PASSWORD, DATABASE = "test", "secret", "test"


class MariaDB(Server):
    """MariaDB with one user and one empty database."""

    name = "mariadb"

    def find(self) -> None:
        self._install = find_program("mariadb-install-db", "mariadb-server")
        self._program = find_program("mariadbd", "mariadb-server")
        self._options = ["--user=root"] if os.geteuid() == 0 else []

    def prepare(self) -> None:
        self.run(
            self._install,
            "--no-defaults",
            f"--datadir={self.folder}/data",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *self._options,
        )
        (self.folder / "tmp").mkdir()
        (self.folder / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'{HOST}';\n"
        )

    def command(self) -> list[str]:
        return [
            self._program,
            "--no-defaults",
            *self._options,
            f"--datadir={self.folder}/data",
            f"--socket={self.folder}/socket",
            f"--pid-file={self.folder}/pid",
            f"--tmpdir={self.folder}/tmp",
            f"--init-file={self.folder}/init.sql",
            f"--bind-address={HOST}",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--max-connections=300",
            "--back-log=300",
            "--innodb-flush-log-at-trx-commit=0",
        ]

    def answers(self) -> bool:
        """The server speaks first (its handshake, with the version); before it is ready it does not listen."""
        with socket.create_connection((HOST, self.port), 5) as sock:
            return b"MariaDB" in sock.recv(100)


class PostgreSQL(Server):
    """PostgreSQL with one user, who logs in by SCRAM."""

    name = "postgresql"
    #: SIGTERM would wait for the clients to leave (postgres(1)).
    stop_signal = signal.SIGINT

    def find(self) -> None:
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda name: float(name.split("/")[-2]))
        path = os.pathsep.join([*reversed(folders), os.environ.get("PATH", "")])
        self._programs = [shutil.which(name, path=path) for name in ("initdb", "postgres")]
        if None in self._programs:
            missing("needs PostgreSQL: install the Debian package postgresql")

    def prepare(self) -> None:
        self.be_nobody()
        password = self.folder / "password"
        password.write_text(PASSWORD)
        (initdb, _), data = self._programs, f"{self.folder}/data"
        assert initdb is not None
        self.run(
            *(initdb, "-D", data, "-A", "scram-sha-256", "-U", USER, f"--pwfile={password}"),
            *("-N", "-E", "UTF8", "--locale=C"),
        )

    def command(self) -> list[str]:
        program = self._programs[1]
        assert program is not None
        settings = {
            "listen_addresses": HOST,
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "300",
            "shared_buffers": "16MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [program, "-D", f"{self.folder}/data", "-p", str(self.port), *options]

    def answers(self) -> bool:
        """A request for TLS is answered by one letter, once the server accepts clients (protocol, "SSLRequest")."""
        if "ready to accept connections" not in self._log.read_text(errors="replace"):
            return False
        with socket.create_connection((HOST, self.port), 5) as sock:
            sock.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
            return sock.recv(1) in (b"N", b"S")


class Redis(Server):
    """Redis, which keeps everything in memory."""

    name = "redis"

    def find(self) -> None:
        self._program = find_program("redis-server", "redis-server")

    def command(self) -> list[str]:
        options = {"bind": HOST, "port": str(self.port), "save": "", "appendonly": "no", "dir": str(self.folder)}
        return [self._program, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 5) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(100).startswith(b"+PONG")
