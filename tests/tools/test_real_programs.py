"""The programs that tests start: what they are told, where their log goes, and that none outlives the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import real_programs
from real_programs import running

pytest_plugins = ["pytester"]

SUPPORT = Path(real_programs.__file__).resolve().parents[1]

# Says that it listens, does, and starts a child that would stay behind; tells both process ids.
LISTENER = """
import os, socket, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
with open("pids", "w") as f:
    f.write(f"{os.getpid()} {child.pid}")
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)      # before it does: who has connected can read it
s.listen()
time.sleep(600)
"""


class Listener(running.Server):
    """A server that starts a process of its own; `program` can be another one."""

    name = "listener"
    program = LISTENER

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", self.program, str(self.port)]

    def pids(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]


def lives(pid: int) -> bool:
    """Does a process of that number run?  One that has ended and that its parent has not looked after does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for_end(pid: int) -> None:
    """Until the process has ended; a minute bounds a hang."""
    deadline = time.monotonic() + 60
    while lives(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def logs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "KEPT", tmp_path / "kept")


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@linux
def test_a_server_and_what_it_started_end_with_the_block(tmp_path: Path) -> None:
    with Listener() as server:
        assert 20000 <= server.port < 32768
        socket.create_connection((running.HOST, server.port)).close()
        pids, folder = server.pids(), server.folder
        assert all(lives(pid) for pid in pids) and running.running == [server]
        assert "listening" in server.log_tail()
    for pid in pids:
        wait_for_end(pid)
    assert not folder.exists() and running.running == []
    assert not (tmp_path / "kept").exists()  # all went well


def test_a_failure_tells_what_the_server_wrote(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught, Listener():
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert "--- listener wrote:\nlistening" in note
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name in note and kept.read_text() == "listening\n"


def test_one_that_ends_at_once_is_started_again_elsewhere() -> None:
    class Busy(Listener):
        ports: list[int] = []

        def command(self) -> list[str]:
            self.ports.append(self.port)
            return super().command() if len(self.ports) == 3 else [sys.executable, "-S", "-c", "print('in use')"]

    with Busy() as server:
        assert server.port == Busy.ports[2] and "in use\nin use\nlistening" in server.log_tail()


def test_one_that_never_starts_is_told_with_its_log() -> None:
    class Broken(Listener):
        program = "print('no such option')"

    with pytest.raises(AssertionError, match=r"(?s)listener ended at once, three times.*no such option"):
        Broken().__enter__()
    assert running.running == []


@linux
@pytest.mark.skipif(not Path("/usr/bin/setpriv").exists(), reason="needs setpriv: install util-linux")
def test_no_server_outlives_the_tests_process() -> None:
    program = f"""
        import os, signal, sys
        sys.path[:0] = [{str(SUPPORT)!r}, {str(Path(__file__).parent)!r}]
        from test_real_programs import Listener
        with Listener() as server:
            print(*server.pids(), server.folder, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    server, child, folder = done.stdout.split()
    wait_for_end(int(server))
    # Nobody was left to kill what the server had started, or to remove its folder.
    os.kill(int(child), signal.SIGKILL)
    subprocess.run(["rm", "-r", folder], check=True)


def test_a_missing_program_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "needs no-such-program: install the Debian package nothing"
    monkeypatch.delenv("CORO_REQUIRE_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=words):
        running.find_program("no-such-program", "nothing")
    with pytest.raises(pytest.skip.Exception, match="needs no_such_module"):
        running.require_library("sys", "no_such_module")
    monkeypatch.setenv("CORO_REQUIRE_SERVERS", "1")
    with pytest.raises(pytest.fail.Exception, match=words):
        running.find_program("no-such-program", "nothing")
    with pytest.raises(pytest.skip.Exception, match="as root"):
        running.missing("as root only", required=False)


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as s:
            s.bind((running.HOST, 0))  # which is free for sure: of a port drawn, somebody else's connection may be left
            taken = s.getsockname()[1]
            if kind == socket.SOCK_STREAM:
                s.listen()
            drawn = iter([taken, taken, running.free_port()])
            with monkeypatch.context() as m:
                m.setattr(running.random, "randrange", lambda *limits: next(drawn))  # noqa: B023
                assert running.free_port() != taken


def test_the_log_of_a_fixtures_server_is_in_the_report(pytester: pytest.Pytester) -> None:
    """A server that outlives the failing test: no exception passes through its block."""
    pytester.makeconftest('pytest_plugins = ["real_programs.plugin"]')
    pytester.makepyfile(
        f"""
        import sys
        import pytest
        sys.path.append({str(Path(__file__).parent)!r})
        from real_programs import running
        from test_real_programs import Listener

        @pytest.fixture(scope="module")
        def server(tmp_path_factory):
            running.KEPT = tmp_path_factory.mktemp("kept")
            with Listener() as server:
                yield server

        def test_good(server):
            assert server.port

        def test_bad(server):
            assert not server.port
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-o", f"pythonpath={SUPPORT}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*log of listener*", "*listening*", "*all of it is in*"])
    assert result.stdout.str().count("log of listener") == 1
