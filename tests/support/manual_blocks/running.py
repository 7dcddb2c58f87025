"""Runs the blocks of a part of a page in this process, one after the other, with the names of those before.

A block of Python runs in a thread of a loop, unless it starts one itself. The first of a page that readers try first
runs with nothing around it: no loop, and no name that it does not define. File and lines are those of the page, so a
traceback names them. What it prints is kept: `printed()` has it, and a block noted "output" shows it. An exception that
ends a thread is a failure of the block, too.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import faulthandler
import io
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path

import coro
from manual_blocks import commands, reading

LENIENT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 30  # seconds; only a hang takes them


class BlockFailed(Exception):
    """A block ran, and did not do what the page says."""


def starts_a_loop(source: str) -> bool:
    """Whether `coro.run` or `coro.event_loop` is used outside of its functions and classes."""
    left: list[ast.AST] = [ast.parse(source)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("coro.run", "coro.event_loop"):
            return True
        inner = (ast.FunctionDef, ast.ClassDef, ast.Lambda)
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, inner)]
    return False


def agree(wanted: str, got: str) -> bool:
    """Whether an output is the one shown, where "..." stands for anything and white space does not matter."""
    return doctest.OutputChecker().check_output(wanted, got, LENIENT)


class Part:
    """The namespace of the blocks, and what they have done so far."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.names = module.__dict__
        self.names.update(coro=coro, printed=self.printed, meanwhile=self.meanwhile, connected=connected, ports={})
        self.names.update(beside=beside)
        self.out = io.StringIO()
        self.last = ""  # what the block before printed
        self.failures: list[str] = []

    # -- for the notes "before" and "after" --------------------------------------------------------------------------

    def printed(self) -> str:
        """What the block has printed so far."""
        return self.out.getvalue()

    def meanwhile(self, function: Callable[[], object], signum: int | None = signal.SIGINT) -> None:
        """Call `function()` in an OS thread while the block runs, and then send this process the signal, if any."""

        def work() -> None:
            try:
                function()
            except BaseException:
                self.failures.append(traceback.format_exc())
            if signum is not None:
                os.kill(os.getpid(), signum)

        threading.Thread(target=work, daemon=True).start()

    # -- blocks ------------------------------------------------------------------------------------------------------

    def failed(self) -> None:
        """The exception notifier while a block runs."""
        self.failures.append(f"in {coro.current()!r}:\n{traceback.format_exc()}")

    def execute(self, block: reading.Block, line: int, code: str) -> None:
        exec(compile("\n" * (line - 1) + code, block.page, "exec"), self.names)

    def execute_alone(self, block: reading.Block, code: str) -> None:
        """Run a program as `python FILE` would, without the names of notes and of blocks before."""
        module = types.ModuleType("__main__")
        shared, sys.modules["__main__"] = sys.modules["__main__"], module
        try:
            exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), module.__dict__)
        finally:
            sys.modules["__main__"] = shared
            self.names.update({name: value for name, value in vars(module).items() if not name.startswith("__")})

    def text(self, block: reading.Block) -> str:
        """The code of a block with the ports and words that its notes exchange."""
        code = block.code
        for note in block.all("port"):
            port = self.names["ports"].setdefault(int(note.text), free_port())
            code = re.sub(rf"\b{note.text}\b", str(port), code)
        for note in block.all("replace"):
            old, _, new = note.text.partition(" ")
            if old not in code:
                raise BlockFailed(f"the note 'replace' expects {old!r} in the block")
            code = code.replace(old, new.format_map({"port": self.names["ports"]}))
        return code

    def python(self, block: reading.Block) -> None:
        code = self.text(block)
        wanted = block.get("raises")

        def run() -> None:
            for note in block.all("before"):
                self.execute(block, note.line, note.code)
            try:
                if block.whole:
                    self.execute_alone(block, code)
                else:
                    self.execute(block, block.line, code)
            except BaseException as error:
                if wanted is None or not isinstance(error, eval(wanted, self.names)):
                    raise
                self.names["error"] = error
            else:
                if wanted is not None:
                    raise BlockFailed(f"expected {wanted} from this block, got no exception")
            for note in block.all("after"):
                self.execute(block, note.line, note.code)

        self.in_a_loop(block, run, block.whole or starts_a_loop(code))

    def session(self, block: reading.Block) -> None:
        """A block of the interactive interpreter: compare what it shows."""
        said: list[str] = []

        def run() -> None:
            for note in block.all("before"):
                self.execute(block, note.line, note.code)
            test = doctest.DocTestParser().get_doctest(
                self.text(block), self.names, block.page, block.page, block.line - 1
            )
            runner = doctest.DocTestRunner(optionflags=LENIENT)
            runner.run(test, out=said.append, clear_globs=False)
            self.names.update(test.globs)
            for note in block.all("after"):
                self.execute(block, note.line, note.code)

        self.in_a_loop(block, run, False)
        if said:
            raise BlockFailed("\n" + "".join(said))

    def in_a_loop(self, block: reading.Block, function: Callable[[], None], has_its_own: bool) -> None:
        quiet = block.get("threads fail") is not None
        before = coro.set_exception_notifier((lambda: None) if quiet else self.failed)
        self.out = io.StringIO()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.redirect_stdout(self.out))
                if block.get("virtual clock") is not None:
                    from coro import testing

                    stack.enter_context(testing.virtual_clock(autojump=True))
                if has_its_own or block.get("no loop") is not None:
                    function()
                else:
                    coro.run(function)
        finally:
            coro.set_exception_notifier(before)
            self.last = self.printed()
        if self.failures:
            raise BlockFailed("beside the block:\n" + "\n".join(self.failures))

    def output(self, block: reading.Block) -> None:
        """A block that shows what the one before printed."""
        if not agree(block.code, self.last):
            raise BlockFailed(f"expected this output:\n{block.code}\ngot\n{self.last}")

    def console(self, block: reading.Block, folder: str) -> None:
        """Run commands, and compare what they print."""
        place = ROOT / folder.removeprefix("in ").strip() if folder else Path.cwd()
        with tempfile.TemporaryDirectory() as programs:
            for name in ("python", "python3"):
                # not a link: an interpreter that is called by one does not find its virtual environment
                Path(programs, name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
                Path(programs, name).chmod(0o755)
            path = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            for command, wanted in commands.commands(self.text(block)):
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=place,
                    env={**os.environ, "PATH": path},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                if wanted.strip() and not agree(wanted, done.stdout):
                    raise BlockFailed(f"expected from {command!r}:\n{wanted}\ngot\n{done.stdout}")
                if done.returncode and not wanted.strip():
                    raise BlockFailed(f"{command!r} ended with {done.returncode}:\n{done.stdout}")

    def run(self, block: reading.Block) -> None:
        name, folder = block.get("file"), block.get("run")
        if name is not None:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(self.text(block), encoding="utf-8")
        elif block.get("output") is not None:
            self.output(block)
        elif block.language == "pycon":
            self.session(block)
        elif block.language == "python":
            self.python(block)
        elif block.language == "console" and folder is not None:
            self.console(block, folder)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def connected(port: int) -> socket.socket:
    """A blocking socket of the standard library that is connected to a port of this machine, once somebody listens."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.002)


def beside(function: Callable[..., object], *arguments: object) -> None:
    """Run `function(*arguments)` in the loop of a child process until this process ends."""
    lasting, ours = os.pipe()

    def work() -> None:
        os.close(ours)
        threading.Thread(target=lambda: (os.read(lasting, 1), os._exit(0)), daemon=True).start()
        coro.run(function, *arguments)

    # Forked: a function of a note cannot be imported by another process.
    multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
    os.close(lasting)


def hangs(place: str) -> None:
    """End the process, because a block does not."""
    sys.stderr.write(f"\n{place}: this block still runs after {PATIENCE} seconds\n")
    sys.stderr.flush()
    faulthandler.dump_traceback()
    os._exit(1)


def run(blocks: list[reading.Block]) -> None:
    """Run the blocks of a part. Ends the process with status 1 and a report if one fails."""
    sys.path.insert(0, os.getcwd())
    part = Part()
    for block in blocks:
        if not block.runs:
            continue
        watchdog = threading.Timer(PATIENCE, hangs, [block.place])
        watchdog.daemon = True
        watchdog.start()
        place, block.page = block.place, str(ROOT / block.page)  # so that a traceback shows the line
        try:
            part.run(block)
        except BaseException as error:
            sys.stderr.write(f"\n{place}: this block failed, after printing {part.last!r}\n")
            if isinstance(error, BlockFailed):
                sys.stderr.write(f"{error}\n")
            else:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        watchdog.cancel()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever an example has left running
