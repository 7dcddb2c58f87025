"""Programs for tests of the thread emulation."""

from __future__ import annotations

from support import ok


def emulated(source: str) -> list[str]:
    """Run a program whose `main` is the main thread of an emulated program; the lines that it prints."""
    lines = source.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n".join(line[indent:] for line in lines)
    return ok("import coro\ncoro.install_thread_emulation()\n" + body + "\ncoro.run(main)\n", "-Werror")
