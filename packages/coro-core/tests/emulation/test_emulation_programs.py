"""``python -m coro --emulate``: programs written for OS threads, and their children."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import zipapp

import pytest

from coro.emulation import _children

PATIENCE = 120

#: What a program sees of its threads: a coro thread's lock, in one OS thread.
LOOK = """
import threading
def look():
    return type(threading.Lock()).__module__, threading.current_thread() is threading.main_thread()
"""


def command(*arguments, options=(), code=0, cwd=None, **environment):
    done = subprocess.run(
        [sys.executable, *options, "-m", "coro", "--emulate", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, ""), (done.returncode, done.stdout, done.stderr)
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys, look\nprint(__name__, __package__, __spec__.name, sys.argv[1:], look.look())\nsys.exit(3)\n"
    )
    return tmp_path


@pytest.mark.slow
def test_files_modules_and_code(folder):
    emulated = "('coro.emulation._blocking', True)"
    (folder / "program.py").write_text(
        "import sys, look, __main__\n"
        "print(__name__, __package__, __spec__, __file__, sys.argv, look.look())\n"
        "print(__main__.__dict__ is globals(), 'coro' in globals())\n"
        "def later():\n"
        "    time.sleep(0.01)\n"
        "    print('still', __name__, sys.modules['__main__'].__dict__ is globals())\n"
        "import threading, time\n"
        "threading.Thread(target=later).start()\n"
    )
    path = str(folder / "program.py")
    assert command(path, "--flag", "-m") == [
        f"__main__ None None {path} {[path, '--flag', '-m']} {emulated}", "True False", "still __main__ True"
    ]  # fmt: skip
    assert command("-m", "package", "-c", cwd=folder, code=3) == [
        f"__main__ package package.__main__ ['-c'] {emulated}"
    ]
    assert command("-c", "import look, sys; print(sys.argv, look.look())", "x", cwd=folder) == [
        f"['-c', 'x'] {emulated}"
    ]
    assert command(folder / "package", code=3, PYTHONPATH=str(folder))[0].startswith("__main__  __main__ [] ")


@pytest.mark.slow
def test_a_command_that_is_found_in_the_path(folder):
    script = folder / "tool"
    script.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv)\n")
    script.chmod(0o755)
    assert command("tool", "x", PATH=f"{folder}:{os.environ['PATH']}") == [f"['{script}', 'x']"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-m", "no.such.module"], "coro: error while finding module specification for 'no.such.module' (Module"),
        (["-m", "no_such_module"], "coro: no module named no_such_module"),
        (["-m", "xml"], "coro: no module named xml.__main__; 'xml' is a package and cannot be directly executed"),
        (["no/such/file.py"], "coro: can't open file 'no/such/file.py': [Errno 2] No such file or directory"),
        (["sh"], "coro: '"),
        (["-m"], "usage: python -m coro"),
        (["-x", "y"], "usage: python -m coro"),
    ],
)  # fmt: skip
def test_what_is_no_program(arguments, why):
    done = subprocess.run(
        [sys.executable, "-m", "coro", "--emulate", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(why)


@pytest.mark.slow
def test_an_error_is_told_as_without_coro(folder):
    (folder / "program.py").write_text("import threading\n\ndef fail():\n    1 / 0\n\nfail()\n")
    plain, emulated = (
        subprocess.run(
            [sys.executable, *options, folder / "program.py"], capture_output=True, text=True, timeout=PATIENCE
        )
        for options in ([], ["-m", "coro", "--emulate"])
    )
    assert plain.returncode == emulated.returncode == 1
    assert emulated.stderr == plain.stderr


CHILDREN = """
import multiprocessing, os, subprocess, sys
import look

def in_child(queue):
    queue.put(look.look())

if __name__ == "__main__":
    look_there = "import look; print(look.look(), flush=True)"
    for arguments in (["-c", look_there], ["-Wignore", "-uc", look_there], ["-m", "package"]):
        print(subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True).stdout.split("[] ")[-1])
    os.system("true")
    subprocess.run(["true"])
    assert subprocess.run([sys.executable, "-V"], stdout=subprocess.PIPE, text=True).stdout.startswith("Python 3.")
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", look_there]) == 0
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", look_there], os.environ)
    assert os.waitpid(pid, 0) == (pid, 0)
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=in_child, args=(queue,))
        child.start()
        print(method, queue.get(), flush=True)
        child.join()
        assert child.exitcode == 0
"""

REPLACED = """
import os, sys
import look

if sys.argv[1:] != ["again"]:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print("again", look.look())
"""


@pytest.mark.slow
@pytest.mark.newest
def test_children_that_run_this_python(folder):
    (folder / "program.py").write_text(CHILDREN)
    lines = command(folder / "program.py", PYTHONPATH=str(folder), PYTHONWARNINGS="ignore")
    assert [line for line in lines if line] == [
        *["('coro.emulation._blocking', True)"] * 5,
        *[f"{method} ('coro.emulation._blocking', True)" for method in ("fork", "spawn", "forkserver")],
    ]


@pytest.mark.slow
def test_a_program_that_replaces_itself(folder):
    (folder / "program.py").write_text(REPLACED)
    assert command(folder / "program.py", PYTHONPATH=str(folder)) == ["again ('coro.emulation._blocking', True)"]


@pytest.mark.slow
def test_children_are_their_own_business_without_the_command():
    program = (
        "import coro, subprocess, sys\ncoro.install_thread_emulation()\n"
        "coro.run(subprocess.run, [sys.executable, '-c', 'import sys; print(\"coro\" in sys.modules)'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("False\n", "")


INSERTED = ["-m", "coro", "--emulate"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x.py", "-c"], [*INSERTED, "x.py", "-c"]),
        (["-m", "gunicorn", "-w", "2"], [*INSERTED, "-m", "gunicorn", "-w", "2"]),
        (["-mgunicorn", "x"], [*INSERTED, "-m", "gunicorn", "x"]),
        (["-Im", "gunicorn"], ["-I", *INSERTED, "-m", "gunicorn"]),
        (["-Bcpass", "x"], ["-B", *INSERTED, "-c", "pass", "x"]),
        (["-W", "error", "-Xdev", "x.py"], ["-W", "error", "-Xdev", *INSERTED, "x.py"]),
        (["-OW", "error", "-X", "dev", "x.py"], ["-OW", "error", "-X", "dev", *INSERTED, "x.py"]),
        (["--check-hash-based-pycs", "never", "x.py"], ["--check-hash-based-pycs", "never", *INSERTED, "x.py"]),
        ([], None),
        (["-"], None),
        (["-i"], None),
        (["-i", "x.py"], None),
        (["-V"], None),
        (["--help"], None),
        (["-u", "-"], None),
        (["-m"], None),
        (["-c"], None),
        (["-W"], None),
        (["-m", "coro", "--emulate", "x.py"], None),
        (["-c", "from multiprocessing.resource_tracker import main;main(5)"], None),
        (["-c", "", "x"], None),
    ],
)  # fmt: skip
def test_command_lines(words, expected):
    assert _children.command_line(["python", *words]) == (None if expected is None else ["python", *expected])
    as_bytes = _children.command_line([b"python", *map(os.fsencode, words)])
    assert (None if as_bytes is None else list(map(os.fsdecode, as_bytes))) == (
        None if expected is None else ["python", *expected]
    )


def test_archives_for_the_shell_and_compiled_files(folder):
    program = "import sys, look\nprint(__name__, sys.argv[1:], look.look())\nsys.exit(4)\n"
    seen = "__main__ ['a'] ('coro.emulation._blocking', True)"
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(program)
    (folder / "app" / "look.py").write_text(LOOK)
    zipapp.create_archive(folder / "app", folder / "app.pyz", interpreter="/usr/bin/env python3")
    assert command(folder / "app.pyz", "a", code=4) == [seen]
    (folder / "program.py").write_text(program)
    compiled = py_compile.compile(str(folder / "program.py"), cfile=str(folder / "program.pyc"))
    (folder / "program.py").unlink()
    assert command(compiled, "a", code=4) == [seen]
    (folder / "program.pyc").write_bytes(b"other magic number")
    with pytest.raises(AssertionError, match="was compiled by another version of Python"):
        command(compiled, code=4)


def test_a_program_from_stdin_with_arguments():
    done = subprocess.run(
        [sys.executable, "-m", "coro", "--emulate", "-", "a"], input="import sys; print(sys.argv)",
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("['-', 'a']\n", 0), done.stderr
