"""Random flags, sizes and addresses over all calls of socks: `python socket_calls.py --seconds 60 --seed 1`. Ends with
status 0 and a line of counters, or with status 1 and what went wrong.

Each kind of socket carries a letter of its own. Whatever is asked for, the result has no other letters in it (zeros are
allowed where the kernel delivered nothing), a buffer is not left by a byte, errors are exceptions that a program can
understand, nothing waits beyond its limit, and the process stays up. With `--emulation` the calls are those of an
emulated `socket.socket`.

What reads or writes beyond memory without being seen here is seen by AddressSanitizer (stacks are not watched, since
threads share them):

    export CFLAGS="-fsanitize=address --param asan-stack=0 -O1 -g" LDFLAGS=-fsanitize=address
    python3 -m venv asan && asan/bin/pip install packages/coro-core
    LD_PRELOAD=$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc \\
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0 \\
        asan/bin/python packages/coro-core/tests/fuzz/socket_calls.py --seconds 600
"""

from __future__ import annotations

import argparse
import array
import contextlib
import io
import os
import random
import socket
import sys
import tempfile
import time
import traceback

import coro

FLAGS = [int(getattr(coro.MSG, name)) for name in coro.MSG]
SIZES = (-1, 0, 1, 2, 7, 64, 255, 1023, 1024, 1025, 4096, 16383, 16384, 16385, 65535, 65536, 65537, 100_000, 1 << 20)
#: (Nothing in between that a machine could have: a debugging allocator fills all of it.)
UNUSUAL = ((1 << 20) + 1, 1 << 48, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 70)
LEVELS = (socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_UDP)
#: Not for setsockopt: closing would block (SO_LINGER), or only a whole machine's worth of data arrives (SO_RCVLOWAT).
HARMFUL = {(socket.SOL_SOCKET, getattr(socket, name)) for name in ("SO_LINGER", "SO_RCVLOWAT")}
MARGIN = 64
#: Results up to this size are looked at byte by byte.
LOOKED_AT = 1 << 18


class Wrong(Exception):
    """What must not happen."""


class Kind:
    """A kind of socket: how two connected ones are made, and the letter they carry."""

    def __init__(self, name, letter, make, *, stream=False, pipe=False):
        self.name, self.letter, self.make, self.stream, self.pipe = name, letter, make, stream, pipe


def wrapped(sock):
    return coro.sock(sock.family, sock.type, 0, sock.detach())


def unchanged(sock):
    return sock


def kinds(wrap):
    """All there are on this machine."""

    def pair(stype):
        return lambda: tuple(map(wrap, socket.socketpair(socket.AF_UNIX, stype)))

    def udp(family, host):
        def make():
            a, b = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
            a.bind((host, 0))
            b.bind((host, 0))
            a.connect(b.getsockname())
            b.connect(a.getsockname())
            return wrap(a), wrap(b)

        return make

    def tcp():
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            a = socket.socket()
            a.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                a.connect(server.getsockname())
            b = server.accept()[0]
            a.setblocking(True)
            return wrap(a), wrap(b)

    def listening():
        a = socket.socket()
        a.bind(("127.0.0.1", 0))
        a.listen()
        b = socket.socket()
        b.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            b.connect(a.getsockname())
        b.setblocking(True)
        return wrap(a), wrap(b)

    found = [
        Kind("unix stream", b"a", pair(socket.SOCK_STREAM), stream=True),
        Kind("unix datagram", b"b", pair(socket.SOCK_DGRAM)),
        Kind("unix seqpacket", b"c", pair(socket.SOCK_SEQPACKET)),
        Kind("udp", b"d", udp(socket.AF_INET, "127.0.0.1")),
        Kind("tcp", b"e", tcp, stream=True),
        Kind("listening", b"f", listening, stream=True),
    ]
    with contextlib.suppress(OSError):
        make = udp(socket.AF_INET6, "::1")
        for s in make():
            s.close()
        found.append(Kind("udp over IPv6", b"g", make))
    if wrap is wrapped:

        def pipe():
            r, w = os.pipe()
            return coro.fd_sock(r), coro.fd_sock(w)

        def files():
            r, w = os.pipe()
            return coro.file_sock(open(r, "rb", 0)), coro.file_sock(open(w, "wb", 0))

        found += [Kind("pipe", b"h", pipe, pipe=True), Kind("files", b"i", files, pipe=True)]
    return found


class Fuzz:
    """The calls. Each takes a sock, and is left by whatever exception it likes but for Wrong."""

    def __init__(self, options, wrap):
        self.dice = random.Random(options.seed)
        self.emulation = options.emulation
        self.kinds = kinds(wrap)
        self.pairs = [list(kind.make()) for kind in self.kinds]
        self.calls = self.refused = 0
        self.last = ""
        self.file = tempfile.TemporaryFile()
        self.file.write(b"z" * 100_000)
        self.file.flush()
        prefixes = ("call_",) if self.emulation else ("call_", "own_")
        self.names = [name for name in dir(self) if name.startswith(prefixes)]

    # -- what the dice give

    def size(self):
        return self.dice.choice(UNUSUAL if self.dice.random() < 0.05 else SIZES)

    def flags(self):
        if self.dice.random() < 0.05:
            return self.dice.randrange(-(1 << 31), 1 << 31)
        flags = 0
        for _ in range(self.dice.randrange(4)):
            flags |= self.dice.choice(FLAGS)
        if self.emulation and self.dice.random() < 0.7:
            flags |= int(coro.MSG.DONTWAIT)
        return flags

    def data(self):
        return self.kind.letter * abs(self.dice.choice(SIZES[:-2]))

    def pieces(self):
        n = self.dice.choice((0, 1, 2, 3, 70))
        return [self.data()[: 200_000 // n] for _ in range(n)]

    def address(self):
        choice = self.dice.randrange(8)
        if choice == 0:
            return None
        if choice == 1:
            return ("127.0.0.1", self.dice.randrange(-1, 65537))
        if choice == 2:
            return ("::1", self.dice.randrange(65536), self.dice.randrange(1 << 21), self.dice.randrange(1 << 33))
        if choice == 3:
            return "u" * self.dice.choice((1, 106, 107, 108, 109, 200))
        if choice == 4:
            return b"\0" + self.dice.randbytes(self.dice.choice((0, 1, 106, 107, 108, 200)))
        if choice == 5:
            return self.dice.choice(["", b"", (), ("", 0), ("nobody.invalid", 1), (1, 2), ("127.0.0.1\0", 1), 17])
        return self.ends[1].getsockname()

    def ancillary(self):
        if self.dice.random() < 0.5:
            return []
        level, kind = self.dice.choice(((socket.SOL_SOCKET, socket.SCM_RIGHTS), (0, 0), (socket.SOL_SOCKET, 99)))
        fds = array.array("i", [self.file.fileno()] * self.dice.choice((0, 1, 2, 253, 254)))
        payload = fds.tobytes() + b"x" * self.dice.choice((0, 0, 1, 3))
        return [(level, kind, payload)] * self.dice.choice((1, 1, 2, 10))

    # -- what is checked

    def came(self, data):
        """All of it is this kind's.  (The standard library itself returns what memory held before with MSG_TRUNC.)"""
        if self.emulation:
            return
        if len(data) <= LOOKED_AT and bytes(data).strip(self.kind.letter + b"\0"):
            foreign = bytes(data).replace(self.kind.letter, b"").replace(b"\0", b"")
            raise Wrong(f"{len(foreign)} of {len(data)} bytes are not this socket's: {foreign[:40]!r}")

    def close_all(self, ancillary):
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                for number in numbers:
                    os.close(number)

    @contextlib.contextmanager
    def buffer(self):
        """A buffer in the middle of another, which is not to be touched beside it."""
        n = self.dice.choice(SIZES[1:-1])
        whole = bytearray(b"-" * (n + 2 * MARGIN))
        whole[MARGIN : MARGIN + n] = bytes(n)
        with memoryview(whole) as all_of_it, all_of_it[MARGIN : MARGIN + n] as view:
            try:
                yield view
            finally:
                if whole[:MARGIN] + whole[MARGIN + n :] != b"-" * (2 * MARGIN):
                    raise Wrong(f"a buffer of {n} bytes was left")
                self.came(view)

    # -- the calls of all sockets

    def call_recv(self, s):
        self.came(s.recv(self.size(), self.flags()))

    def call_recvfrom(self, s):
        self.came(s.recvfrom(self.size(), self.flags())[0])

    def call_recv_into(self, s):
        with self.buffer() as view:
            s.recv_into(view, self.dice.choice((0, 0, self.size())), self.flags())

    def call_recvfrom_into(self, s):
        with self.buffer() as view:
            s.recvfrom_into(view, self.dice.choice((0, 0, self.size())), self.flags())

    def call_recvmsg(self, s):
        room = self.dice.choice((0, 1, 15, 16, 17, 24, 100, 4096, -1))
        data, ancillary, _, _ = s.recvmsg(self.size(), room, self.flags())
        self.close_all(ancillary)
        self.came(data)

    def call_recvmsg_into(self, s):
        with self.buffer() as view:
            middle = self.dice.randrange(len(view) + 1)
            room = self.dice.choice((0, 24, 100))
            self.close_all(s.recvmsg_into([view[:middle], view[middle:]], room, self.flags())[1])

    def call_send(self, s):
        s.send(self.data(), self.flags())

    def call_sendall(self, s):
        s.sendall(bytearray(self.data()), self.flags())

    def call_sendto(self, s):
        s.sendto(self.data(), *self.dice.choice(((), (self.flags(),))), self.ends[1].getsockname())

    def call_sendmsg(self, s):
        s.sendmsg(self.pieces(), self.ancillary(), self.flags(), *self.dice.choice(((), (self.address(),))))

    def call_getsockopt(self, s):
        level, option = self.dice.choice(LEVELS), self.dice.randrange(-2, 80)
        size = self.dice.choice((None, 0, 1, 3, 4, 5, 8, 64, 256, 1023, 1024, 1025, -1, 1 << 40))
        got = s.getsockopt(level, option) if size is None else s.getsockopt(level, option, size)
        if isinstance(got, bytes) and size is not None and len(got) > size:
            raise Wrong(f"an option of {len(got)} bytes where {size} were asked for")

    def call_setsockopt(self, s):
        level, option = self.dice.choice(LEVELS), self.dice.randrange(0, 50)
        if (level, option) not in HARMFUL and self.dice.random() < 0.3:
            s.setsockopt(level, option, self.dice.choice((0, 1, -1, 1 << 31, bytes(4), bytes(16), b"\1", b"")))

    def call_getpeername(self, s):
        s.getpeername()

    def call_getsockname(self, s):
        s.getsockname()

    def call_bind(self, s):
        s.bind(self.address())

    def call_connect(self, s):
        if not self.emulation:
            s.connect(self.address())

    def call_listen(self, s):
        s.listen(self.dice.choice((-1, 0, 1, 4096, 1 << 31)))

    def call_accept(self, s):
        if not self.emulation:
            s.accept()[0].close()

    def call_dup(self, s):
        s.dup().close()

    def call_close(self, s):
        self.again(s.close)

    def call_shutdown(self, s):
        self.again(s.shutdown, self.dice.choice((0, 1, 2, 3, -1, 1 << 40)))

    def again(self, end, *arguments):
        """One that is the end of a connection; it is followed by a new one, and rare."""
        if self.dice.random() < 0.1:
            try:
                end(*arguments)
            finally:
                self.renew(self.dice.randrange(len(self.kinds)))

    def renew(self, i):
        for s in self.pairs[i]:
            with contextlib.suppress(OSError):
                s.close()
        self.pairs[i] = list(self.kinds[i].make())
        if self.emulation:
            for s in self.pairs[i]:
                s.settimeout(self.dice.choice((None, 0, 0.0001)))

    # -- and those that only our socks have

    def call_recvmmsg(self, s):
        for data, _ in s.recvmmsg(self.size(), self.dice.choice((0, 1, 2, 64, 65)), self.flags()):
            self.came(data)

    def call_sendmmsg(self, s):
        s.sendmmsg([(data, self.dice.choice((None, self.address()))) for data in self.pieces()], self.flags())

    def own_read(self, s):
        self.came(s.read(self.size()))

    def own_recv_exact(self, s):
        self.came(s.recv_exact(self.size()))

    def own_readv(self, s):
        for data in s.readv([self.size() for _ in range(self.dice.randrange(4))]):
            self.came(data)

    def own_recv_fds(self, s):
        data, fds, _, _ = s.recv_fds(self.size(), self.dice.choice((-1, 0, 1, 2, 253, 4096, 4097)), self.flags())
        for fd in fds:
            os.close(fd)
        self.came(data)

    def own_wait_for_read(self, s):
        s.wait_for_read()

    def own_wait_for_write(self, s):
        s.wait_for_write()

    def own_accept_many(self, s):
        for accepted, _ in s.accept_many(self.dice.choice((-1, 0, 1, 1 << 31))):
            accepted.close()

    def own_write(self, s):
        s.write(memoryview(self.data()))

    def own_writev(self, s):
        s.writev(self.pieces())

    def own_send_fds(self, s):
        s.send_fds(self.data(), [self.file] * self.dice.choice((0, 1, 253, 254)), self.flags())

    def own_sendfile(self, s):
        file = self.dice.choice((io.BytesIO(self.data()), io.BytesIO(b""), -1))
        s.sendfile(file, self.dice.choice((None, 0, 1, self.size())), self.dice.choice((None, 0, 1, self.size())))

    def own_detach(self, s):
        if self.dice.random() < 0.1:
            i = self.kinds.index(self.kind)
            self.pairs[i][self.pairs[i].index(s)] = coro.fd_sock(s.detach())

    def own_makefile(self, s):
        with s.makefile("rb", 0) as file:
            self.came(file.read(abs(self.dice.choice(SIZES))) or b"")

    # -- the run

    def step(self):
        i = self.dice.randrange(len(self.kinds))
        self.kind, self.ends = self.kinds[i], self.pairs[i][:]
        self.dice.shuffle(self.ends)
        name = self.dice.choice(self.names)
        self.last = f"{name} of {self.kind.name}"
        self.calls += 1
        try:
            coro.with_timeout(0, getattr(self, name), self.ends[0])
        except (Wrong, SystemError):
            raise
        except (Exception, coro.Interrupted):
            self.refused += 1
        if self.pairs[i][0].fileno() < 0 or self.pairs[i][1].fileno() < 0 or self.dice.random() < 0.01:
            self.renew(i)


def main(options, goes_on):
    fuzz = Fuzz(options, unchanged if options.emulation else wrapped)
    try:
        while goes_on(fuzz.calls):
            fuzz.step()
    except BaseException:
        print(f"call {fuzz.calls}, {fuzz.last}:", file=sys.stderr)
        raise
    finally:
        for pair in fuzz.pairs:
            for s in pair:
                s.close()
        fuzz.file.close()
    print(f"{fuzz.calls} calls, {fuzz.refused} of them refused or interrupted")


def run(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=int, default=0, help="calls in all, instead of --seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: any")
    parser.add_argument("--emulation", action="store_true", help="try emulated sockets instead")
    options = parser.parse_args(argv)
    print(f"seed {options.seed}", flush=True)
    end = time.monotonic() + options.seconds
    coro.set_latency_warning(0)  # a sanitizer takes its time
    if options.emulation:
        coro.install_thread_emulation()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # sockets are bound there
        try:
            coro.run(main, options, lambda n: n < options.steps if options.steps else time.monotonic() < end)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
