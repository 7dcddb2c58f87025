"""``python -m coro``: Python with a loop that runs.

    python -m coro                          a prompt; each input runs in a thread of the loop
    python -m coro PROGRAM [ARGUMENT...]    the program as the main thread of a loop
    python -m coro -m MODULE [ARGUMENT...]  the same for a module
    python -m coro -c CODE [ARGUMENT...]    the same for code on the command line
    ... | python -m coro                    the same for code from stdin
    python -m coro --emulate ...            the same for what was written for OS threads; so are its children that run
                                            the same Python

A line editor waits in the kernel and knows nothing of a loop, and Python delivers Ctrl-C to the main OS thread. So the
prompt has that one, and the loop runs in another: while somebody types, the threads of the loop go on. An input is
posted to the loop, and the prompt waits for its end. Ctrl-C at the prompt gives up the line, Ctrl-C after that raises
KeyboardInterrupt in the thread of the input, where it waits. The loop does not hear of it while a thread computes: a
second Ctrl-C is raised in whatever runs. Since the loop of the prompt is not in the main OS thread, it cannot have
handlers of signals; programs and code can.

Cost: an OS thread, and two switches between OS threads for each input.
"""

from __future__ import annotations

import codeop
import ctypes
import os
import signal
import sys
import threading
import types
from queue import Empty, SimpleQueue
from types import CodeType
from typing import Any

import coro
from coro import emulation
from coro._entry import program
from coro._runtime import scheduler
from coro.backdoor._client import line_editing
from coro.backdoor._complete import complete

__all__ = ["main"]

HISTORY = "~/.coro_history"
#: Modules whose frames stand before those of the user in a traceback, beside this one.
_BETWEEN = ("coro._entry.loop", "coro._entry.program", "coro.emulation._install", "runpy")
#: Seconds between two looks at signals while an input runs: one that comes just before the wait does not end it.
LOOK = 0.5
#: Seconds that the threads of the loop have for their ends together: what coro.run() gives them, and a little more.
END = 7.0

USAGE = """\
usage: python -m coro                               Python's prompt in a running loop
       python -m coro PROGRAM [ARGUMENT...]         run a program as a thread of a loop
       python -m coro -m MODULE [ARGUMENT...]       run a module as a thread of a loop
       python -m coro -c CODE [ARGUMENT...]         run code as a thread of a loop
       python -m coro --emulate PROGRAM|-m|-c ...   run what was written for OS threads, unchanged: its threads are
                                                    threads of the loop, also in children that run the same Python
"""


def _without_own_frames(error: BaseException) -> BaseException:
    """Take what led to the user's code off the beginning of a traceback."""
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_globals is globals() or trace.tb_frame.f_globals.get("__name__") in _BETWEEN
    ):
        trace = trace.tb_next
    return error.with_traceback(trace)


class _Loop:
    """A loop in an OS thread of its own, which runs code for the prompt."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.status: Any = None  # of coro.set_exit(), or the error that ended the loop
        self._answers: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        self.executes = False  # is there an input that main waits for?
        self._number = 0
        self._main: Any = None
        self._input: Any = None
        self._heard = threading.Event()  # of the last interruption that was posted
        self._heard.set()
        self._os_thread = threading.Thread(target=self._run, name="coro loop", daemon=True)
        self._os_thread.start()
        self._answers.get()

    # -- in the OS thread of the loop

    def _run(self) -> None:
        try:
            coro.run(self._keep)
        except BaseException as exc:
            self.status = exc
        self._answers.put((-1, None))

    def _keep(self) -> None:
        """The main thread of the loop: as long as it waits there is a loop."""
        scheduler.current().set_name("prompt")
        self._main = scheduler.current()
        self._answers.put((0, None))
        scheduler._suspend_outside("the prompt")

    def _execute(self, number: int, code: CodeType) -> None:
        """Run one input. A thread of the loop."""
        self._input = scheduler.current().set_name(f"input {number}")
        outcome: BaseException | None = None
        try:
            exec(code, self.namespace)
        except BaseException as exc:
            outcome = exc
        self._input = None
        while True:
            try:
                self._strike(threading.get_ident(), None)
                if not scheduler._exit_pending():  # else the end of the loop is the answer
                    self._answers.put((number, outcome))
                return
            except KeyboardInterrupt:  # it came too late
                continue

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt where the input waits."""
        self._heard.set()
        thread = self._input
        if thread is not None and not thread.dead:
            thread.raise_exception(KeyboardInterrupt)

    # -- in the main OS thread

    def execute(self, code: CodeType) -> BaseException | None:
        """Run an input to its end; what it raised. EOFError when the loop has ended, by the input or otherwise."""
        self._number += 1
        self.executes = True
        try:
            coro.post(self._execute, self._number, code)
            while True:
                try:
                    number, outcome = self._answers.get(timeout=LOOK)
                except Empty:
                    continue
                if number == self._number:
                    return outcome
                if number == -1:
                    raise EOFError
        except coro.LoopError:
            raise EOFError from None
        finally:
            self.executes = False

    def interrupt(self) -> None:
        """Interrupt the input that runs. Called by the handler of SIGINT."""
        if self._heard.is_set():
            self._heard.clear()
            try:
                coro.post(self._interrupt)
            except coro.LoopError:
                pass
        elif self._os_thread.ident is not None and self._input is not None:
            self._strike(self._os_thread.ident, ctypes.py_object(KeyboardInterrupt))

    @staticmethod
    def _strike(os_thread: int, error: Any) -> None:
        """Have an exception raised in what runs in that OS thread; None takes one back that was not raised yet."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(os_thread), error)

    def end(self) -> None:
        """End the loop: its other threads get Shutdown."""
        try:
            coro.post(self._main.schedule)
        except coro.LoopError:
            pass
        self._os_thread.join(END)


class _Prompt:
    """Reads inputs and has them run, until there are no more or one of them ends the loop."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        self.namespace: dict[str, Any] = vars(module)
        self.namespace["coro"] = coro
        sys.modules["__main__"] = module
        self._compile = codeop.CommandCompiler()

    def complete(self, text: str, state: int) -> str | None:
        """For readline."""
        if state == 0:
            self._matches = complete(text, self.namespace) if text else ["    "]
        return self._matches[state] if state < len(self._matches) else None

    def run(self) -> Any:
        """The whole session; what the process exits with."""
        loop = _Loop(self.namespace)
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"coro {coro.__version__}, Python {python} on {sys.platform}. Inputs run in threads of a running loop;")
        signal.signal(signal.SIGINT, lambda signum, frame: self._interrupted(loop))
        print("Ctrl-C interrupts an input, a second one what computes; exit() or Ctrl-D ends all.")
        with line_editing(self.complete, HISTORY):
            try:
                return self._read_and_run(loop)
            except EOFError:
                print()
            finally:
                loop.end()
        status = loop.status
        if status is None or isinstance(status, SystemExit):
            return None if status is None else status.code
        sys.excepthook(type(status), status, status.__traceback__)
        return 1

    def _interrupted(self, loop: _Loop) -> None:
        """Ctrl-C. An exception would be raised wherever main happens to be, so the prompt only has one."""
        if not loop.executes:
            raise KeyboardInterrupt
        loop.interrupt()

    def _read_and_run(self, loop: _Loop) -> Any:
        lines: list[str] = []
        while True:
            try:
                lines.append(input(str(getattr(sys, "ps2", "... ") if lines else getattr(sys, "ps1", ">>> "))))
                code = self._code("\n".join(lines))
                if code is None:
                    continue
                lines = []
                error = loop.execute(code)
            except KeyboardInterrupt:
                print("\nKeyboardInterrupt")
                lines = []
            except SyntaxError as exc:
                lines = []
                exc = exc.with_traceback(None)
                sys.excepthook(type(exc), exc, None)
            else:
                if isinstance(error, SystemExit):
                    return error.code
                if error is not None:
                    error = _without_own_frames(error)
                    sys.excepthook(type(error), error, error.__traceback__)

    def _code(self, source: str) -> CodeType | None:
        """The input as code; None while lines are missing. SyntaxError for everything that cannot be compiled."""
        try:
            return self._compile(source, "<input>", "single")
        except (ValueError, OverflowError, MemoryError, RecursionError) as exc:
            raise SyntaxError(str(exc) or type(exc).__name__) from None


def _is_complete(arguments: list[str]) -> bool:
    """Do they say what to run?"""
    return len(arguments) > 1 if arguments[0] in ("-c", "-m") else arguments[0] == "-" or arguments[0][:1] != "-"


def main() -> Any:
    """The command; what the process exits with."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    emulate = arguments[:1] == ["--emulate"]
    arguments = arguments[emulate:]
    sys.path[0:1] = [""] if not sys.flags.safe_path else []
    names = {} if emulate else {"coro": coro}
    try:
        if (arguments and not _is_complete(arguments)) or (emulate and arguments in ([], ["-"]) and sys.stdin.isatty()):
            sys.stderr.write(USAGE)
            return 2
        if emulate:
            emulation.inherit_by_children()
            coro.install_thread_emulation()
        if arguments[:1] == ["-c"]:
            sys.argv = ["-c", *arguments[2:]]
            return program.run_code(arguments[1], "<string>", **names)
        if arguments[:1] == ["-m"]:
            sys.argv = arguments[1:]
            sys.path[0:1] = [os.getcwd()] if not sys.flags.safe_path else []
            return program.run_module(arguments[1])
        if arguments and arguments[0] != "-":
            sys.argv = arguments
            return program.run_file(arguments[0])
        sys.argv = arguments or [""]
        if not sys.stdin.isatty():
            return program.run_code(sys.stdin.read(), "<stdin>", **names)
    except program.NoSuchProgram as e:
        sys.stderr.write(f"coro: {e}\n")
        return 2
    except BaseException:
        # Python reports it, with the exit code that goes with its class; only the beginning of the traceback goes.
        hook = sys.excepthook
        sys.excepthook = lambda kind, error, trace: hook(kind, error, _without_own_frames(error).__traceback__)
        raise
    return _Prompt().run()


if __name__ == "__main__":
    sys.exit(main())
