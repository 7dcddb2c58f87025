"""What clients do to servers: split answers, forge logs, wait for ever, send too much, leave their directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from http_support import connected, in_loop, messages, serving, statuses, talk, until_end

import coro
from coro import http
from coro.http import access_log, forwarded, handlers, static
from coro.http._connection import connection
from coro.http.exceptions import LimitError, LocalError
from coro.testing import stream_pair, virtual_clock

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("bad", ["a\r\nSet-Cookie: x", "a\nb", "a\rb", "a\0b", "a\x0bb"])
def test_response_splitting(bad: str) -> None:
    """CVE-2020-7695: a value from outside must not end its line. Nothing of the answer is sent."""

    @in_loop
    def run() -> None:
        caught: list[LocalError] = []

        def handler(request: Any) -> Any:
            for headers in ([("x", bad)], [(bad, "x")]):
                try:
                    request.start(200, headers)
                except LocalError as e:
                    caught.append(e)
            try:
                request.start(200, [], bad)
            except LocalError as e:
                caught.append(e)
            return "fine"

        with serving(handler) as server:
            assert statuses(talk(server, GET % b"/")) == [200]
        assert len(caught) == 3

    run()


@in_loop
def test_log_forging() -> None:
    """CVE-2020-7694: what a client sends does not begin a line, or an escape sequence of the terminal."""
    lines: list[str] = []
    with serving(lambda r: "x", access_log=lambda r: lines.append(access_log.combined(r))) as server:
        talk(server, b'GET /%0a"\\ HTTP/1.1\r\nHost: a\r\nUser-Agent: \x80\x9b31m" 200\r\nReferer: \ta\r\n\r\n')
    assert len(lines) == 1 and lines[0].isprintable() and lines[0].isascii()
    assert lines[0].count('"') == 6


def in_memory(handler: Any, **settings: Any) -> tuple[Any, Any, Any]:
    """A connection over a stream in memory, for tests with a clock of their own."""
    server = http.server(handler, **settings)
    near, far = stream_pair()
    made = connection(server, far, "memory", server.registry)

    def run() -> None:
        try:
            made.run()
        finally:
            far.close()

    thread = coro.spawn(run)
    server._start_sweeper()
    return server, near, thread


def until(near: Any) -> bytes:
    """All that comes, also when the end is a reset."""
    found = b""
    try:
        while piece := near.recv(65536):
            found += piece
    except OSError:
        pass
    return found


@pytest.mark.parametrize(
    ("sent", "seconds", "status"),
    [
        (b"", 30, None),
        (b"GET / HTTP/1.1\r\nHost:", 30, 408),
        (GET % b"/", 75, 200),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 10, 408),
    ],
)
def test_silence_ends(sent: bytes, seconds: float, status: int | None) -> None:
    """Slow loris: no byte, part of a head, nothing after a request, part of a body."""

    @in_loop
    def run() -> None:
        with virtual_clock(autojump=True):
            server, near, thread = in_memory(lambda request: request.read() or "x")
            begin = coro.now
            near.send(sent)
            answer = until(near)
            thread.join()
            took = (coro.now - begin) / coro.ticks_per_sec
            assert seconds <= took < seconds + 5
            assert statuses(answer) == ([] if status is None else [status])
            near.close()

    run()


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_byte_a_second_is_not_enough(part: str) -> None:
    @in_loop
    def run() -> None:
        with virtual_clock(autojump=True):
            server, near, thread = in_memory(lambda request: request.read())
            begin = coro.now
            if part == "body":
                near.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n")
            answers: list[bytes] = []
            reader = coro.spawn(lambda: answers.append(until(near)))
            try:
                for byte in b"GET /" + b"x" * 200:
                    near.send(bytes([byte]))
                    coro.sleep_relative(1)
            except OSError:
                pass
            thread.join()
            assert (coro.now - begin) / coro.ticks_per_sec < 45
            reader.join()
            assert statuses(answers[0]) == [408]
            near.close()

    run()


@in_loop
def test_a_slow_handler_is_no_slow_client() -> None:
    """Time that the handler takes between two pieces does not count against the client."""
    with virtual_clock(autojump=True):

        def handler(request: Any) -> bytes:
            found = b""
            for piece in request:
                coro.sleep_relative(100)
                found += piece
            return found

        server, near, thread = in_memory(handler)
        near.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nab")
        coro.sleep_relative(5)
        near.send(b"cd")
        assert messages(until(near))[0][2] == b"abcd"
        thread.join()
        near.close()


@in_loop
def test_a_client_that_does_not_read() -> None:
    """A blocked sender ends at its deadline, and its thread with it."""
    with virtual_clock(autojump=True):
        server, near, thread = in_memory(lambda request: b"x" * 5_000_000, write_timeout=30)
        begin = coro.now
        near.send(GET % b"/")
        thread.join()
        assert 30 <= (coro.now - begin) / coro.ticks_per_sec < 60
        counts = server.registry.counts()
        assert (counts["expired"], counts["open"]) == (1, 0)
        near.close()


@in_loop
def test_a_client_that_reads_slowly_is_served() -> None:
    """The deadline is for each piece that is sent, and not for the answer."""
    with virtual_clock(autojump=True):
        server, near, thread = in_memory(lambda request: b"x" * 2_000_000, write_timeout=30)
        near.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        found = b""
        while piece := near.recv(65536):
            found += piece
            coro.sleep_relative(5)
        assert messages(found)[0][2] == b"x" * 2_000_000
        near.close()
        thread.join()


@in_loop
def test_a_sender_wakes_when_the_peer_has_gone() -> None:
    """A write that waits ends when the connection is reset."""
    with serving(lambda request: b"x" * 50_000_000) as server:
        with connected(server) as conn:
            conn.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")
            conn.send(GET % b"/")
            conn.recv(1000)
        while server.registry.counts()["open"]:
            coro.sleep_relative(0.01)


@in_loop
def test_mute_clients_hold_nobody_up() -> None:
    with serving(lambda request: "x") as server:
        mute = [coro.tcp_sock() for _ in range(200)]
        for conn in mute:
            conn.connect(("127.0.0.1", server.port))
        assert statuses(talk(server, GET % b"/")) == [200]
        for conn in mute:
            conn.close()


@in_loop
def test_a_half_closed_peer_costs_nothing() -> None:
    """waitress CVE-2024-49769: a loop that goes round on a socket that has ended. While the handler waits, no thread of
    the server gets a turn."""
    go = coro.event()

    def handler(request: Any) -> str:
        go.wait()
        return "x"

    with serving(handler) as server, connected(server) as conn:
        conn.send(GET % b"/")
        conn.shutdown(coro.SHUT.WR)
        coro.testing.wait_all_blocked()
        before = coro.statistics().switches
        for _ in range(100):
            coro.testing.wait_all_blocked()
        # one turn of this thread for each; a few of the thread that minds the deadlines
        assert coro.statistics().switches - before < 110
        go.set()
        assert statuses(until_end(conn)) == [200]


@in_loop
def test_early_answer_while_100_is_waited_for() -> None:
    """gevent #2075: after an answer without 100 (Continue) what follows is not read as a request."""
    served: list[str] = []

    def handler(request: Any) -> Any:
        served.append(request.path)
        return "no", 403

    with serving(handler) as server:
        inside = GET % b"/admin"
        data = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(inside)
        answer = talk(server, data + inside + inside)
        assert statuses(answer) == [403] and b"connection: close\r\n" in answer
    assert served == ["/"]


@in_loop
def test_one_request_at_a_time() -> None:
    """waitress CVE-2024-49768, twisted CVE-2024-41671: pipelined requests run one after the other."""
    running = 0
    order: list[str] = []

    def handler(request: Any) -> str:
        nonlocal running
        running += 1
        assert running == 1
        coro.yield_slice()
        order.append(request.path)
        running -= 1
        return str(request.path)

    with serving(handler) as server:
        found = messages(talk(server, b"".join(GET % b"/%d" % i for i in range(50))))
        assert [m[2].decode() for m in found] == order == [f"/{i}" for i in range(50)]


@in_loop
def test_many_small_chunks_cost_little() -> None:
    """A body of one-byte chunks with long extensions is refused; one without costs what it carries."""
    with serving(lambda request: str(len(request.read()))) as server:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert messages(talk(server, head + b"1\r\nx\r\n" * 20000 + b"0\r\n\r\n"))[0][2] == b"20000"
        assert statuses(talk(server, head + (b"1;" + b"e" * 1000 + b"\r\nx\r\n") * 30 + b"0\r\n\r\n"))[0] == 400


@pytest.mark.parametrize(
    "path",
    [
        "/../secret", "/..%2fsecret", "/%2e%2e/secret", "/%2e%2e%2fsecret", "//etc/passwd",
        "/a/../../secret", "/..\\secret",
        "/link", "/linked/secret", "/file.txt%00.html", "/.hidden", "/%c0%ae%c0%ae/secret",
        "/....//secret", "/file.txt/",
        "/fifo", "/a/../file.txt",
    ],
)  # fmt: skip
def test_files_outside_the_folder(path: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "file.txt").write_text("file")
    (root / ".hidden").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "linked").symlink_to(tmp_path)
    os.mkfifo(root / "fifo")

    @in_loop
    def run() -> None:
        for files in (static.Files(root), static.Files(root, follow_links=True), handlers.file_handler(str(root))):
            with serving(files) as server:
                answer = talk(server, b"GET " + path.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                assert statuses(answer) == [404] and b"secret" not in answer
                assert messages(talk(server, GET % b"/file.txt"))[0][2] == b"file"

    run()


@in_loop
def test_a_redirect_leads_to_no_other_host() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "evil.example").mkdir()
        with serving(static.Files(folder)) as server:
            _, fields, _ = messages(talk(server, GET % b"//evil.example"))[0]
            assert fields["location"] == ["/evil.example/"]


@in_loop
def test_digests_cannot_be_replayed() -> None:
    """Digest of an overheard request, and one made for another path, are refused."""
    import hashlib
    import re

    class Inner:
        def match(self, request: Any) -> bool:
            return True

        def handle_request(self, request: Any) -> None:
            request.push("in")
            request.done()

    def authorization(nonce: str, nc: str, uri: str = "/", password: str = "pw") -> bytes:
        def h(text: str) -> str:
            return hashlib.sha256(text.encode()).hexdigest()

        response = h(f"{h(f'u:default:{password}')}:{nonce}:{nc}:c:auth:{h(f'GET:{uri}')}")
        return (
            f'GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Digest username="u", realm="default", nonce="{nonce}", '
            f'uri="{uri}", algorithm=SHA-256, response="{response}", qop=auth, nc={nc}, cnonce="c"\r\n\r\n'
        ).encode()

    with serving(handlers.auth_handler({"u": "pw"}, Inner())) as server:
        _, fields, _ = messages(talk(server, GET % b"/"))[0]
        found = re.search('nonce="([0-9a-f]+)"', fields["www-authenticate"][0])
        assert found is not None
        nonce = found[1]
        assert statuses(talk(server, authorization(nonce, "00000001", password="no"))) == [401]
        assert statuses(talk(server, authorization(nonce, "00000001"))) == [200]
        assert statuses(talk(server, authorization(nonce, "00000001"))) == [401]
        assert statuses(talk(server, authorization(nonce, "00000002", uri="/other"))) == [401]
        assert statuses(talk(server, authorization("0" * 32, "00000003"))) == [401]
        assert statuses(talk(server, authorization(nonce, "00000002"))) == [200]
        assert statuses(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Digest x\r\n\r\n")) == [401]


@in_loop
def test_the_status_page_is_not_for_everybody() -> None:
    with serving(handlers.coro_status_handler()) as server:
        assert statuses(talk(server, GET % b"/status")) == [200]
        proxied = b"GET /status HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
        assert statuses(talk(server, proxied)) == [404]


@in_loop
def test_forwarded_counts_only_from_trusted_proxies() -> None:
    def handler(request: Any) -> str:
        return f"{request.remote[0]} {request.scheme} {request.host}"

    ask = (
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 1.2.3.4, 127.0.0.2\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: b\r\n\r\n"
    )
    with serving(handler) as server:
        assert messages(talk(server, ask))[0][2] == b"127.0.0.1 http a"
    with serving(handler, trusted_proxies=["127.0.0.0/8"]) as server:
        assert messages(talk(server, ask))[0][2] == b"1.2.3.4 https a"
    with serving(handler, trusted_proxies=["127.0.0.0/8"], trusted_headers=forwarded.KNOWN) as server:
        assert messages(talk(server, ask))[0][2] == b"1.2.3.4 https b"
        ask = b'GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.6, for="[2001:db8::1]:99";proto=https\r\n\r\n'
        assert messages(talk(server, ask))[0][2] == b"2001:db8::1 https a"


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 99 80\r\n", "1.2.3.4"),
        (b"PROXY TCP6 2001:db8::1 ::1 99 80\r\n", "2001:db8::1"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x63\0\x50", "1.2.3.4"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "127.0.0.1"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 99\r\n", None),
        (b"PROXY TCP4 1.2.3.4.5 5.6.7.8 99 80\r\n", None),
        (b"PROXY TCP4 " + b"1" * 200, None),
        (b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c" + bytes(12), None),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", None),
    ],
)
def test_the_proxy_protocol(header: bytes, client: str | None) -> None:
    @in_loop
    def run() -> None:
        with serving(lambda request: str(request.remote[0]), proxy_protocol=True) as server:
            answer = b""
            try:
                answer = talk(server, header + GET % b"/")
            except ConnectionResetError:
                pass
            assert [m[2].decode() for m in messages(answer)] == ([] if client is None else [client])

    run()


@in_loop
def test_forms_beyond_their_limits() -> None:
    seen: list[object] = []

    def handler(request: Any) -> str:
        try:
            form = request.form(limit=100_000, memory=1000, field=100)
        except LimitError as e:
            seen.append(e.limit)
            raise
        with form:
            return f"{len(form.values)} {[u.size for u in form.uploads]} {form.uploads[0].read()[:3]!r}"

    def body(*parts: bytes) -> bytes:
        data = b"".join(b"--B\r\nContent-Disposition: form-data; " + p + b"\r\n" for p in parts) + b"--B--\r\n"
        return (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: %d\r\n\r\n"
            % len(data)
            + data
        )

    with serving(handler) as server:
        good = body(b'name="a"\r\n\r\n1', b'name="f"; filename="../x"\r\n\r\n' + b"xyz" * 5000)
        assert messages(talk(server, good))[0][2] == b"1 [15000] b'xyz'"
        assert statuses(talk(server, body(*[b'name="a"\r\n\r\n'] * 1001))) == [413]
        assert statuses(talk(server, body(b'name="f"; filename="x"\r\n\r\n' + b"x" * 200_000))) == [413]
        assert statuses(talk(server, body(b'name="a"\r\nX: ' + b"x" * 9000 + b"\r\n\r\n"))) == [413]
        file, value = b'name="f"; filename="x"\r\n\r\n', b'name="a"\r\n\r\n' + b"x" * 100
        assert statuses(talk(server, body(*[file] * 100))) == [200]
        assert statuses(talk(server, body(*[file] * 101))) == [413]  # an open file for each, if they are long
        assert statuses(talk(server, body(file, *[value] * 16))) == [200]
        assert statuses(talk(server, body(file, *[value] * 17))) == [413]  # all in memory
        assert statuses(talk(server, good.replace(b"--B--", b"--C--"))) == [400]
        assert statuses(talk(server, good.replace(b"boundary=B", b"boundary="))) == [415]
    assert seen


@in_loop
def test_a_json_bomb_is_a_bad_request() -> None:
    with serving(lambda request: request.json()) as server:
        body = b"[" * 100_000
        data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        assert statuses(talk(server, data)) == [400]


def test_threads_that_are_killed_at_any_point() -> None:
    """Whatever a connection waits for when it is interrupted, its socket is closed and nothing is left."""

    @in_loop
    def run() -> None:
        def handler(request: Any) -> Any:
            if request.path == "/read":
                return request.read()
            if request.path == "/sleep":
                coro.sleep_relative(1000)
            return b"x" * 20_000_000

        for sent in (
            b"",
            b"GET /",
            GET % b"/sleep",
            GET % b"/big",
            b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
        ):
            with serving(handler) as server, connected(server) as conn:
                conn.send(sent)
                coro.testing.wait_all_blocked()
                server.shutdown()
                server.wait()
                assert server.registry.counts()["open"] == 0

    run()
