"""Streams under random interruptions: `python streams.py --seconds 60 --seed 1 --slots 3`. Ends with status 0 and a
line of counters, or with status 1 and what went wrong.

Over UNIX sockets, TCP connections, pipes, TLS, and TLS inside of TLS a writer sends a known pattern by whatever call
the dice say, and a reader receives it by whatever call they say, in sizes from 1 to 50 000 bytes. Another thread raises
exceptions in both all the time, at every kind of wait; time limits of nothing strike as well. Small buffers of the
kernel and few selfish acts make nearly every call wait. The reader always knows the position in the stream that comes
next: a byte that is lost, doubled or overtaken by another is seen at once. What a call that was interrupted has sent is
told by `bytes_sent`.

`--steps` bounds the number of calls instead of the time. Threads take turns by the dice, not by the clock, so a seed
repeats a run but for what TCP delivers when.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import coro
from coro import tls

sys.path.insert(0, str(Path(__file__).parents[1]))

import tls_support

LENGTH = 65521  # of the pattern, a prime: no size of a call or a buffer divides it
LARGEST = 50_000
SIZES = (1, 1, 2, 3, 10, 100, 1000, 5000, 5000, 9000, LARGEST)
PEEK, DONTWAIT = coro.MSG.PEEK, coro.MSG.DONTWAIT
SELFISH = (1, 1, 2, 4, 100)
TLS_CONNECTIONS = 6  # they share memory


class Noise(Exception):
    """What is raised in threads that have done nothing wrong."""


class Wrong(Exception):
    """The stream is not what was sent."""


class Budget:
    """How long the run goes on, what it needs, and what it did."""

    def __init__(self, options, file):
        self.steps = options.steps
        self.deadline = time.monotonic() + options.seconds
        self.pattern = random.Random(options.seed).randbytes(LENGTH) * 2
        self.file = file
        file.write(self.pattern)
        file.flush()
        self.calls = self.interruptions = self.bytes = 0
        self.failures = []

    def goes_on(self):
        if self.failures:
            return False
        return self.calls < self.steps if self.steps else time.monotonic() < self.deadline


class Stream:
    """One direction of a connection: who writes where, who reads what, and how far they are."""

    def __init__(self, name, budget, dice, writing, reading, *, pipe=False, tls=False, alone=True):
        """pipe: without flags and messages. tls: without descriptors, too. alone: nobody else uses these socks for the
        other direction."""
        self.name, self.budget, self.dice, self.pipe = name, budget, dice, pipe
        self.writing, self.reading = writing, reading
        self.sent = self.received = 0
        self.history = []  # of the reader: what it did last
        prefixes = ("any_",) + ("plain_",) * (not tls) + ("sock_",) * (not pipe and not tls) + ("alone_",) * alone
        names = [name for name in dir(self) if name.startswith(prefixes)]
        self.senders = [getattr(self, name) for name in names if "_sends" in name]
        self.receivers = [getattr(self, name) for name in names if "_sends" not in name]

    def piece(self, at, n):
        at %= LENGTH
        return self.budget.pattern[at : at + n]

    def size(self):
        return min(LARGEST, self.dice.choice(SIZES) + self.dice.randrange(3))

    def cut(self, data):
        pieces = []
        while data:
            n = self.dice.randrange(len(data) // 3 + 1) + 1
            pieces.append(data[:n])
            data = data[n:]
        return pieces

    def noted(self, call, *arguments):
        """Make a call, now and then with a limit of no time at all."""
        self.budget.calls += 1
        if coro.current().name.endswith(" read"):
            self.history = [*self.history[-3:], f"{call.__name__}{tuple(a for a in arguments if isinstance(a, int))}"]
        if self.dice.random() < 0.3:
            return coro.with_timeout(0, call, *arguments)
        return call(*arguments)

    # -- sending: each returns how many bytes it sent

    def any_sends(self, n):
        return self.noted(self.writing.send, self.piece(self.sent, n))

    def any_sends_all(self, n):
        return self.noted(self.writing.sendall, bytearray(self.piece(self.sent, n)))

    def any_sends_by_write(self, n):
        return self.noted(self.writing.write, memoryview(self.piece(self.sent, n)))

    def any_sends_pieces(self, n):
        return self.noted(self.writing.writev, self.cut(self.piece(self.sent, n)))

    def plain_sends_by_file(self, n):
        with self.writing.makefile("wb", 0) as file:
            return self.noted(file.write, self.piece(self.sent, n))

    def plain_sends_file(self, n):
        return self.noted(self.writing.sendfile, self.budget.file, self.sent % LENGTH, n)

    def plain_sends_what_it_reads(self, n):
        return self.noted(self.writing.sendfile, io.BytesIO(self.piece(self.sent, n)))

    def sock_sends_message(self, n):
        return self.noted(self.writing.sendmsg, self.cut(self.piece(self.sent, n)))

    def sock_sends_impatiently(self, n):
        try:
            return self.noted(self.writing.send, self.piece(self.sent, n), DONTWAIT)
        except coro.oserrors.EAGAIN as e:
            self.sent += e.bytes_sent
            self.writing.wait_for_write()
            return 0

    # -- receiving: each returns bytes, which are checked and taken from the stream; None for another attempt

    def any_recv(self, n):
        return self.noted(self.reading.recv, n)

    def any_read(self, n):
        return self.noted(self.reading.read, n)

    def any_recv_exact(self, n):
        try:
            return self.noted(self.reading.recv_exact, n)
        except EOFError as e:
            return e.args[0]

    any_recv_exact_often = any_recv_exact

    def any_readv(self, n):
        return b"".join(self.noted(self.reading.readv, [len(piece) for piece in self.cut(bytes(n))]))

    def any_recv_into(self, n):
        memory = bytearray(n)
        return bytes(memory[: self.noted(self.reading.recv_into, memory)])

    def any_waiting_first(self, n):
        self.noted(self.reading.wait_for_read)
        return self.reading.recv(n)

    def plain_selecting_first(self, n):
        self.noted(coro.select, coro.case.read(self.reading))
        return self.reading.recv(n)

    def plain_file(self, n):
        """The file takes along the bytes that were put back, so all of them have to come out before it is closed."""
        with self.reading.makefile("rb", 0) as file:
            while True:
                try:
                    return self.noted(file.read, LARGEST)
                except (Noise, coro.TimeoutError):
                    self.budget.interruptions += 1

    def alone_detaching(self, n):
        try:
            fd = self.reading.detach()
        except ValueError:
            return self.noted(self.reading.recv, n)
        self.reading = coro.fd_sock(fd)
        return None

    def sock_recvfrom(self, n):
        return self.noted(self.reading.recvfrom, n)[0]

    def sock_recvfrom_into(self, n):
        memory = bytearray(n)
        return bytes(memory[: self.noted(self.reading.recvfrom_into, memory)[0]])

    def sock_recvmsg(self, n):
        return self.noted(self.reading.recvmsg, n, 100)[0]

    def sock_recvmsg_into(self, n):
        memory = bytearray(n)
        first, second = memoryview(memory)[: n // 2], memoryview(memory)[n // 2 :]
        return bytes(memory[: self.noted(self.reading.recvmsg_into, [first, second])[0]])

    def sock_peek(self, n):
        self.check(self.noted(self.reading.recv, n, PEEK))
        memory = bytearray(n)
        self.check(memory[: self.reading.recv_into(memory, 0, PEEK)])
        self.check(self.reading.recvfrom(n, PEEK)[0])
        self.check(self.reading.recvmsg(n, 0, PEEK)[0])
        return self.reading.recv(n)

    def sock_impatience(self, n):
        try:
            return self.noted(self.reading.recv, n, DONTWAIT)
        except coro.oserrors.EAGAIN:
            return None

    # -- the threads

    def check(self, data):
        if data != self.piece(self.received, len(data)):
            place = self.budget.pattern.find(data) if len(data) > 4 else -1
            raise Wrong(
                f"{self.history} returned {len(data)} bytes that do not belong at {self.received} "
                f"(in the pattern {self.received % LENGTH}), but perhaps at {place}; {self.sent} were sent"
            )

    def write(self):
        coro.current().set_max_selfish_acts(self.dice.choice(SELFISH))
        while self.budget.goes_on():
            try:
                sent = self.dice.choice(self.senders)(self.size())
                self.sent += sent  # in two steps: the call may count, too
            except (Noise, coro.TimeoutError) as e:
                self.sent += getattr(e, "bytes_sent", 0)
                self.budget.interruptions += 1
        if self.pipe:
            self.writing.close()
        else:
            self.writing.shutdown(coro.SHUT.WR)

    def read(self):
        coro.current().set_max_selfish_acts(self.dice.choice(SELFISH))
        data = None
        while data != b"":
            try:
                data = self.dice.choice(self.receivers)(self.size())
            except (Noise, coro.TimeoutError):
                self.budget.interruptions += 1
                data = None
            if data is not None:
                self.check(data)
                self.received += len(data)
                self.budget.bytes += len(data)
        if self.received != self.sent:
            raise Wrong(f"{self.sent} bytes were sent, {self.received} received; last: {self.history}")


def tcp_pair():
    with coro.tcp_sock() as server, coro.tcp_sock() as first:
        server.bind(("127.0.0.1", 0))
        server.listen()
        first.connect(server.getsockname())
        return coro.sock(coro.AF.INET, coro.SOCK.STREAM, 0, first.detach()), server.accept()[0]


def tls_pair(below, contexts):
    here, there = below
    thread = coro.spawn(contexts[1].wrap, there, server_side=True)
    return contexts[0].wrap(here, server_hostname="localhost"), thread.get()


def streams(budget, dice):
    """The connections of a run, and what stands on them."""
    found = []

    def add(name, writing, reading, **more):
        found.append(Stream(name, budget, random.Random(dice.random()), writing, reading, **more))

    for name, pair in (("unix", coro.socketpair), ("tcp", tcp_pair)):
        a, b = pair()
        for s in (a, b):
            s.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 8192)
            s.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 8192)
        add(f"{name}, one way", a, b)
        a, b = pair()
        add(f"{name}, there", a, b, alone=False)
        add(f"{name}, back", b, a, alone=False)
    contexts = tls.context(tls_support.client_context()), tls.context(tls_support.server_context())
    for i in range(TLS_CONNECTIONS):
        below = coro.socketpair()
        for s in below:
            s.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 8192)
        a, b = tls_pair(below, contexts)
        if i % 2:
            a, b = tls_pair((a, b), contexts)
        add(f"tls {i}, there", a, b, tls=True, alone=False)
        add(f"tls {i}, back", b, a, tls=True, alone=False)
    reading, writing = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)
    add("pipe", coro.fd_sock(writing), coro.fd_sock(reading), pipe=True)
    return found


def guarded(stream, function):
    try:
        function()
    except coro.Shutdown:
        raise
    except BaseException:
        stream.budget.failures.append(f"{stream.name}:\n{traceback.format_exc()}")


def chaos(budget, dice, threads):
    while budget.goes_on():
        for _ in range(dice.randrange(3)):
            coro.yield_slice()
        for thread in dice.sample(threads, 3):
            try:
                thread.raise_exception(Noise)
            except (coro.NotStartedError, coro.DeadCoroutine):
                coro.yield_slice()


def main(budget, options):
    dice = random.Random(options.seed)
    threads = []
    for stream in streams(budget, dice):
        for function in (stream.write, stream.read):
            threads.append(coro.spawn(guarded, stream, function, thread_name=f"{stream.name} {function.__name__}"))
    coro.spawn(chaos, budget, dice, threads)
    for thread in threads:
        while not thread.dead:
            if budget.failures:
                return
            coro.sleep_relative(0.001)


def each_number_of_slots(options):
    """One process each: stacks are laid out once."""
    status = 0
    for slots in options.slots:
        length = ["--seconds", str(options.seconds / len(options.slots)), "--steps", str(options.steps)]
        command = [sys.executable, __file__, *length, "--seed", str(options.seed), "--slots", str(slots)]
        status = subprocess.run(command).returncode or status
    return status


def soak(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=int, default=0, help="calls in all, instead of --seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: any")
    parser.add_argument("--slots", type=int, nargs="+", default=[64], help="several share the time")
    options = parser.parse_args(argv)
    if len(options.slots) > 1:
        return each_number_of_slots(options)
    coro.set_stack_slots(options.slots[0])
    coro.set_latency_warning(0)
    with tempfile.TemporaryFile() as file:
        budget = Budget(options, file)
        try:
            coro.run(coro.with_timeout, options.seconds + 100, main, budget, options)
        except BaseException:
            budget.failures.append(traceback.format_exc())
    for text in budget.failures:
        print(text, file=sys.stderr)
    done = f"{budget.calls} calls, {budget.interruptions} interruptions, {budget.bytes} bytes"
    print(f"seed {options.seed}, slots {options.slots[0]}: {done}")
    sys.stdout.flush()
    if budget.failures:
        os._exit(1)  # threads may wait for each other for ever
    return 0


if __name__ == "__main__":
    sys.exit(soak(sys.argv[1:]))
