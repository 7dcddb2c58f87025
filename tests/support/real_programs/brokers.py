"""Message brokers: RabbitMQ, one node or several, of this Debian's version or of Debian 13's; GarageMQ.

RabbitMQ's nodes find each other by epmd, a daemon that Erlang starts by itself and leaves behind for ever. So each
broker has an epmd of its own, started by us in the foreground on a port of its own; Erlang finds it and starts none.

Cost: a node starts in 4 to 6 s on an idle machine and takes 150 MB; a call of rabbitmqctl is a program of 2 s.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from . import debian13
from .running import HOST, LIMIT, Server, find_program, free_port, missing

#: The first bytes of a client, and what a broker's answer begins with: a method frame, Connection.Start's.
GREETING = b"AMQP\0\0\x09\x01"


def _answers(port: int) -> bool:
    with socket.create_connection((HOST, port), 5) as sock:
        sock.settimeout(LIMIT)
        sock.sendall(GREETING)
        return sock.recv(1) == b"\1"


class Epmd(Server):
    """Erlang's port mapper, in the foreground."""

    name = "epmd"

    def __init__(self, program: str | None = None) -> None:
        self._program = program or ""
        super().__init__()

    def find(self) -> None:
        self._program = self._program or find_program("epmd", "erlang-base")

    def command(self) -> list[str]:
        return [self._program, "-port", str(self.port), "-address", HOST, "-relaxed_command_check"]

    def log_tail(self, lines: int = 40) -> str:
        return ""


class RabbitMQ(Server):
    """One node of RabbitMQ, guest and guest on the loopback interface.

    `stop`, `kill` and `start` end it and start it again on the same port, with what it keeps on disk. `control` runs
    rabbitmqctl. `tls`: also listens with TLS on `tls_port`, `certificate` is what to trust, `client_certificate` and
    `client_key` are what a client shows who logs in by EXTERNAL, as the user `client`. `settings` go into
    rabbitmq.conf, `plugins` are enabled. `advanced` is what is in
    advanced.config, for what rabbitmq.conf has no name for.
    """

    name = "rabbitmq"
    library = "/usr/lib/rabbitmq/bin"
    erlang: Path | None = None

    def __init__(
        self,
        *,
        tls: bool = False,
        settings: dict[str, object] | None = None,
        plugins: tuple[str, ...] = (),
        node: str = "one",
        epmd: Epmd | None = None,
        cookie: str | None = None,
        advanced: str = "[].",
    ) -> None:
        super().__init__()
        self._advanced = advanced
        self._tls = tls
        self._settings = settings or {}
        self._plugins = plugins + (("rabbitmq_auth_mechanism_ssl",) if tls else ())
        self.node = f"{node}@localhost"
        self._own_epmd = epmd is None
        self._epmd = epmd
        self._cookie = cookie or secrets.token_hex(10).upper()
        self._starter: ThreadPoolExecutor | None = None
        self.tls_port = 0
        self._distribution_port = 0

    def find(self) -> None:
        if not (Path(self.library) / "rabbitmq-server").exists():
            missing("needs RabbitMQ: install the Debian package rabbitmq-server")

    def choose_port(self) -> int:
        # Once started, a node comes back where its clients look for it.
        if self._running_before:
            return self.port
        self.tls_port, self._distribution_port = free_port(), free_port()
        return free_port()

    def prepare(self) -> None:
        self._running_before = False
        for name in ("mnesia", "logs", "home"):
            (self.folder / name).mkdir()
        cookie = self.folder / "home" / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o400)
        (self.folder / "plugins").write_text(f"[{','.join(self._plugins)}].")
        (self.folder / "advanced.config").write_text(self._advanced)
        if self._epmd is None:
            self._epmd = Epmd(str(self.erlang / "bin" / "epmd") if self.erlang else None).__enter__()
        if self._tls:
            self._certificates()

    def _certificates(self) -> None:
        openssl = find_program("openssl", "openssl")
        self.certificate, key = self.folder / "ca.pem", self.folder / "ca-key.pem"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.run(
            *(openssl, "req", "-x509", *curve, "-days", "2", "-subj", "/CN=test authority"),
            *("-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", str(key), "-out", str(self.certificate)),
        )
        for name, purpose, subject in (("server", "serverAuth", "localhost"), ("client", "clientAuth", "client")):
            extensions = self.folder / f"{name}.ext"
            extensions.write_text(
                f"subjectAltName=DNS:localhost,IP:{HOST}\nextendedKeyUsage={purpose}\n"
                "keyUsage=critical,digitalSignature\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
            )
            request = self.folder / f"{name}.csr"
            self.run(
                *(openssl, "req", *curve, "-subj", f"/CN={subject}"),
                *("-keyout", str(self.folder / f"{name}-key.pem"), "-out", str(request)),
            )
            self.run(
                *(openssl, "x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.certificate)),
                *("-CAkey", str(key), "-CAcreateserial", "-extfile", str(extensions)),
                *("-out", str(self.folder / f"{name}.pem")),
            )
        self.client_certificate, self.client_key = self.folder / "client.pem", self.folder / "client-key.pem"

    def environment(self) -> dict[str, str]:
        assert self._epmd is not None
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        more = str(self.erlang / "bin") + os.pathsep if self.erlang else ""
        return ours | {
            "PATH": f"{more}{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": f"{self.folder}/home",
            "ERL_EPMD_PORT": str(self._epmd.port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CTL_DIST_PORT_MIN": "20000",
            "RABBITMQ_CTL_DIST_PORT_MAX": "32767",
            "RABBITMQ_MNESIA_BASE": f"{self.folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{self.folder}/logs",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{self.folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{self.folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self.folder}/plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{self.folder}/generated",
            "RABBITMQ_PID_FILE": f"{self.folder}/pid",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 1:1 +sbwt none -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
            ),
            # With it the script becomes the Erlang machine, in place of waiting for it as a shell.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def command(self) -> list[str]:
        settings: dict[str, object] = {
            "listeners.tcp.1": f"{HOST}:{self.port}",
            "log.console": "true",
            "log.console.level": "info",
            "vm_memory_high_watermark.absolute": "512MB",
            "disk_free_limit.absolute": "50MB",
        }
        if self._tls:
            settings |= {
                "listeners.ssl.1": f"{HOST}:{self.tls_port}",
                "ssl_options.cacertfile": self.certificate,
                "ssl_options.certfile": self.folder / "server.pem",
                "ssl_options.keyfile": self.folder / "server-key.pem",
                "ssl_options.verify": "verify_peer",
                "ssl_options.fail_if_no_peer_cert": "false",
                "ssl_cert_login_from": "common_name",
                "auth_mechanisms.1": "PLAIN",
                "auth_mechanisms.2": "AMQPLAIN",
                "auth_mechanisms.3": "EXTERNAL",
            }
        settings |= self._settings
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.folder / "rabbitmq.conf").write_text(text)
        self._log_before = self._log.stat().st_size
        return [f"{self.library}/rabbitmq-server"]

    def answers(self) -> bool:
        """It accepts clients some time before rabbitmqctl has anything to do with it."""
        with open(self._log, "rb") as log:
            log.seek(self._log_before)
            return b"Server startup complete" in log.read() and _answers(self.port)

    def control(self, *command: object, limit: float = LIMIT) -> str:
        """Run rabbitmqctl; returns what it wrote. AssertionError unless it succeeds."""
        done = subprocess.run(
            [f"{self.library}/rabbitmqctl", "-n", self.node, "--quiet", *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=self.folder,
            env=self.environment(),
        )
        assert done.returncode == 0, f"rabbitmqctl {command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def evaluate(self, erlang: str) -> str:
        """The value of an Erlang expression inside the node, as text."""
        return self.control("eval", erlang).strip()

    def close_connections(self, reason: str = "closed by the operator") -> None:
        """As `rabbitmqctl close_all_connections`: the broker sends Connection.Close with 320."""
        self.control("close_all_connections", reason)

    @contextlib.contextmanager
    def alarm(self):  # type: ignore[no-untyped-def]
        """For the time of a block the broker is short of memory, and blocks who publishes."""
        self.control("set_vm_memory_high_watermark", "0.00000001")
        try:
            yield
        finally:
            self.control("set_vm_memory_high_watermark", "absolute", "512MB")

    def stop(self) -> None:
        """End the node in order: connections are closed with 320. What is durable stays."""
        self._stop()

    def kill(self) -> None:
        """End the node at once, as a power failure would."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        self._stop()

    def start(self) -> None:
        """Start the node again, where it was."""
        assert self._child is None and self._running_before
        deadline = time.monotonic() + LIMIT
        # The system ends it when the OS thread ends that has started it (prctl(2), PR_SET_PDEATHSIG), so that has to be
        # one that stays, whoever calls this.
        self._starter = self._starter or ThreadPoolExecutor(1)
        while not self._starter.submit(self._start).result():
            # Its name may be taken for as long as epmd has not seen that the one before has gone.
            assert time.monotonic() < deadline, f"{self.name} did not come back\n{self.log_tail()}"
            time.sleep(0.2)

    def __enter__(self) -> Self:
        super().__enter__()
        self._running_before = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, traceback)
        finally:
            if self._starter is not None:
                self._starter.shutdown()
            if self._own_epmd and self._epmd is not None:
                self._epmd.__exit__(None, None, None)
                self._epmd = None


class RabbitMQ4(RabbitMQ):
    """RabbitMQ 4 with its own Erlang, out of Debian 13."""

    name = "rabbitmq4"

    def find(self) -> None:
        if not sys.platform.startswith("linux"):
            missing("RabbitMQ 4 is taken out of Debian 13, which runs on Linux only", required=False)
        root = debian13.rabbitmq()
        self.library = f"{root}/usr/lib/rabbitmq/bin"
        self.erlang = root / "usr/lib/erlang"


class RabbitMQCluster:
    """Several nodes of RabbitMQ that are one broker: `nodes`, each a `RabbitMQ`."""

    def __init__(self, size: int = 3, **settings: object) -> None:
        self._epmd = Epmd()
        self._settings = settings
        cookie = secrets.token_hex(10).upper()
        self._stack = contextlib.ExitStack()
        first = "node1@localhost"
        self.nodes = [
            RabbitMQ(
                node=f"node{number}",
                epmd=self._epmd,
                cookie=cookie,
                settings={
                    # Looked at when a node starts for the first time; it comes back by what it keeps on disk.
                    "cluster_formation.peer_discovery_backend": "classic_config",
                    "cluster_formation.classic_config.nodes.1": first,
                    "cluster_formation.randomized_startup_delay_range.min": 0,
                    "cluster_formation.randomized_startup_delay_range.max": 0,
                    **settings,
                },
            )
            for number in range(1, size + 1)
        ]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(HOST, node.port) for node in self.nodes]

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._epmd)
            for node in self.nodes:
                self._stack.enter_context(node)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


class GarageMQ(Server):
    """GarageMQ, another broker of AMQP 0-9-1: what it has in common with RabbitMQ is more than the name of the user."""

    name = "garagemq"
    stop_signal = signal.SIGINT

    def find(self) -> None:
        self._program = find_program("garagemq", "garagemq")

    def command(self) -> list[str]:
        settings = self.folder / "config.yaml"
        data = self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        settings.write_text(
            "proto: amqp-rabbit\n"
            # The password as a bare MD5, as this broker wants it: guest.
            "users:\n  - username: guest\n    password: 084e0343a0486ff05530df6c705c8bb4\n"
            f"tcp:\n  ip: {HOST}\n  port: {self.port}\n  nodelay: true\n"
            "  readBufSize: 196608\n  writeBufSize: 196608\n"
            f"admin:\n  ip: {HOST}\n  port: {free_port()}\n"
            "queue:\n  shardSize: 8192\n  maxMessagesInRam: 131072\n"
            f"db:\n  defaultPath: {data}\n  engine: badger\n"
            "vhost:\n  defaultPath: /\n"
            "security:\n  passwordCheck: md5\n"
            "connection:\n  channelsMax: 4096\n  frameMaxSize: 65536\n"
        )
        return [self._program, "--config", str(settings), "--log-file", "stdout"]

    def answers(self) -> bool:
        return _answers(self.port)
