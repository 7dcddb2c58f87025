"""``python -m coro``: the prompt on a pseudo terminal, and programs that run in a loop."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

PATIENCE = 60

pytestmark = [pytest.mark.slow, pytest.mark.newest]  # each starts a Python


def command(*arguments, input=None):
    return subprocess.run(
        [sys.executable, "-m", "coro", *map(str, arguments)],
        input=input, stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def without_escapes(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "")


class Terminal:
    """The prompt on a terminal of its own."""

    def __init__(self, tmp_path):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 400, 0, 0))  # no line is broken
        environment = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb", "PYTHON_COLORS": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coro"], stdin=slave, stdout=slave, stderr=slave, env=environment,
            start_new_session=True, preexec_fn=take_terminal,
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def until(self, text):
        """Read until the text has come; what was before it."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"expected {text!r}, got {self.seen!r}"
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            assert data, f"expected {text!r}, got the end after {self.seen!r}"
            self.seen = without_escapes(self.seen + data.decode())
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, line):
        """Type a line, and skip its echo."""
        os.write(self.master, line.encode() + b"\n")
        self.until(line + "\n")

    def __call__(self, line):
        """Type a line, and read what it gives until the next prompt."""
        self.type(line)
        return self.until(">>> ").rstrip("\n")

    def interrupt(self):
        os.write(self.master, b"\x03")

    def interrupt_line(self):
        """Ctrl-C, again each second until it is seen: readline does not hear of one that comes as it begins to wait;
        what computes is only interrupted by the second one."""
        end = time.monotonic() + PATIENCE
        while "KeyboardInterrupt" not in self.seen and time.monotonic() < end:
            self.interrupt()
            again = time.monotonic() + 1
            while "KeyboardInterrupt" not in self.seen and select.select(
                [self.master], [], [], max(0, again - time.monotonic())
            )[0]:
                self.seen += without_escapes(os.read(self.master, 65536).decode())
        self.until("KeyboardInterrupt")
        self.until(">>> ")

    def end(self):
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.master)


def take_terminal():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tmp_path):
    t = Terminal(tmp_path)
    try:
        assert "coro" in t.until(">>> ")
        yield t
    finally:
        if t.process.poll() is None:
            t.process.kill()
            t.process.wait()


def test_inputs_run_in_threads_of_a_running_loop(terminal):
    assert terminal("coro.coro_is_running(), coro.current().name") == "(True, 'input 1')"
    assert terminal("x = coro.spawn(lambda: coro.sleep_relative(0.001) or 42)") == ""
    assert terminal("x.join(), x.result, _[1]") == "(None, 42, 'input 1')"
    terminal.type("def f(n):")
    terminal.until("... ")
    terminal.type("    return 2 * n")
    terminal.until("... ")
    assert terminal("") == ""
    assert terminal("f(4)") == "8"
    assert terminal("import __main__; __main__.f is f") == "True"
    error = terminal("1 / 0").split("\n")
    assert error[0] == "Traceback (most recent call last):" and error[-1] == "ZeroDivisionError: division by zero"
    assert "__main__.py" not in "".join(error)
    assert terminal("1 +* 2").endswith("SyntaxError: invalid syntax")
    terminal.type("exit(3)")
    assert terminal.end() == 3


def test_threads_go_on_while_the_prompt_waits(terminal):
    terminal(r"exec('def tick():\n  for n in range(3): coro.sleep_relative(0.001); print(\"tick\", n)')")
    terminal.type("coro.spawn(tick) and None")
    terminal.until("tick 2")
    os.write(terminal.master, b"\n")
    terminal.until(">>> ")
    os.write(terminal.master, b"\x04")
    assert terminal.end() == 0


def test_ctrl_c_interrupts_the_input_only(terminal):
    terminal("e = coro.event(); t = coro.spawn(e.wait)")
    os.write(terminal.master, b"half a line")
    terminal.until("half a line")
    terminal.interrupt_line()
    terminal.type("print('waits'); coro.sleep_relative(1000)")
    terminal.until("waits\n")
    terminal.interrupt()
    assert terminal.until(">>> ").rstrip().endswith("KeyboardInterrupt")
    terminal(r"exec('def compute():\n  print(\"computes\")\n  while True: pass')")
    terminal.type("compute()")
    terminal.until("computes\n")
    terminal.interrupt_line()
    assert terminal("t.dead") == "False"
    terminal.type("coro.set_exit(5)")
    assert terminal.end() == 5


def test_completion_and_history(terminal, tmp_path):
    pytest.importorskip("readline")
    os.write(terminal.master, b"coro.sleep_rel\t(0)\n")
    assert "coro.sleep_relative(0)" in terminal.until(">>> ")
    os.write(terminal.master, b"\x04")
    assert terminal.end() == 0
    history = tmp_path / ".coro_history"
    assert "coro.sleep_relative(0)" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_what_is_piped_in_runs_in_a_loop():
    done = command(input="import sys\nprint(coro.coro_is_running(), sys.argv)\ncoro.spawn(print, 'two').join()\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True ['']\ntwo\n", "")
    done = command(input="def f():\n    1 / 0\nf()\n")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ZeroDivisionError: division by zero"
    assert "__main__.py" not in done.stderr
    assert command(input="1 +* 2").returncode == 1
    assert command(input="raise SystemExit(4)").returncode == 4
    assert command(input="coro.set_exit(6); coro.sleep_relative(10)").returncode == 6


def test_code_and_programs_run_in_a_loop(tmp_path):
    done = command("-c", "import sys; print(coro.current().id > 0, sys.argv)", "-x", 1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True ['-c', '-x', '1']\n", "")
    program = tmp_path / "program.py"
    (tmp_path / "beside.py").write_text("value = 7")
    program.write_text(
        "import sys, beside, coro\nprint(__name__, beside.value, sys.argv[1:], coro.current().id > 0)\n"
        "coro.spawn(print, 'two').join()\nsys.exit(9)\n"
    )
    done = command(program, "-v", "--help")
    assert (done.returncode, done.stdout, done.stderr) == (9, "__main__ 7 ['-v', '--help'] True\ntwo\n", "")
    program.write_text("1 / 0\n")
    done = command(program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == f'  File "{program}", line 1, in <module>'
    done = command(tmp_path / "none.py")
    assert done.returncode == 2 and done.stderr.startswith("coro: can't open file ")


@pytest.mark.parametrize(
    ("error", "code"),
    [("coro.TimeoutError()", 1), ("coro.Shutdown()", 1), ("KeyboardInterrupt()", -signal.SIGINT),
     ("BaseExceptionGroup('several', [GeneratorExit()])", 1)],
)  # fmt: skip
def test_a_traceback_begins_in_the_program_whatever_its_error_is(tmp_path, error, code):
    program = tmp_path / "program.py"
    program.write_text(f"import coro\nraise {error}\n")
    done = command(program)
    assert done.returncode == code
    assert done.stderr.splitlines()[1].lstrip(" |") == f'File "{program}", line 2, in <module>'
    assert "__main__.py" not in done.stderr and "runpy" not in done.stderr


def test_wrong_options_and_help():
    done = command("--unknown")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m coro")
    assert command("-h").stdout == done.stderr
