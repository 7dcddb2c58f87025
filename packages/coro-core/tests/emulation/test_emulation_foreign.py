"""Other interpreters, and C functions called through ctypes."""

import sys

import pytest
from support import ok

QUIET = "import coro; coro.set_latency_warning(0); coro.install_thread_emulation()\n"
INTERPRETERS = "import _interpreters\n"
needs_interpreters = pytest.mark.skipif(sys.version_info < (3, 13), reason="the module came with Python 3.13")


def test_each_thread_has_its_errno():
    assert ok(
        QUIET
        + """
import ctypes, errno, threading, time
libc = ctypes.CDLL(None, use_errno=True)
seen = []

def fails(n):
    assert ctypes.get_errno() == 0      # not what the thread before has left
    assert libc.close(-1) == -1
    time.sleep(0.002 * n)
    assert ctypes.get_errno() == errno.EBADF
    ctypes.set_errno(n)
    time.sleep(0)
    seen.append(ctypes.get_errno() == n)

def succeeds():
    for _ in range(20):
        time.sleep(0.0005)
        assert ctypes.get_errno() == 0

def main():
    ctypes.set_errno(77)
    threads = [threading.Thread(target=fails, args=(n,)) for n in range(5)] + [threading.Thread(target=succeeds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(seen, ctypes.get_errno())
    ctypes.set_errno(0)

coro.run(main)
coro.uninstall_thread_emulation()

def shared():
    ctypes.set_errno(5)
    coro.spawn(lambda: print(ctypes.get_errno())).join()

coro.run(shared)
"""
    ) == ["[True, True, True, True, True] 77", "5"]


def test_ctypes_may_be_imported_later_and_in_another_loop():
    assert ok(
        QUIET
        + """
import threading, time

def main():
    import ctypes
    def leave(n):
        ctypes.set_errno(n)
        time.sleep(0.001)
        assert ctypes.get_errno() == n
    threads = [threading.Thread(target=leave, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ctypes.get_errno() == 0

coro.run(main)
thread = coro.emulation.original("threading").Thread(target=coro.run, args=(main,))
thread.start()
thread.join()
coro.run(main)
print("done")
"""
    ) == ["done"]


@needs_interpreters
def test_code_in_another_interpreter_does_not_hold_up_the_loop():
    assert ok(
        QUIET
        + INTERPRETERS
        + """
import os, threading

def main():
    reads, writes = os.pipe()
    other = _interpreters.create()
    def execute():
        print(_interpreters.run_string(other, f"import os; os.read({reads}, 1)"))
    thread = threading.Thread(target=execute)
    thread.start()
    while not _interpreters.is_running(other):
        coro.sleep_relative(0.001)
    os.write(writes, b"x")              # by a thread that runs while the interpreter waits
    thread.join()
    print("division by zero" in _interpreters.run_string(other, "1/0").formatted)
    try:
        _interpreters.run_string(123456, "")
    except Exception as error:
        print(type(error).__name__)
    _interpreters.destroy(other)
    os.close(reads)
    os.close(writes)

coro.run(main)
"""
    ) == ["None", "True", "InterpreterNotFoundError"]


@needs_interpreters
def test_threads_in_another_interpreter_are_os_threads():
    assert ok(
        QUIET
        + INTERPRETERS
        + """
CODE = '''
import threading
seen = []
thread = threading.Thread(target=lambda: seen.append(threading.get_native_id()))
thread.start()
thread.join()
assert seen != [threading.get_native_id()]
'''

def main():
    other = _interpreters.create("legacy")
    print(_interpreters.run_string(other, CODE))
    _interpreters.destroy(other)

coro.run(main)
"""
    ) == ["None"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="came with Python 3.14")
def test_a_pool_of_interpreters():
    assert ok(
        QUIET
        + """
from concurrent.futures import InterpreterPoolExecutor

def main():
    with InterpreterPoolExecutor(3) as pool:
        print(list(pool.map(pow, range(5), range(5))))

coro.run(main)
"""
    ) == ["[1, 1, 4, 27, 256]"]


def test_uvicorns_own_choice_is_a_loop_that_suspends(tmp_path):
    """It takes uvloop where that is installed; the names of both of its interfaces are told apart from it."""
    folder = tmp_path / "uvicorn" / "loops"
    folder.mkdir(parents=True)
    for name in (folder.parent / "__init__.py", folder / "__init__.py"):
        name.write_text("")
    (folder / "auto.py").write_text("def auto_loop_factory(): return 'uvloop'\n")
    (folder / "asyncio.py").write_text("def asyncio_loop_factory(): return 'asyncio'\n")
    program = f"""
        import coro, sys
        sys.path.insert(0, {str(tmp_path)!r})
        {{}}
        coro.install_thread_emulation()
        from uvicorn.loops import auto
        print(auto.auto_loop_factory(), hasattr(auto, "auto_loop_setup"))
        coro.uninstall_thread_emulation()
        print(auto.auto_loop_factory())
    """
    for before in ("", "import uvicorn.loops.auto"):
        assert ok(program.format(before)) == ["asyncio False", "uvloop"]
