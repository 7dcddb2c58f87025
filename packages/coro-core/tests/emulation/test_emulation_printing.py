"""What threads of an emulated program print is whole: no line of another thread stands in it."""

import os
import re
import subprocess
import sys

import pytest
from support import LIMIT

PROGRAM = """
import sys, threading, traceback
STREAM = getattr(sys, sys.argv[1])

class Failure(Exception):
    def __str__(self):
        return "x" * 200 + "\\n" + "y" * 200 + "\\nend %s" % self.args

def work(i):
    for j in range(40):
        print("begin", f"{i}.{j}", "x" * 200 + "\\n" + "y" * 200 + "\\nend", f"{i}.{j}", file=STREAM)
        try:
            raise Failure(f"{i}.{j}")
        except Failure:
            traceback.print_exc(file=STREAM)
    raise Failure(f"{i}.last")

threads = [threading.Thread(target=work, args=(i,), name=f"worker {i}") for i in range(20)]
[one.start() for one in threads]
[one.join() for one in threads]
"""
PRINTED = r"begin (?P<print>\d+\.\d+) x{200}\ny{200}\nend (?P=print)\n"
FRAME = r"(?:  File .*\n(?:    .*\n)*)"
TRACEBACK = (
    rf"(?:Exception in thread worker \d+:\n)?Traceback \(most recent call last\):\n{FRAME}+"
    r"(?:__main__\.)?Failure: x{200}\ny{200}\nend \S+\n"
)
WHOLE = re.compile(rf"(?:{PRINTED})|(?:{TRACEBACK})")


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("option", [[], ["-u"]], ids=["buffered", "unbuffered"])
def test_lines_of_threads_are_not_mixed(tmp_path, stream, option):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    reader, writer = os.pipe()
    command = [sys.executable, *option, "-m", "coro", "--emulate", str(program), stream]
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    with subprocess.Popen(command, **{stream: writer, other: subprocess.DEVNULL}) as process:
        os.close(writer)
        with open(reader, "rb", buffering=0) as pipe:
            text = b"".join(iter(lambda: pipe.read(1000), b"")).decode()
        assert process.wait(LIMIT) == 0
    at = count = 0
    while at < len(text):
        found = WHOLE.match(text, at)
        assert found, text[at : at + 2000]
        at = found.end()
        count += 1
    assert count == 20 * 40 * 2 + 20 * (stream == "stderr")


REST = """
import io, sys
import coro.emulation
coro.emulation.install()
s = io.StringIO()
print(1, "a", sep="-", end="!", file=s)
assert s.getvalue() == "1-a!"
print(1, 2, sep=None, end=None)
print("x", sep="", end="\\n", flush=True)
for wrong in ({"sep": 1}, {"end": b""}, {"what": 1}):
    try:
        print("x", **wrong)
    except TypeError:
        print("TypeError")
stdout, sys.stdout = sys.stdout, None
print("nowhere")
sys.stdout = stdout
coro.emulation.uninstall()
assert type(print).__name__ == "builtin_function_or_method"
"""


def test_print_is_what_it_was():
    done = subprocess.run([sys.executable, "-c", REST], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 2\nx\n" + "TypeError\n" * 3
