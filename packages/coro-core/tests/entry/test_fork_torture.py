"""Two hundred forks at random points of a program that is busy with all that the runtime has: every child does a small
job with a loop and exits with 0, and the parent loses no message, no timer and no descriptor.
"""

import os
import random

import pytest
from support import program

PROGRAM = """
import warnings; warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: of forks beside other OS threads
import coro, gc, os, random, signal, sys, threading, time, traceback
from coro import signal_handler
SEED, FORKS = {seed}, {forks}
dice = random.Random(SEED)
coro.set_latency_warning(0)  # a fork on a busy machine takes its time

def small_job():
    a, b = coro.socketpair()
    t = coro.spawn(b.sendall, bytes(300_000))
    assert len(a.recv_exact(300_000)) == 300_000
    t.join()
    coro.sleep_relative(0.001)
    with coro.group() as g:
        for n in range(20):
            g.spawn(depths, n % 7)
    return coro.in_thread(int, "3")

def depths(n):
    coro.sleep_relative(0.0005)
    return n and depths(n - 1)

def child():
    code = 1
    try:
        if coro.coro_is_running():
            result = small_job()
        else:
            result = coro.run(small_job)
        if dice.random() < 0.3:
            gc.collect()
        code = 0 if result == 3 and not any(os.readlink(p).startswith("anon_inode:[pidfd") for p in links()) else 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

def links():
    return [p for p in (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")) if os.path.islink(p)]

pids, signals = [], []
stop = False

def fork():
    pid = os.fork()
    if pid == 0:
        child()
    pids.append(pid)

def maybe():
    if not stop and len(pids) < FORKS and dice.random() < 0.05:
        fork()

def pinger(s, n):
    for i in range(n):
        maybe()
        s.sendall(i.to_bytes(4, "big") * 100)
        assert s.recv_exact(400) == i.to_bytes(4, "big") * 100
        coro.sleep_relative(dice.random() * 0.002)

def ponger(s):
    while data := s.recv(100_000):
        s.sendall(data)
        maybe()

def sleeper():
    while not stop:
        coro.sleep_relative(0.003)
        maybe()
        with coro.timeout(1):
            lock.lock()
            try:
                coro.sleep_relative(0.0005)
                maybe()
            finally:
                lock.unlock()

def offloader():
    while not stop:
        coro.in_thread(time.sleep, 0.002)
        maybe()
        if dice.random() < 0.2 and len(pids) < FORKS:
            coro.in_thread(fork)

def beside():
    while not stop:
        time.sleep(0.005)
        if len(pids) < FORKS:
            fork()

def signaller():
    while not stop:
        coro.sleep_relative(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

lock = coro.mutex()

def main():
    global stop
    coro.in_thread(int)
    signal_handler.register(signal.SIGUSR1, signals.append)
    pairs = [coro.socketpair() for _ in range(12)]
    pongers = [coro.spawn(ponger, b) for a, b in pairs]
    others = [coro.spawn(f) for f in (sleeper, sleeper, offloader, offloader, signaller)]
    t = threading.Thread(target=beside)
    t.start()
    reaped = 0
    while reaped < FORKS:
        with coro.group() as g:
            for a, b in pairs:
                g.spawn(pinger, a, 5)
        while reaped < len(pids):
            status = coro.waitpid(pids[reaped])[1]
            assert status == 0, (reaped, status)
            reaped += 1
    stop = True
    while t.is_alive():
        coro.sleep_relative(0.001)
    for other in others:
        other.join()
    for a, b in pairs:
        a.close()
    for p in pongers:
        p.join()
        assert p.exception is None
    for pid in pids[reaped:]:
        assert coro.waitpid(pid)[1] == 0
    assert signals
    return len(pids)

def descriptors():
    return len(os.listdir("/proc/self/fd"))

before = descriptors()
n = coro.run(main)
gc.collect()
assert descriptors() == before, (before, os.listdir("/proc/self/fd"))
print("ok", n >= FORKS)
"""


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc/self, which only Linux has")
@pytest.mark.parametrize(("forks", "options"), [(200, ()), (40, ("-X", "dev"))])
def test_forks_at_random_points_of_a_busy_program(forks, options, monkeypatch):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    if options:
        monkeypatch.setenv("PYTHONMALLOC", "debug")
    source = PROGRAM.replace("{seed}, {forks}", f"{seed}, {forks}")
    done = program(source, *options, limit=240)
    assert (done.code, done.err) == (0, ""), done.err
    assert done.lines == ["ok True"]
