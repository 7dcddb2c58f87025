"""A program that has no door open lets a session in all the same, from Python 3.14 on."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest
from support import LIMIT

from coro.backdoor import _attach, _client


def real(function):
    """A test that starts two Pythons, of a version that has ``sys.remote_exec``."""
    reason = "sys.remote_exec came with Python 3.14"
    function = pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason=reason)(function)
    return pytest.mark.slow(pytest.mark.each_python(function))


linux = pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells how a loop that waits can be woken")

LOOP = """
import coro, os

def waits():
    inside = 1234
    coro.sleep_relative(1000)

def main():
    coro.spawn(waits, thread_name="waiter")
    coro.spawn(print, "ready", flush=True)
    coro.sleep_relative(1000)

"""


@pytest.fixture
def folder():
    """For temporary files of client and program; a short path, because a UNIX socket has its place there."""
    path = tempfile.mkdtemp(prefix="a-", dir="/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Program:
    """A program that has said that it is ready, with what it needs to be talked to."""

    def __init__(self, folder, source, *options, before=(), shared=None, **more):
        self.environment = {**os.environ, "TMPDIR": shared or folder, "XDG_RUNTIME_DIR": folder}
        for name in ("PYTHON_DISABLE_REMOTE_DEBUG",):
            self.environment.pop(name, None)
        command = [*before, sys.executable, *options, "-c", textwrap.dedent(source)]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=self.environment, **more
        )
        words = self.process.stdout.readline().split()
        assert words[:1] == [b"ready"], self.complaints()
        self.pid = int(words[1]) if words[1:] else self.process.pid

    def complaints(self):
        self.errors.seek(0)
        lines = self.errors.read().decode().splitlines()
        return [line for line in lines if " High Latency: (" not in line]

    def client(self, module, *arguments, text="", wait=LIMIT):
        command = [sys.executable, "-m", f"coro.{module}", str(self.pid), *arguments, "--wait", str(wait)]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=LIMIT, env=self.environment
        )

    def end(self):
        self.process.kill()
        self.process.communicate()
        self.errors.close()


@pytest.fixture
def start(folder):
    with contextlib.ExitStack() as stack:

        def begin(source, *options, **more):
            program = Program(folder, source, *options, **more)
            stack.callback(program.end)
            return program

        yield begin


def left(folder):
    """Files that somebody has left. The folder of the doors that programs open has none."""
    found = []
    for path, folders, files in os.walk(folder):
        found += [os.path.join(path, name) for name in (*folders, *files)]
    return [path for path in found if path != os.path.join(folder, "coro")]


@real
@linux
def test_a_session_in_a_loop_that_waits(start, folder):
    program = start(LOOP + "coro.run(main)")
    for _ in range(2):
        done = program.client("backdoor", text="6 * 7\nsorted({t.name for t in coro.all_threads.values()})\n")
        assert done.returncode == 0, done.stderr
        assert "\n42\n['attached client', 'main', 'terminal reader', 'waiter']\n" in done.stdout
        assert f"no back door is open in process {program.pid}" in done.stderr and "remote_exec" in done.stderr
        assert left(folder) == []
    assert program.complaints() == []


@real
@linux
def test_debugging_a_thread_that_waits(start, folder):
    program = start(LOOP + "coro.run(main)")
    done = program.client("debug", "waiter", text="p inside\nwhere\nquit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--<coro thread 2 'waiter' sleeping> is here, ")
    assert "\n(Pdb) 1234\n" in "\n" + done.stdout
    again = program.client("debug", "2", text="up\nq\n")
    assert again.returncode == 0 and "Oldest frame" in again.stdout, again
    assert left(folder) == [] and program.complaints() == []


@real
@linux
def test_a_forked_child(start):
    program = start(
        LOOP.replace(
            '    coro.spawn(print, "ready", flush=True)',
            """
    if coro.fork():
        coro.sleep_relative(1000)
    coro.spawn(print, "ready", os.getpid(), flush=True)
            """,
        )
        + "coro.run(main)"
    )
    assert program.pid != program.process.pid
    try:
        done = program.client("backdoor", text="import os\nos.getpid(), min(coro.all_threads.items())[1].name\n")
        assert done.returncode == 0, done.stderr
        assert f"({program.pid}, 'main')" in done.stdout
    finally:
        os.kill(program.pid, signal.SIGKILL)


@real
@linux
def test_under_emulation(start):
    program = start(
        """
        import coro
        from coro import emulation
        emulation.install()
        import socket, time

        def main():
            coro.spawn(print, "ready", flush=True)
            time.sleep(1000)

        coro.run(main)
        """
    )
    done = program.client("backdoor", text="socket.socket.__module__, 6 * 7\n")
    assert done.returncode == 0, done.stderr
    assert ", 42)\n" in done.stdout
    assert program.complaints() == []


@real
@linux
def test_a_thread_that_computes_now_and_then(start):
    program = start(
        """
        import coro

        def main():
            print("ready", flush=True)
            while True:
                sum(range(1000))
                coro.yield_slice()

        coro.run(main)
        """
    )
    done = program.client("backdoor", text="6 * 7\n")
    assert done.returncode == 0 and "\n42\n" in done.stdout, done.stderr


REFUSALS = {
    "no coro": ("print('ready', flush=True)\nwhile True: pass", (), "has not imported coro"),
    "no loop": ("import coro\nprint('ready', flush=True)\nwhile True: pass", (), "no loop of coro runs in process"),
    "switched off": (LOOP + "coro.run(main)", ("-X", "disable-remote-debug"), "does not let others in"),
}


@real
@pytest.mark.parametrize("why", REFUSALS)
def test_programs_that_cannot_be_entered(start, folder, why):
    source, options, words = REFUSALS[why]
    program = start(source, *options)
    for module in ("backdoor", "debug"):
        done = program.client(module)
        assert done.returncode == 1 and done.stdout == ""
        assert words in done.stderr, done.stderr
        assert f"coro.{module}.start()" in done.stderr
        assert left(folder) == []
    assert program.complaints() == [] and program.process.poll() is None


@real
def test_a_program_that_does_not_get_back_to_python_in_time(start, folder):
    program = start(
        """
        import threading, sys, coro
        lock = threading.Lock()
        lock.acquire()
        threading.Thread(target=lambda: (sys.stdin.readline(), lock.release()), daemon=True).start()
        print("ready", flush=True)
        lock.acquire()
        print([n for n in range(3)], flush=True)
        """
    )
    done = program.client("backdoor", wait=0.3)
    assert done.returncode == 1 and "has not let this command in within 0.3 s" in done.stderr, done.stderr
    assert left(folder) == []
    # The program does not miss the file that has gone meanwhile.
    out, _ = program.process.communicate(b"go on\n", timeout=LIMIT)
    assert out == b"[0, 1, 2]\n" and program.complaints() == []


@real
@linux
def test_a_process_that_is_stopped(start, folder):
    program = start(LOOP + "coro.run(main)")
    os.kill(program.pid, signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    done = program.client("backdoor")
    assert done.returncode == 1 and f"kill -CONT {program.pid}" in done.stderr
    os.kill(program.pid, signal.SIGCONT)
    done = program.client("backdoor", text="6 * 7\n")
    assert done.returncode == 0 and "\n42\n" in done.stdout


@real
@linux
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_client_that_is_ended_leaves_nothing(start, folder, signum):
    program = start("import threading; print('ready', flush=True); threading.Lock().__enter__(); l = threading.Lock(); "
                    "l.acquire(); l.acquire()")
    client = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
         "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGTERM, signal.SIG_DFL); "
         f"from coro.backdoor import _client; raise SystemExit(_client.main(['{program.pid}', '--wait', '600']))"],
        env=program.environment, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        while not any(path.endswith("socket") for path in left(folder)):
            assert client.poll() is None
        client.send_signal(signum)
        client.communicate(timeout=LIMIT)
    finally:
        client.kill()
        client.communicate()
    assert client.returncode == (130 if signum == signal.SIGINT else 128 + signum)
    assert left(folder) == []


@real
@linux
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to run a program as somebody else")
def test_root_may_enter_what_others_run(start, folder):
    os.chmod(folder, 0o777)
    program = start(LOOP + "coro.run(main)", user=65534)
    done = program.client("backdoor", text="import os\nos.getuid()\n")
    assert done.returncode == 0 and "\n65534\n" in done.stdout, done.stderr


@real
@linux
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
def test_a_program_with_folders_of_its_own(start, folder):
    # A mount namespace, as `unshare -Urm` and containers make it. Its folder for temporary files is not ours.
    shared, own = os.path.join(folder, "t"), os.path.join(folder, "own")
    for path in (shared, own):
        os.mkdir(path)
        os.chmod(path, 0o777)
    command = ["unshare", "-Urm", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", own, shared]
    user = {"user": 65534} if os.getuid() == 0 else {}
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, **user).returncode:
        pytest.skip("no mount namespace can be had here")
    program = start(LOOP + "coro.run(main)", before=command, shared=shared, **user)
    done = program.client("backdoor", text=f"import os\nos.listdir({shared!r})\n")
    assert done.returncode == 0 and "\n[]\n" in done.stdout, done.stderr
    assert os.listdir(own) == os.listdir(shared) == []
    assert program.complaints() == []


# -- without another process


def test_where_the_loop_can_be_woken():
    text = (
        "pos:\t0\nflags:\t02\n"
        "tfd:        7 events:       19 data:         80000001  pos:0 ino:426 sdev:f\n"
        "tfd:        8 events:       19 data:         80000002  pos:0 ino:9a11 sdev:d\n"
        "tfd:       10 events: 80000001 data:         80000005  pos:0 ino:426 sdev:f\n"
    )
    assert _attach.signal_pipe(text) == 8
    assert _attach.signal_pipe(text.replace("80000001  pos", "7  pos")) is None
    assert _attach.signal_pipe("pos:\t0\n") is None


@linux
def test_our_own_poller_is_recognised():
    import coro
    from coro._poll import choose

    if choose.choose().__name__ != "EpollPoller":
        pytest.skip("the loop is on another poller")

    def main():
        coro.yield_slice()  # the first poll makes the descriptors
        found = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                    with open(f"/proc/self/fdinfo/{name}") as file:
                        found.append(_attach.signal_pipe(file.read()))
        numbers = [n for n in found if n is not None]
        assert len(numbers) == 1
        assert os.readlink(f"/proc/self/fd/{numbers[0]}").startswith("pipe:")

    coro.run(main)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/proc/1/maps"), "Run this command as the user of that process"),
        (ProcessLookupError(3, "No such process"), "has ended"),
        (RuntimeError("Remote debugging is not enabled in the remote process"), "-X disable-remote-debug"),
        (RuntimeError("Remote debugging is not enabled"), "the Python of this command"),
        (
            RuntimeError("Can't send commands from a Python 3.14 process to a Python 3.15 process"),
            "use the Python of the program: ",
        ),
        (RuntimeError("PyRuntime address lookup failed during debug offsets initialization"), "needs Python 3.14"),
    ],
)
def test_what_the_system_refuses(monkeypatch, folder, error, words):
    def refuses(pid, script):
        assert os.stat(os.path.dirname(script)).st_mode & 0o777 == 0o700
        raise error

    monkeypatch.setattr(sys, "remote_exec", refuses, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    with pytest.raises(_attach.CannotAttach) as info:
        _attach.attach(os.getpid(), "backdoor", 1)
    assert words in str(info.value)
    assert left(folder) == []


def test_ptrace_scope_is_named(monkeypatch, tmp_path):
    scope = tmp_path / "scope"
    scope.write_text("1\n")
    monkeypatch.setattr("builtins.open", lambda path, _open=open, **more: _open(scope, **more))
    text = _attach._why_forbidden(5, PermissionError(1, "Operation not permitted"))
    assert "kernel.yama.ptrace_scope is 1" in text and "CAP_SYS_PTRACE" in text


def test_a_loop_that_does_not_begin_the_session():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = {"state": "ran", "thread": "<coro thread 7 'crunch'>", "where": ["a.py:3 in f"]}
        theirs.send(ascii(found).encode() + b"\n")
        with pytest.raises(_attach.CannotAttach, match=r"(?s)has not begun the session.*'crunch'.*\n  a.py:3 in f"):
            _attach._expect_session(ours, 5, 0.05)


def test_a_loop_that_ends():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(_attach.CannotAttach, match="its loop is ending"):
            _attach._expect_session(ours, 5, LIMIT)


def test_time_to_wait(capsys):
    for text in ("0", "-1", "nan", "soon"):
        with pytest.raises(SystemExit):
            _client.main(["1", "--wait", text])
        assert "--wait" in capsys.readouterr().err
