"""``python -m coro.http serve``: finding the application, what it is, and the program as a whole."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from http.client import HTTPConnection, HTTPException

import client_tls
import pytest

from coro.http import _cli_serve
from coro.http._loading import LoadError, interface_of, load

APPS = """
    import os
    from coro import http

    def wsgi(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.getpid()} {VERSION}".encode()]

    async def asgi(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"asgi"})

    class Asgi:
        async def __call__(self, scope, receive, send):
            pass

    def plain(request):
        return "plain"

    def make():
        return wsgi

    app = http.App()
    nothing = 7
    VERSION = 1
"""

#: For localhost as well, from 2020 to 2119; a key of tests.
OTHER_CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCcQ3ixQR0761Pm2O
DWZui1RzLe8sJV4wAYy+DWJr+0+hRANCAAQQeI7xD7QC4oGwPwp872tK08zIb4qi
zrfXdvNaI91dNf8jTwT91+9DQET532+pQxAuYQiG01yQMQUv4yLcso9x
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBFjCBvaADAgECAgECMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWxvY2FsaG9z
dDAgFw0yMDAxMDEwMDAwMDBaGA8yMTE5MTIzMTAwMDAwMFowFDESMBAGA1UEAwwJ
bG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEHiO8Q+0AuKBsD8K
fO9rStPMyG+Kos6313bzWiPdXTX/I08E/dfvQ0BE+d9vqUMQLmEIhtNckDEFL+Mi
3LKPcTAKBggqhkjOPQQDAgNIADBFAiEA2yoh1qw2h3aNTOjPrN8oX/W9pNDbEtc8
q7hPjNtOyHoCICyYujajnmbR+00ShcPPTYcpqef9TnfuCYwD445q8lwo
-----END CERTIFICATE-----
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "served_apps.py").write_text(textwrap.dedent(APPS))
    yield tmp_path
    sys.modules.pop("served_apps", None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def test_finding_an_application(folder):
    found = load("served_apps:wsgi", folder=str(folder))
    assert interface_of(found) == "wsgi"
    assert interface_of(load("served_apps", folder=str(folder))) == "http"
    assert interface_of(load("served_apps:asgi")) == "asgi"
    assert interface_of(load("served_apps:Asgi")()) == "asgi"
    assert interface_of(load("served_apps:plain")) == "http"
    assert load("served_apps:make", factory=True) is found
    for name, words in (
        ("served_apps:missing", "no attribute 'missing'"),
        ("no_such_module_here:app", "no module 'no_such_module_here'"),
        ("served_apps:nothing", "no application"),
        (":app", "module:app"),
    ):
        with pytest.raises(LoadError, match=words):
            load(name, folder=str(folder))
    with pytest.raises(LoadError, match="factory"):
        load("served_apps:nothing", factory=True)


def test_frameworks_whose_methods_have_names_of_ours():
    """As Pyramid's router, and the applications of Quart and Sanic."""

    class Router:
        def handle_request(self, request):
            pass

        def __call__(self, environ, start_response):
            pass

    class Asynchronous:
        async def handle_request(self, request):
            pass

        async def __call__(self, scope, receive, send):
            pass

    class Both(Asynchronous):
        def match(self, request):
            return True

    class Classic:
        def match(self, request):
            return True

        def handle_request(self, request):
            pass

    found = [interface_of(made()) for made in (Router, Asynchronous, Both, Classic)]
    assert found == ["wsgi", "asgi", "asgi", "http"]


def test_objects_that_have_every_attribute():
    """As proxies and mocks: only what is there without a ``__getattr__`` says what they are."""

    class Yes:
        def __getattr__(self, name):
            return lambda *args: None

    class Handler(Yes):
        def __call__(self, environ, start_response):
            pass

    class Asynchronous(Yes):
        async def __call__(self, scope, receive, send):
            pass

    class Unbound:
        def __getattr__(self, name):
            raise RuntimeError("working outside of a context")

        def __call__(self, environ, start_response):
            pass

    assert interface_of(Asynchronous()) == "asgi"
    for app in (Handler(), Unbound()):
        with pytest.raises(LoadError, match="--interface"):
            interface_of(app)


def test_addresses():
    assert _cli_serve.address_of("127.0.0.1:80") == ("127.0.0.1", 80)
    assert _cli_serve.address_of(":80") == ("", 80)
    assert _cli_serve.address_of("[::1]:80") == ("::1", 80)
    assert _cli_serve.address_of("unix:/tmp/x") == "/tmp/x"
    for text in ("80", "host:", "host:http", "host:99999"):
        with pytest.raises(SystemExit, match="expected an address"):
            _cli_serve.address_of(text)


class Program:
    """The command, started; its first line says where it listens."""

    def __init__(self, folder, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coro.http", "serve", *arguments, "--app-dir", str(folder), "-b", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.url, self.said = "", ""
        while not self.url:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
            found = re.search(r"on (https?://[^, ]+)", line)
            self.url = found[1] if found else ""

    def get(self):
        with urllib.request.urlopen(self.url, timeout=60) as answer:
            return answer.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            _, rest = self.process.communicate(timeout=60)
            self.said += rest
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_one_worker(folder):
    for app, kind, answer in (("served_apps:wsgi", "WSGI", " 1"), ("served_apps:asgi", "ASGI", "asgi"),
                              ("served_apps:plain", "handler", "plain")):  # fmt: skip
        with Program(folder, app) as program:
            assert f"({kind})" in program.said
            assert program.get().endswith(answer)
        assert program.process.returncode == 0, program.said
        assert '"GET / HTTP/1.1" 200' in program.said


@pytest.mark.slow
def test_workers_are_replaced_after_many_requests(folder):
    with Program(folder, "served_apps:wsgi", "--workers", "2", "--max-requests", "5") as program:
        assert len({program.get() for _ in range(40)}) > 2  # every request was answered, by more processes than two
    assert program.process.returncode == 0, program.said


@pytest.mark.slow
def test_reload(folder):
    source = folder / "served_apps.py"
    # Nobody reads what it says while it is asked again and again, so it must say nothing: the pipe would fill up.
    with Program(folder, "served_apps:wsgi", "--reload", "--access-log", "off") as program:
        assert program.get().endswith(" 1")
        source.write_text(textwrap.dedent(APPS).replace("VERSION = 1", "VERSION = 2"))
        deadline = time.monotonic() + 60
        while not program.get().endswith(" 2"):
            assert time.monotonic() < deadline
    assert program.process.returncode == 0, program.said


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_replacing_workers_loses_no_request(folder, workers):
    """SIGHUP three times while clients send: on connections that stay open, and on a new one for each request."""
    with Program(folder, "served_apps:wsgi", "--workers", workers, "--access-log", "off") as program:
        host, port = re.fullmatch(r"http://([^:]+):(\d+)/?", program.url).groups()
        answered, failed, stop = [], [], threading.Event()

        def send(keep_alive):
            conn = HTTPConnection(host, int(port), timeout=60)
            try:
                while not stop.is_set():
                    conn.request("GET", "/", headers={} if keep_alive else {"Connection": "close"})
                    answer = conn.getresponse()
                    answered.append(int(answer.read().split()[0]))
                    assert answer.status == 200
            except Exception as e:
                failed.append(repr(e))
            finally:
                conn.close()

        clients = [threading.Thread(target=send, args=(number % 2 == 0,)) for number in range(8)]
        for client in clients:
            client.start()
        try:
            seen = set()
            for _ in range(3):
                program.process.send_signal(signal.SIGHUP)
                deadline = time.monotonic() + 60
                while len(set(answered) - seen) < int(workers) and not failed:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                seen |= set(answered)
        finally:
            stop.set()
            for client in clients:
                client.join()
        assert not failed
    assert program.process.returncode == 0, program.said


def ended_under_load(folder, app):
    """SIGTERM to two workers while clients send, on kept connections and on new ones: requests answered, and errors."""
    answered, lost = [], []

    def ask(conn, keep_alive):
        conn.request("GET", "/", headers={} if keep_alive else {"Connection": "close"})
        answer = conn.getresponse()
        assert answer.status == 200 and answer.read()
        answered.append(1)

    def send(host, port, keep_alive):
        while True:
            conn = HTTPConnection(host, int(port), timeout=60)
            try:
                conn.connect()
            except ConnectionRefusedError:
                return
            try:
                ask(conn, keep_alive)
                while conn.sock is not None:
                    ask(conn, keep_alive)
            except Exception as e:
                lost.append(repr(e))
            finally:
                conn.close()

    with Program(folder, app, "--workers", "2", "--access-log", "off") as program:
        place = re.fullmatch(r"http://([^:]+):(\d+)/?", program.url).groups()
        clients = [threading.Thread(target=send, args=(*place, number % 2 == 0)) for number in range(8)]
        for client in clients:
            client.start()
        deadline = time.monotonic() + 60
        while len(answered) < 200:
            assert time.monotonic() < deadline and not lost
            time.sleep(0.001)
        program.process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join()
        assert program.process.wait(60) == 0
    return len(answered), lost


@pytest.mark.slow
@pytest.mark.parametrize("app", ["served_apps:wsgi", "served_apps:asgi"])
def test_the_end_loses_no_request(folder, app):
    """Who is connected is answered, who is not is refused. CORO_HTTP_ENDS: how often."""
    for _ in range(int(os.environ.get("CORO_HTTP_ENDS", "1"))):
        answered, lost = ended_under_load(folder, app)
        print(f"{answered} answered")
        assert lost == []


@pytest.mark.slow
def test_an_application_that_cannot_start_ends_the_program(folder):
    """Once, with what it says; in a reload, the workers that are there go on."""
    (folder / "broken.py").write_text("import os\n1 / int(os.environ.get('DIVISOR', '0'))\n" + textwrap.dedent(APPS))
    for workers in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "coro.http", "serve", "broken:wsgi", "--app-dir", str(folder), "-b", "127.0.0.1:0",
             "--workers", workers],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1
        assert 1 <= done.stderr.count("ZeroDivisionError: division by zero") <= int(workers)
        assert "LoopError" not in done.stderr and "failed" not in done.stderr
    with Program(folder, "served_apps:wsgi", "--access-log", "off") as program:
        before = program.get()
        (folder / "served_apps.py").write_text("1 / 0\n")
        program.process.send_signal(signal.SIGHUP)
        while "reload failed" not in program.said:
            program.said += program.process.stderr.readline()
        assert program.get() == before
    assert program.process.returncode == 0, program.said


@pytest.mark.slow
def test_an_import_that_takes_its_time_is_no_warning(folder, monkeypatch):
    """The first line is the one that says what is served where; later on, the warning is there."""
    monkeypatch.setenv("CORO_LATENCY_WARNING", "1")
    (folder / "slow_app.py").write_text(
        "import time\ntime.sleep(0.3)\nEND = time.monotonic() + 0.3\nwhile time.monotonic() < END: pass\n"
        "def app(request):\n    END = time.monotonic() + 0.3\n    while time.monotonic() < END: pass\n    return 'x'\n"
    )
    with Program(folder, "slow_app:app") as program:
        assert program.said.startswith("coro-http ") and program.said.count("\n") == 1
        assert program.get() == "x"
    assert "High Latency" in program.said


@pytest.mark.slow
def test_a_reload_brings_in_a_new_certificate(folder):
    def serial():
        with socket.create_connection((host, int(port)), timeout=60) as conn:
            with ssl._create_unverified_context().wrap_socket(conn) as stream:
                return stream.getpeercert(binary_form=True)

    chain = folder / "chain.pem"
    chain.write_text(client_tls.CERTIFICATE)
    with Program(folder, "served_apps:wsgi", "--cert", str(chain), "--access-log", "off") as program:
        host, port = re.fullmatch(r"https://([^:]+):(\d+)/?", program.url).groups()
        before = serial()
        chain.write_text("broken")
        program.process.send_signal(signal.SIGHUP)
        while "reload failed" not in program.said:
            program.said += program.process.stderr.readline()
        assert "the certificate" in program.said and serial() == before
        chain.write_text(OTHER_CERTIFICATE)
        program.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while serial() == before:
            assert time.monotonic() < deadline
    assert program.process.returncode == 0, program.said


@pytest.mark.slow
def test_the_end_of_a_terminal_is_no_reload(folder):
    """SIGHUP comes from the kernel then, and nobody is left to stop the program."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
         "os.execv(sys.executable, [sys.executable, '-m', 'coro.http', 'serve', 'served_apps:wsgi', '-b', "
         "'127.0.0.1:0'])"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        said = b""
        while b"Ctrl-C stops it" not in said:
            said += os.read(ours, 1000)
        os.close(ours)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_killed_workers_lose_what_they_were_answering(folder):
    """SIGKILL to any of the workers after any number of answers: a client loses at most the one request that is under
    way, on a kept connection or on one that the worker has accepted or was about to. The others answer, and a new
    worker comes. CORO_HTTP_KILLS: how often; CORO_HTTP_SEED: which. The program gives up after 20 failures of its four
    workers within a minute, so many kills take their time."""
    kills = int(os.environ.get("CORO_HTTP_KILLS", "3"))
    seed = os.environ.get("CORO_HTTP_SEED") or str(random.randrange(1 << 30))
    print(f"CORO_HTTP_SEED={seed}")
    choice = random.Random(seed)
    pause = 0.0 if kills < 20 else 3.2
    with Program(folder, "served_apps:wsgi", "--workers", "4", "--access-log", "off") as program:
        host, port = re.fullmatch(r"http://([^:]+):(\d+)/?", program.url).groups()
        stop, pids = threading.Event(), {}
        answered, lost = {True: 0, False: 0}, {True: 0, False: 0}  # by whether connections are kept

        def send(keep_alive):
            conn = HTTPConnection(host, int(port), timeout=60)
            while not stop.is_set():
                try:
                    conn.request("GET", "/", headers={} if keep_alive else {"Connection": "close"})
                    pids[int(conn.getresponse().read().split()[0])] = True
                    answered[keep_alive] += 1
                except (OSError, HTTPException):
                    lost[keep_alive] += 1
                    conn.close()
            conn.close()

        clients = [threading.Thread(target=send, args=(number % 2 == 0,)) for number in range(8)]
        for client in clients:
            client.start()
        try:
            deadline = time.monotonic() + 60 * kills
            killed = []

            def until(reached):
                while not reached():
                    assert time.monotonic() < deadline and program.process.poll() is None
                    time.sleep(0.001)

            for number in range(kills):
                until(lambda n=number: len(pids) >= 1 + n)  # somebody is left, and has answered
                at = time.monotonic() + (pause and pause + choice.random())
                until(lambda at=at: time.monotonic() >= at)
                enough = sum(answered.values()) + choice.randrange(1000)
                until(lambda n=enough: sum(answered.values()) >= n)
                victim = choice.choice([pid for pid in list(pids) if pid not in killed])
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)
            until(lambda: len(pids) >= 1 + kills)
        finally:
            stop.set()
            for client in clients:
                client.join()
        print(
            f"{kills} workers killed; on kept connections {answered[True]} requests answered and {lost[True]} lost, "
            f"on new ones {answered[False]} and {lost[False]}"
        )
        assert sum(lost.values()) <= kills * len(clients)
    assert program.process.returncode == 0, program.said


@pytest.mark.slow
def test_mistakes_on_the_command_line(folder):
    for arguments, words in (
        (["no_such_module_here:app"], "no module"),
        (["served_apps:missing"], "no attribute"),
        (["served_apps:wsgi", "--key", "x"], "--cert"),
        (["served_apps:wsgi", "--cert", "/nowhere"], "certificate"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "coro.http", "serve", *arguments, "--app-dir", str(folder), "-b", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_the_short_log_is_escaped(monkeypatch):
    written = []
    monkeypatch.setattr(_cli_serve.coro, "write_stderr", written.append)

    class Request:
        reply_code, seconds, bytes_sent = 404, 2.5, 10
        method_raw, uri = "GET", "/\x1b[31m\n"

    _cli_serve.short_log(False)(Request)
    assert written[0].endswith("404 GET /\\x1b[31m\\x0a 2.50 s, 10 bytes\n")
    _cli_serve.short_log(True)(Request)
    assert "\x1b[33m404\x1b[0m" in written[1]
