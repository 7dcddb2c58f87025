"""Real servers for tests: a database, a file server and so on, started for a few tests and thrown away.

Each class is a context manager around one server: it makes a folder, starts the server as a child of this process on
a free port of the loopback interface, waits until it answers, and at the end stops it and removes the folder. Nothing
that runs on the machine already is touched. `log_tail()` is what a failing test shows.

Ports come from 20000 to 32767, below those that Linux hands out by itself (ip(7), ip_local_port_range), so that no
outgoing connection can be in the way. Cost: 0.1 s to start the small ones, 1 s for the databases, which have to make
their files first.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

#: Seconds in which a server has to answer, and to end when told to. Generous: the machine may be busy.
LIMIT = 60

HOST = "127.0.0.1"
USER, PASSWORD, DATABASE = "test", "secret", "test"

PEERS = Path(__file__).with_name("peers")

#: Where Debian has what is not on everybody's PATH.
_MORE_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")


def missing(text: str) -> None:
    """Skip the test, or fail it where everything has to be there (CORO_REQUIRE_SERVERS=1)."""
    if os.environ.get("CORO_REQUIRE_SERVERS") == "1":
        pytest.fail(text)
    pytest.skip(text)


def require_library(*names: str) -> None:
    """Skip unless these modules can be imported."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        missing(f"needs {', '.join(absent)}: install the dependency group `peers` of coro-core")


def find_program(name: str, package: str) -> str:
    """The path of a program; skips when it is not there."""
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_MORE_FOLDERS))
    if path is None:
        missing(f"needs {name}: install the Debian package {package}")
    assert path is not None
    return path


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    for _ in range(1000):
        port = random.randrange(20000, 32768)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port from 20000 to 32767")


class Server:
    """One server, running for the time of a `with` block.

    A subclass says which programs it needs (`find`), what has to be there before (`prepare`, once), the command for
    `self.port`, and, if an accepted connection does not say enough, when the server is ready.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.find()
        # Not pytest's own folder: that one may be entered by one user only, and some servers refuse to run as root.
        self.folder = Path(tempfile.mkdtemp(prefix=f"coro-{self.name}-"))
        self.port = 0
        self._log = self.folder / "log"
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: dict[str, Any] = {}

    def find(self) -> None:
        """Look for the programs; skips."""

    def prepare(self) -> None:
        """Make files."""

    def command(self) -> list[str]:
        """The server in the foreground, on self.port."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Is the server ready? May raise OSError for no."""
        with socket.create_connection((HOST, self.port), 5):
            return True

    def be_nobody(self) -> None:
        """Run what follows as another user if this one is root; the folder belongs to that user then."""
        if os.geteuid() == 0:
            self.folder.chmod(0o755)
            shutil.chown(self.folder, "nobody")
            self._identity = {"user": "nobody", "group": "nogroup", "extra_groups": []}

    def run(self, *command: str) -> None:
        """A preparing step; AssertionError with its output unless it succeeds."""
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            cwd=self.folder,
            text=True,
            errors="replace",
            **self._identity,
        )
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"

    def log_tail(self, lines: int = 40) -> str:
        """The end of what the server wrote."""
        try:
            text = self._log.read_text(errors="replace")
        except OSError:
            text = ""
        return f"--- {self.name} wrote:\n" + "\n".join(text.splitlines()[-lines:])

    def _start(self) -> bool:
        """Start it once. False if it ended again: somebody may have taken the port meanwhile."""
        self.port = free_port()
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._identity,
            )
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                return False
            with contextlib.suppress(OSError):
                if self.answers():
                    return True
            time.sleep(0.02)
        raise AssertionError(f"{self.name} did not answer within {LIMIT} s\n{self.log_tail()}")

    def _stop(self) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(self.stop_signal)
            try:
                child.wait(LIMIT)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                raise AssertionError(f"{self.name} did not end within {LIMIT} s\n{self.log_tail()}") from None
        self._child = None

    def __enter__(self) -> Server:
        try:
            self.prepare()
            if not any(self._start() for _ in range(3)):
                raise AssertionError(f"{self.name} ended at once, three times\n{self.log_tail()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


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


class Vsftpd(Server):
    """vsftpd; an anonymous user may do everything in the folder `files`, where the file `gate` is."""

    name = "vsftpd"

    def find(self) -> None:
        self._program = find_program("vsftpd", "vsftpd")

    def prepare(self) -> None:
        for name in ("root/files", "empty"):
            (self.folder / name).mkdir(parents=True)
        self.gate = self.folder / "root" / "files" / "gate"
        self.gate.write_bytes(b"open")

    def command(self) -> list[str]:
        settings = {
            "listen": "YES",
            "listen_address": HOST,
            "listen_port": self.port,
            "background": "NO",
            "run_as_launching_user": "YES",
            "seccomp_sandbox": "NO",
            "secure_chroot_dir": self.folder / "empty",
            "anonymous_enable": "YES",
            "no_anon_password": "YES",
            "anon_root": self.folder / "root",
            "anon_upload_enable": "YES",
            "anon_other_write_enable": "YES",
            "anon_world_readable_only": "NO",
            "anon_umask": "022",
            "write_enable": "YES",
            "max_clients": "0",
            "max_per_ip": "0",
            "xferlog_enable": "NO",
            "vsftpd_log_file": self.folder / "vsftpd.log",
        }
        path = self.folder / "vsftpd.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [self._program, str(path)]

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 5) as sock:
            return sock.recv(100).startswith(b"220")


class Nginx(Server):
    """nginx on a plain port and one with TLS (self.tls_port), serving self.root. `certificate` is what to trust."""

    name = "nginx"

    def find(self) -> None:
        self._program = find_program("nginx", "nginx-light")
        self._openssl = find_program("openssl", "openssl")

    def prepare(self) -> None:
        self.root = self.folder / "root"
        self.root.mkdir()
        # Under root the workers are somebody else.
        self.folder.chmod(0o755)
        self.certificate, self._key = self.folder / "certificate.pem", self.folder / "key.pem"
        self.run(
            *(self._openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def command(self) -> list[str]:
        self.tls_port = free_port()
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        path = self.folder / "nginx.conf"
        path.write_text(f"""
            daemon off;
            worker_processes 1;
            pid {self.folder}/pid;
            error_log stderr;
            events {{ worker_connections 1024; }}
            http {{
                {temporary}
                access_log off;
                keepalive_requests 100000;
                server {{
                    listen {HOST}:{self.port} backlog=511;
                    listen {HOST}:{self.tls_port} ssl backlog=511;
                    ssl_certificate {self.certificate};
                    ssl_certificate_key {self._key};
                    root {self.root};
                }}
            }}
        """)
        return [self._program, "-e", "stderr", "-c", str(path)]

    def answers(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.certificate))
        with (
            socket.create_connection((HOST, self.tls_port), 5) as sock,
            context.wrap_socket(sock, server_hostname=HOST),
        ):
            return super().answers()


class Script(Server):
    """A server written in Python, from the folder `peers`: it runs without coro, on the Python of the tests, and is
    given the port and `arguments`."""

    def __init__(self, script: str, *arguments: str) -> None:
        self.name = script
        self._arguments = arguments
        super().__init__()

    def command(self) -> list[str]:
        return [sys.executable, str(PEERS / f"{self.name}.py"), str(self.port), *self._arguments]


def _environment(folder: str) -> dict[str, str]:
    """This process's, without what sends clients elsewhere or makes them trust others.

    Some clients load the system's certificates for every connection, and discard them: 25 ms each time that would only
    slow the tests down, so there are none.
    """
    dropped = ("_PROXY", "CA_BUNDLE", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD")
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith(dropped)}
    return {**environment, "SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": folder}


def run_peer(script: str, *arguments: object, servers: tuple[Server, ...] = (), limit: float = 120) -> list[str]:
    """Run a program of the folder `peers` in a process of its own; returns its lines. AssertionError, with what it and
    the servers wrote, unless it succeeds within `limit` seconds without writing to stderr."""
    command = [sys.executable, "-X", "faulthandler", str(PEERS / f"{script}.py"), *map(str, arguments)]

    def told() -> str:
        return "\n".join(server.log_tail() for server in servers)

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
            raise AssertionError(f"{script} still ran after {limit} s\n{output.decode()}\n{told()}") from None
    assert done.returncode == 0 and done.stderr == "", f"{script} ended with {done.returncode}\n{done.stderr}\n{told()}"
    return done.stdout.splitlines()
