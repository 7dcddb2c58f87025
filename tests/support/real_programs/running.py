"""How a real program is run for a test: a free port, waiting until it is ready, its log, its end.

Ports come from 20000 to 32767, below those that Linux hands out by itself (ip(7), ip_local_port_range), so that no
outgoing connection can be in the way. A port found free can be taken by somebody else before the program has it; then
the program ends, and is started again on another one.

No program outlives its test. It has a process group of its own, which is killed after it has ended, for what it may
have started; and on Linux it is told to end (setpriv(1), --pdeathsig) should this process be killed.

Cost: 0.1 s to start the small ones, 1 s for the databases, which have to make their files first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

#: Seconds in which a program has to answer, and to end when told to. Generous: the machine may be busy.
LIMIT = 60

HOST = "127.0.0.1"

#: Where the logs are kept that belong to a failure.
KEPT = Path(__file__).resolve().parents[3] / ".dev" / "log" / "programs"

#: Where Debian has what is not on everybody's PATH.
_MORE_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")

#: The servers that run at the moment, in the order of their start.
running: list[Server] = []

_numbers = itertools.count(1)


def missing(text: str, required: bool = True) -> NoReturn:
    """Skip the test, or fail it where everything has to be there (CORO_REQUIRE_SERVERS=1).

    required: can it be there on every machine?
    """
    import pytest  # here, because benchmarks start programs in environments without it

    if required and os.environ.get("CORO_REQUIRE_SERVERS") == "1":
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
    return path


def free_port() -> int:
    """A port that nobody uses at the moment, neither for TCP nor for UDP."""
    for _ in range(1000):
        port = random.randrange(20000, 32768)
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                stream.bind((HOST, port))
                datagrams.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("expected a free port from 20000 to 32767, found none")


def _ended_with_us(command: list[str], number: signal.Signals) -> list[str]:
    """`command`, so that it gets the signal `number` when this process dies (Linux).

    By a program of util-linux that becomes the command, not by subprocess's preexec_fn, which is not safe where there
    are several OS threads.
    """
    program = shutil.which("setpriv") if sys.platform.startswith("linux") else None
    return [program, "--pdeathsig", number.name.removeprefix("SIG"), "--", *command] if program else command


class Server:
    """One server, running for the time of a `with` block: `port` is where it listens, `folder` where its files are.

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

    def choose_port(self) -> int:
        """The port for a start. A server that is stopped and started again on the same one says so here."""
        return free_port()

    def environment(self) -> dict[str, str] | None:
        """The environment of the server; None: this process's."""
        return None

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

    def tell(self) -> str:
        """For a failure: the end of the log, and where all of it is kept."""
        kept = KEPT / f"{self.name}-{os.getpid()}-{next(_numbers)}.log"
        with contextlib.suppress(OSError):
            KEPT.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._log, kept)
        return f"{self.log_tail()}\n--- all of it is in {kept}"

    def _start(self) -> bool:
        """Start it once. False if it ended again: somebody may have taken the port meanwhile."""
        self.port = self.choose_port()
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                _ended_with_us(self.command(), self.stop_signal),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment(),
                process_group=0,
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
        try:
            if child.poll() is None:
                child.send_signal(self.stop_signal)
                child.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {LIMIT} s\n{self.tell()}") from None
        finally:
            # What it started and left behind; and itself, if it did not end.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self._child = None

    def __enter__(self) -> Self:
        try:
            self.prepare()
            if not any(self._start() for _ in range(3)):
                raise AssertionError(f"{self.name} ended at once, three times\n{self.log_tail()}")
        except BaseException as error:
            self.__exit__(type(error), None, None)
            raise
        running.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if self in running:
            running.remove(self)
        try:
            if isinstance(error, Exception):
                error.add_note(self.tell())
            self._stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
