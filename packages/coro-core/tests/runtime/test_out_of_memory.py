"""No memory for what main has to do: the loop goes on with what needs none, and begins anew.

The programs take all memory for a while: that of the C library, whose arenas they keep to one, below a limit of the
address space.
"""

import sys

import pytest
from support import ok

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the C library's mallopt(3), and RLIMIT_AS that works"),
]

HOG = """
import coro, ctypes, faulthandler, resource
faulthandler.dump_traceback_later(40, exit=True)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallopt(-8, 1)     # M_ARENA_MAX: malloc() fails for all sizes at once
store = (ctypes.c_void_p * 400000)()
taken = 0

def take_all(smallest=300):
    global taken
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4_000_000, resource.RLIM_INFINITY))
    for size in (1 << 20, 1 << 16, 1 << 12, 3000, 2000, 1500, 1000, 700, 500, 400, 300):
        while size >= smallest and taken < len(store):
            place = libc.malloc(size)
            if not place:
                break
            store[taken] = place
            taken += 1

def give_back():
    for i in range(taken):
        libc.free(store[i])
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


def test_timers_are_seen_while_a_slots_owner_cannot_be_moved():
    """The owner is what gives the memory back, as soon as its time has come."""
    lines = ok(
        HOG
        + """
coro.set_stack_slots(1)

def hog():
    take_all()
    coro.sleep_relative(0.1)
    give_back()
    print("gave back")

def other():
    coro.sleep_relative(0.05)   # over while there is no memory to bring this thread back
    print("other")

def main():
    coro.spawn(other)
    coro.yield_slice()
    coro.spawn(hog).join()

coro.run(main)
"""
    )
    assert sorted(lines) == ["gave back", "other"]


def test_signals_end_a_loop_that_can_move_nobody():
    lines = ok(
        HOG
        + """
import os, signal
coro.set_stack_slots(1)

def hog():
    take_all()
    try:
        coro.sleep_relative(3600)
    finally:
        give_back()
        print("ended")

def other():
    coro.sleep_relative(0.02)

def send():
    os.kill(os.getpid(), signal.SIGTERM)

def main():
    coro.spawn(other)
    coro.yield_slice()
    signal.signal(signal.SIGALRM, lambda *args: coro.set_exit(3))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    coro.spawn(hog).join()

try:
    coro.run(main)
except SystemExit as e:
    print(e.code)
"""
    )
    assert lines == ["ended", "3"]


def test_no_memory_at_the_first_poll():
    """The poller makes its tables then. Another OS thread gives some back."""
    lines = ok(
        HOG
        + """
import threading, time
full = threading.Lock()
full.acquire()

def helper():
    full.acquire()
    time.sleep(0.05)
    give_back()

thread = threading.Thread(target=helper)
thread.start()

def main():
    take_all(4096)      # not the little that this thread needs
    full.release()
    coro.yield_slice()
    return "went on"

print(coro.run(main))
thread.join()
"""
    )
    assert lines == ["went on"]
