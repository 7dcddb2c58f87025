"""Writes the recording of a back-door session that the manual shows, by really having that session.

The program stuck.py runs in one process, the client in another with a pseudo terminal of its own, and this script
types. What appears on the terminal is the recording; only what differs from machine to machine (the version of Python,
addresses of objects) is written in a common form. Run it without arguments to see it, with a file name to write it
there; a test compares what it gives with what the manual shows.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE = 60

#: What is typed, one prompt after the other. A tab completes.
TYPED = [
    "threads('mutex')",
    "holder = thread(2)",
    "holder.waiting_for",
    "holder.get_frame().f_locals['customer']",
    "len(jour\t)",
    "stuck = journal_lock.waiting",
    "[t.name for t in stuck]",
    "holder.shutdown()",
    "for t in stuck:\n    t.join()\n",
    "threads('mutex')",
    "len(journal)",
    "exit()",
]


class Terminal:
    """A program on a pseudo terminal: what it shows, and a way to type."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.shown = ""
        self._seen = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", **environment})

    def _read(self) -> bool:
        if not select.select([self.fd], [], [], PATIENCE)[0]:
            raise TimeoutError(f"nothing more came after {self.shown!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux: the program has gone
            data = b""
        self.shown += data.decode("utf-8", "replace").replace("\r", "")
        return bool(data)

    def until(self, text: str) -> None:
        """Wait until the terminal shows that, after what was waited for before."""
        while (at := self.shown.find(text, self._seen)) < 0:
            if not self._read():
                raise EOFError(self.shown)
        self._seen = at + len(text)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        """Wait until the program has ended; its exit status."""
        while self._read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def tidy(text: str) -> str:
    """Take out what is not the same everywhere."""
    text = re.sub(r"Python 3\.\d+[^\n]*\n(\[[^\n]*\n)?Copyright[^\n]*\n", "Python 3.13 on linux\n", text)
    text = re.sub(r"0x[0-9a-f]+", "0x7f12a4c0", text.replace("\a", ""))
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def record() -> str:
    """Have the session; what the terminal showed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "door")
        shop = subprocess.Popen([sys.executable, str(HERE / "stuck.py"), path], stdout=subprocess.PIPE, text=True)
        try:
            assert shop.stdout is not None
            assert shop.stdout.readline() == "ready\n"
            terminal = Terminal([sys.executable, "-m", "coro.backdoor", path], HOME=folder, PYTHON_COLORS="0")
            for entry in TYPED:
                terminal.until(">>> ")
                lines = entry.split("\n")
                for position, line in enumerate(lines):
                    if position:
                        terminal.until("... ")
                    terminal.type(line)
                    terminal.type("\n")
            status = terminal.end()
            assert status == 0, (status, terminal.shown)
        finally:
            shop.send_signal(signal.SIGINT)
            shop.wait(PATIENCE)
            if shop.stdout is not None:
                shop.stdout.close()
    return tidy("$ python -m coro.backdoor /run/shop/backdoor\n" + terminal.shown)


if __name__ == "__main__":
    recording = record()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(recording, encoding="utf-8")
    else:
        print(recording, end="")
