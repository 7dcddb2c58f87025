"""Emulated sockets, TLS, select, children, pipes, signals and names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from emulation_support import emulated
from support import ok


def test_socket_time_limits_and_modes():
    emulated("""
        import fcntl, os, socket

        def is_nonblocking(sock):
            return bool(fcntl.fcntl(sock, fcntl.F_GETFL) & os.O_NONBLOCK)

        def main():
            a, b = socket.socketpair()
            with a, b:
                for limit, nonblocking in ((None, False), (0.01, True), (0, True)):
                    a.settimeout(limit)
                    assert a.gettimeout() == limit and is_nonblocking(a) == nonblocking
                    if limit is None:
                        continue
                    calls = [lambda: a.recv(1), lambda: a.recv_into(bytearray(1)), lambda: a.recvfrom(1),
                             lambda: a.recvmsg(1), lambda: a.recvmsg_into([bytearray(1)])]
                    for call in calls:
                        try:
                            call()
                        except BlockingIOError:
                            assert limit == 0
                        except TimeoutError as exc:
                            assert limit and str(exc) == "timed out"
                        else:
                            raise AssertionError(call)
                        assert is_nonblocking(a) == nonblocking
                a.settimeout(None)
                try:
                    a.recv(1, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    pass
                a.settimeout(0.01)
                try:
                    while True:
                        a.sendall(b"x" * 100000)
                except TimeoutError:
                    pass
    """)


def test_blocking_send_takes_everything():
    emulated("""
        import socket, threading

        def main():
            a, b = socket.socketpair()
            with a, b:
                for send in (a.send, lambda data: a.sendmsg([data[:10], data[10:]])):
                    data = bytes(range(256)) * 8192
                    sent = []
                    thread = threading.Thread(target=lambda: sent.append(send(data)))
                    thread.start()
                    assert b.recv(len(data), socket.MSG_WAITALL) == data
                    thread.join()
                    assert sent == [len(data)]
    """)


def test_closing_wakes_whoever_waits():
    emulated("""
        import errno, socket, threading

        def main():
            listener = socket.create_server(("127.0.0.1", 0))
            failed = []

            def wait():
                try:
                    listener.accept()
                except OSError as exc:
                    failed.append(exc.errno)

            threads = [threading.Thread(target=wait)]
            for thread in threads:
                thread.start()
            listener.close()
            for thread in threads:
                thread.join()
            assert failed == [errno.EBADF]
    """)


def test_several_threads_wait_for_one_descriptor():
    emulated("""
        import select, socket, threading

        def main():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = listener.getsockname()
                served, looked = [], []

                def serve():
                    with listener.accept()[0] as conn:
                        served.append(conn.recv(10))

                def look():
                    looked.append(select.select([listener], [], [])[0])

                threads = [threading.Thread(target=serve) for _ in range(5)] + [threading.Thread(target=look)]
                for thread in threads:
                    thread.start()
                coro.yield_slice()
                for _ in range(5):
                    with socket.create_connection(address) as conn:
                        conn.sendall(b"hello")
                for thread in threads:
                    thread.join()
                assert served == [b"hello"] * 5 and looked == [[listener]]
    """)


def test_select_poll_epoll_and_selectors():
    emulated("""
        import select, selectors, socket, threading, time

        def main():
            a, b = socket.socketpair()
            c, d = socket.socketpair()
            with a, b, c, d:
                poll, epoll = select.poll(), select.epoll()
                for sock in (a, c):
                    poll.register(sock, select.POLLIN)
                    epoll.register(sock, select.EPOLLIN)
                assert select.select([a, c], [], [a], 0.01) == ([], [], [])
                assert poll.poll(10) == epoll.poll(0.01) == []
                waits = [
                    lambda: select.select([a, c], [], [a, c])[0] == [c],
                    lambda: poll.poll() == [(c.fileno(), select.POLLIN)],
                    lambda: epoll.poll() == [(c.fileno(), select.EPOLLIN)],
                ]
                for kind in ("SelectSelector", "PollSelector", "EpollSelector"):
                    selector = getattr(selectors, kind)()
                    selector.register(a, selectors.EVENT_READ)
                    selector.register(c, selectors.EVENT_READ)
                    waits.append(lambda selector=selector: [key.fileobj for key, _ in selector.select()] == [c])
                right = []
                threads = [threading.Thread(target=lambda wait=wait: right.append(wait())) for wait in waits]
                for thread in threads:
                    thread.start()
                time.sleep(0.01)
                assert right == []
                d.send(b"x")
                for thread in threads:
                    thread.join()
                assert right == [True] * 6
                epoll.close()
            for *wrong, kind in (([], [], [], -1, ValueError), ([], [], [], "1", TypeError), (1, [], [], TypeError)):
                try:
                    select.select(*wrong)
                except kind:
                    pass
                else:
                    raise AssertionError(wrong)
    """)


def test_names_go_through_the_resolver():
    emulated("""
        import socket, sys

        class Resolver:
            def resolve_ipv4(self, name):
                if name != "nowhere.test":
                    raise coro.NameError(name)
                return "127.0.0.1"

            def resolve_ipv6(self, name):
                raise coro.NameError(name)

        def main():
            assert socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4] == ("127.0.0.1", 80)
            assert socket.gethostbyname("localhost") == "127.0.0.1"
            wrong = [["no address"]]
            references = sys.getrefcount(wrong[0])
            try:
                socket.getnameinfo(wrong[0], 0)
            except TypeError:
                assert sys.getrefcount(wrong[0]) == references, "the traceback keeps none"
            coro.set_resolver(Resolver())
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                with socket.create_connection(("nowhere.test", port)) as conn, socket.socket() as other:
                    other.connect(("nowhere.test", port))
                    assert conn.getpeername() == other.getpeername()
            assert socket.gethostbyname_ex("nowhere.test")[2] == ["127.0.0.1"]
            try:
                socket.getaddrinfo("else.test", 1)
            except socket.gaierror as exc:
                assert exc.errno == socket.EAI_NONAME
            else:
                raise AssertionError
    """)


def test_a_resolver_may_answer_the_calls_itself():
    emulated("""
        import socket

        class Resolver:
            def resolve_ipv4(self, name):
                raise AssertionError(name)

            resolve_ipv6 = resolve_ipv4

            def getaddrinfo(self, *args):
                return [(*args[2:5], "canonical", args[:2])]

            def gethostbyname_ex(self, name):
                return (name, ["alias"], ["192.0.2.1"])

            def gethostbyaddr(self, host):
                return ("name.test", [], [host])

            def getnameinfo(self, sockaddr, flags):
                return (f"{flags}", f"{sockaddr[1]}")

        def main():
            coro.set_resolver(Resolver())
            assert socket.getaddrinfo("a.test", "http", type=1) == [(0, 1, 0, "canonical", ("a.test", "http"))]
            assert socket.gethostbyname_ex("a.test") == ("a.test", ["alias"], ["192.0.2.1"])
            assert socket.gethostbyaddr("192.0.2.1") == ("name.test", [], ["192.0.2.1"])
            assert socket.getnameinfo(("192.0.2.1", 80), 0) == ("0", "80")
            numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
            assert socket.getnameinfo(("192.0.2.1", 80), numeric) == ("192.0.2.1", "80")
    """)


@pytest.mark.slow
@pytest.mark.each_python
def test_http_client_and_server_in_one_process():
    """200 clients and a threaded server, both of the standard library, on one OS thread; no handler answers before all
    200 are at work."""
    lines = ok(
        """
        import coro
        coro.install_thread_emulation()
        import http.server, threading, urllib.request

        together = threading.Barrier(200)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                together.wait(60)
                body = self.path.encode() * 1000
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 512

        def main():
            server = Server(("127.0.0.1", 0), Handler)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
            url = f"http://127.0.0.1:{server.server_port}/"
            good = []

            def fetch(n):
                with urllib.request.urlopen(f"{url}{n}", timeout=60) as answer:
                    good.append(answer.read() == f"/{n}".encode() * 1000)

            threads = [threading.Thread(target=fetch, args=(n,)) for n in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            server.shutdown()
            server.server_close()
            print(len(good), all(good))

        coro.run(main)
    """
    )
    assert lines == ["200 True"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        text = "no openssl program to make a certificate with: install openssl"
        if os.environ.get("CORO_REQUIRE_SERVERS") == "1":
            pytest.fail(text)
        pytest.skip(text)
    folder = tmp_path_factory.mktemp("tls")
    arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [openssl, *arguments.split(), "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True,
        capture_output=True,
    )
    return folder


def test_tls(certificate: Path):
    emulated(f"""
        import socket, ssl, threading

        def main():
            here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            here.load_cert_chain({str(certificate / "cert.pem")!r}, {str(certificate / "key.pem")!r})
            there = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            there.load_verify_locations({str(certificate / "cert.pem")!r})
            there.check_hostname = False
            listener = socket.create_server(("127.0.0.1", 0))

            def serve():
                conn, _ = listener.accept()
                with here.wrap_socket(conn, server_side=True) as conn:
                    while data := conn.recv(1000):
                        conn.sendall(data)

            def ask(limit):
                with socket.create_connection(listener.getsockname()) as raw:
                    raw.settimeout(limit)
                    with there.wrap_socket(raw, server_hostname="localhost") as conn:
                        for size in (1, 1000, 300000):
                            writer = threading.Thread(target=conn.sendall, args=(b"x" * size,))
                            writer.start()
                            got = 0
                            while got < size:
                                got += len(conn.recv(16384))
                            writer.join()
                        assert conn.version().startswith("TLS")
                        conn.settimeout(0.01)
                        try:
                            conn.recv(1)
                        except TimeoutError as exc:
                            assert "timed out" in str(exc)
                        else:
                            raise AssertionError
                done.append(limit)

            done = []
            threads = [threading.Thread(target=ask, args=(limit,)) for limit in (None, 30)]
            threads += [threading.Thread(target=serve) for _ in threads]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            listener.close()
            assert len(done) == 2
    """)


@pytest.mark.slow
@pytest.mark.each_python
def test_children_and_pipes():
    assert emulated("""
        import os, subprocess, threading

        def main():
            codes = []
            said, says = os.pipe()
            held, holds = os.pipe()

            def call(n):
                command = ["sh", "-c", f"echo here; cat; exit {n}"]
                codes.append(subprocess.call(command, stdin=held, stdout=says))

            threads = [threading.Thread(target=call, args=(n,)) for n in range(10)]
            for thread in threads:
                thread.start()
            for _ in range(10):  # all of them are there before any may end
                assert os.read(said, 5) == b"here\\n"
            os.close(holds)
            for thread in threads:
                thread.join()
            assert sorted(codes) == list(range(10))
            child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            child.stdin.write("line\\n")
            print(child.stdout.readline().strip())
            assert len(child.communicate("x" * 1000000)[0]) == 1000000 and child.returncode == 0
            try:
                subprocess.run(["sleep", "10"], timeout=0.05)
            except subprocess.TimeoutExpired:
                pass
            r, w = os.pipe()
            writer = threading.Thread(target=os.write, args=(w, b"y" * 300000))
            writer.start()
            got = 0
            while got < 300000:
                got += len(os.read(r, 100000))
            writer.join()
            pid = os.spawnlp(os.P_NOWAIT, "true", "true")
            assert os.wait() == (pid, 0)
            assert os.system("exit 3") == 3 << 8
            os.close(r)
            os.close(w)
    """) == ["line"]


def test_files_of_pipes_terminals_and_sockets():
    """Nobody here is served before he waits: a file that blocked the loop would block it for ever."""
    assert emulated("""
        import os, socket, threading

        def thread_that(function, *args):
            thread = threading.Thread(target=function, args=args)
            thread.start()
            return thread

        def main():
            got = []

            def read(path):
                with open(path, encoding="ascii") as file:
                    got.append(file.readline())
                    got.append(len(file.read()))

            os.mkfifo("fifo")
            reader = thread_that(read, "fifo")
            with open("fifo", "w") as file:
                file.write("line\\n")
                file.flush()
                file.write("x" * 1000000)
            reader.join()
            print(got)

            master, slave = os.openpty()
            with open(master, "r+b", buffering=0) as ours, open(slave) as theirs:
                reader = thread_that(lambda: print(theirs.isatty(), theirs.line_buffering, theirs.readline().strip()))
                ours.write(b"typed\\n")
                reader.join()

            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                a, b = socket.socketpair(socket.AF_UNIX, kind)
                out = os.fdopen(os.dup(a.fileno()), "wb", 0)
                with a, b, out, open(b.fileno(), "rb", 0, closefd=False) as into:
                    writer = thread_that(out.write, b"y" * 60000)
                    received = into.read(100000)
                    while len(received) < 60000:
                        assert kind == socket.SOCK_STREAM, "a message is not cut"
                        received += into.read(100000)
                    writer.join()

            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            with open(read_end, "rb", buffering=0) as file, open(write_end, "wb"):
                assert file.read(1) is None, "a descriptor in non-blocking mode stays that"

        """) == ["['line\\n', 1000000]", "True True typed"]


def test_open_is_otherwise_what_it_was():
    emulated("""
        import io, os, pathlib, warnings

        class Opener:
            opens = open

        def outcome(function, *args):
            try:
                with function(*args) as file:
                    return type(file), file.mode, getattr(file, "encoding", None), file.name
            except Exception as exc:
                return type(exc), str(exc)

        def main():
            original = coro.emulation.original("io").open
            assert open is io.open is Opener.opens is Opener().opens is not original
            os.mkfifo("fifo")
            read_end, write_end = os.pipe()
            for args in [
                ("new", "w"), ("new",), ("new", "rb"), ("new", "x"), ("missing",), (os.devnull,), (".",), ("fifo", "x"),
                (b"new",), (pathlib.Path("new"), "r+b", 0), ("a\\0b",), (None,), (1.5,), (987654,), ("new", "q"),
                ("new", 1), ("fifo", "rq"), ("fifo", "rb", -1, "ascii"), (read_end, "r", 0, None, None, None, False),
                ("fifo", "rb", "1"), ("fifo", "r", -1, 1), ("fifo", "r", -1, None, 1), ("fifo", "r", -1, None, None, 1),
                (read_end, "rb", -1, None, None, "", False), (read_end, "r", -1, None, None, "z", False),
            ]:
                assert outcome(open, *args) == outcome(original, *args), args
            with open("opened", "w", opener=lambda path, flags: os.open("other", flags)) as file:
                assert os.path.exists("other")
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                open(read_end, "rb", 1, closefd=False).close()
            assert [(w.category, w.filename) for w in found] == [(RuntimeWarning, "<string>")], found
            os.close(read_end)
            os.close(write_end)
        """)


def test_signal_handlers_run_in_the_main_thread():
    assert emulated("""
        import os, signal, socket, subprocess, threading, time

        class Alarm(Exception):
            pass

        def handler(signum, frame):
            seen.append(threading.current_thread() is threading.main_thread())
            if raising:
                raise Alarm

        seen, raising = [], False

        def main():
            global raising
            assert signal.signal(signal.SIGALRM, handler) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGALRM) is handler
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            began = time.monotonic()
            time.sleep(0.1)  # goes on after the handler
            assert time.monotonic() - began >= 0.1 and seen == [True]
            raising = True
            a, b = socket.socketpair()
            with a, b:
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                try:
                    a.recv(1)
                except Alarm:
                    print("raised in recv")
            raising = False
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGALRM)).start()
            signal.pause()
            assert seen == [True] * 3
            stop = threading.Event()
            signal.signal(signal.SIGTERM, lambda *args: stop.set())
            child = subprocess.Popen(["kill", "-TERM", str(os.getpid())])
            stop.wait()  # nothing in this process will end it
            assert child.wait() == 0
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                print("interrupted")
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                coro.sleep_relative(10)  # not an emulated call
            except KeyboardInterrupt:
                print("interrupted")
    """) == ["raised in recv", "interrupted", "interrupted"]


def test_makefile_detach_dup_and_descriptors_of_others():
    emulated("""
        import array, os, socket, threading

        def main():
            a, b = socket.socketpair()
            with a.makefile("w", encoding="ascii") as out, b.makefile("r", encoding="ascii") as back:
                a.close()
                out.write("one\\ntwo\\n")
                out.flush()
                assert back.readline() == "one\\n" and back.readline() == "two\\n"
            b.close()
            a, b = socket.socketpair()
            twin = a.dup()
            a.close()
            again = socket.socket(fileno=twin.detach())
            r, w = os.pipe()
            socket.send_fds(again, [b"fd"], [w])
            data, (fd,), _, _ = socket.recv_fds(b, 10, 1)
            os.write(fd, b"through")
            assert data == b"fd" and os.read(r, 10) == b"through"
            for number in (r, w, fd):
                os.close(number)
            with open("file", "wb+") as file:
                file.write(b"z" * 1000000)
                file.flush()
                file.seek(0)
                thread = threading.Thread(target=again.sendfile, args=(file,))
                thread.start()
                got = 0
                while got < 1000000:
                    got += len(b.recv(65536))
                thread.join()
            again.close()
            b.close()
    """)


def test_sleep_judges_its_argument():
    emulated("""
        import time

        def main():
            for wrong, kind in ((-1, ValueError), ("1", TypeError), (float("nan"), ValueError), (None, TypeError)):
                try:
                    time.sleep(wrong)
                except kind:
                    pass
                else:
                    raise AssertionError(wrong)
            time.sleep(0)
    """)


def test_the_wrong_end_of_a_pipe_and_what_is_no_descriptor_are_errors_at_once():
    assert emulated("""
        import errno, io, os

        def failed(function, *args):
            try:
                function(*args)
            except OSError as e:
                return errno.errorcode.get(e.errno, type(e).__name__)
            return "nothing"

        def main():
            r, w = os.pipe()
            print(failed(os.write, r, b"x"), failed(os.read, w, 1), failed(os.readv, w, [bytearray(1)]))
            with open(r, "rb", 0) as reader, open(w, "wb", 0) as writer:
                print(failed(reader.write, b"x"), failed(writer.read, 1))
            for fd in (-1, 10000):
                print(failed(os.write, fd, b"x"), failed(os.read, fd, 1), failed(os.readv, fd, [bytearray(1)]),
                      failed(os.writev, fd, [b"x"]))
    """) == [
        "EBADF EBADF EBADF",
        "UnsupportedOperation UnsupportedOperation",
        "EBADF EBADF EBADF EBADF",
        "EBADF EBADF EBADF EBADF",
    ]


def test_select_survives_a_file_that_is_closed_after_the_wake_up():
    assert emulated("""
        import select, socket, threading

        def main():
            a, b = socket.socketpair()
            c, d = socket.socketpair()
            told, waits = [], threading.Event()

            def wait():
                waits.set()
                told.append([file is a for file in select.select([a, c], [], [], 60)[0]])

            thread = threading.Thread(target=wait)
            thread.start()
            waits.wait()
            coro.sleep(0)
            b.send(b"x")                # wakes the other thread
            a.close()                   # before it has looked
            thread.join()
            print(told)
            for end in (b, c, d):
                end.close()
    """) == ["[[True]]"]


def test_a_buffer_over_a_raw_file_of_the_program():
    assert emulated("""
        import gzip, io, socket, threading

        class Raw(io.RawIOBase):
            def __init__(self, s):
                self.s = s

            def readable(self):
                return True

            def writable(self):
                return True

            def readinto(self, buffer):
                return self.s.recv_into(buffer)

            def write(self, data):
                return self.s.send(data)

        def main():
            a, b = socket.socketpair()
            for s in (a, b):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            writer, reader = io.BufferedWriter(Raw(a), 1000), io.BufferedReader(Raw(b), 1000)
            pair = io.BufferedRWPair(Raw(b), Raw(a))
            got = []

            def write():
                for _ in range(100):
                    writer.write(b"x" * 500)
                writer.flush()

            def read():
                for _ in range(100):
                    got.append(len(reader.read(500)))

            threads = [threading.Thread(target=function) for function in (write, write, read, read)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert got == [500] * 200
            # The originals and what stands for them are one class to programs.
            with open("/dev/null", "rb") as file, open(__import__("sys").executable, "rb") as binary:
                assert isinstance(file, io.BufferedReader) and isinstance(binary, io.BufferedReader)
            assert isinstance(writer, io.BufferedIOBase) and not isinstance(writer, io.BufferedReader)
            assert issubclass(io.BufferedWriter, io.BufferedIOBase)
            over_bytes = io.BufferedReader(io.BytesIO(b"abc"))
            assert isinstance(over_bytes, io.BufferedReader) and over_bytes.read() == b"abc"

            class Mine(io.BufferedReader):
                pass

            assert Mine(io.BytesIO(b"abc")).read() == b"abc" and not isinstance(over_bytes, Mine)
            assert gzip.decompress(gzip.compress(b"abc")) == b"abc"
            assert io.TextIOWrapper(over_bytes).read() == ""
            print(type(writer).__name__, type(writer).__module__)
            a.close()
            b.close()
    """) == ["BufferedWriter _io"]
