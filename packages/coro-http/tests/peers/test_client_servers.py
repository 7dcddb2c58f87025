"""The client against real servers: nginx, Node's http, and http.server of the standard library."""

from __future__ import annotations

import hashlib
import random
import ssl
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from real_programs import Nginx, find_program

import coro
from coro.http.client import Client, Limits, client
from coro.testing import coro_test

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("leaves_nothing")]

NODE = """
    const http = require('http'), zlib = require('zlib');
    const server = http.createServer((request, response) => {
        const parts = [];
        request.on('data', (part) => parts.push(part));
        request.on('end', () => {
            const body = Buffer.concat(parts);
            if (request.url === '/gzip') {
                response.writeHead(200, {'Content-Encoding': 'gzip'});
                response.end(zlib.gzipSync(Buffer.alloc(100000, 'x')));
            } else if (request.url === '/br') {
                response.writeHead(200, {'Content-Encoding': 'br'});
                response.end(zlib.brotliCompressSync(Buffer.alloc(100000, 'x')));
            } else if (request.url === '/hints') {
                response.writeEarlyHints({link: '</style.css>; rel=preload'});
                response.end('hints');
            } else if (request.url === '/trailers') {
                response.writeHead(200, {'Trailer': 'Digest'});
                response.write('body');
                response.addTrailers({'Digest': 'abc'});
                response.end();
            } else {
                response.end(JSON.stringify({method: request.method, url: request.url, length: body.length,
                                             headers: request.headers}));
            }
        });
    });
    server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"""

HTTP_SERVER = """
    import http.server
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *a): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@contextmanager
def started(*command: str, cwd=None) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd) as program:
        try:
            yield f"http://127.0.0.1:{int(program.stdout.readline())}"
        finally:
            program.kill()


@pytest.fixture(scope="module")
def nginx():
    with Nginx() as server:
        data = random.Random(1).randbytes(3_000_000)
        (server.root / "large").write_bytes(data)
        (server.root / "small").write_bytes(b"hello")
        server.digest = hashlib.sha256(data).hexdigest()
        yield server


@coro_test
def test_nginx(nginx):
    url = f"http://127.0.0.1:{nginx.port}"
    with Client(base_url=url, limits=Limits(connections=20)) as c:
        threads = [coro.spawn(c.get, "/small") for _ in range(200)]
        assert {thread.get().content for thread in threads} == {b"hello"}
        assert hashlib.sha256(c.get("/large").content).hexdigest() == nginx.digest
        with c.stream("GET", "/large") as response:
            digest = hashlib.sha256()
            for piece in response.iter_bytes(1000):
                digest.update(piece)
            assert digest.hexdigest() == nginx.digest
        part = c.get("/small", headers={"Range": "bytes=1-2"})
        assert (part.status, part.content) == (206, b"el")
        whole = c.get("/small")
        assert c.get("/small", headers={"If-None-Match": whole.headers["etag"]}).status == 304
        assert c.head("/large").headers["content-length"] == "3000000"
        assert c.get("/nothing").status == 404
        assert c.post("/small", b"x" * 100_000).status == 405
        assert c.get("/small").content == b"hello"
        s = c.statistics()
        assert s.used == 0 and s.made <= 22


@coro_test
def test_nginx_over_tls(nginx):
    context = ssl.create_default_context(cafile=str(nginx.certificate))
    with Client(base_url=f"https://127.0.0.1:{nginx.tls_port}", tls=context) as c:
        for _ in range(3):
            assert hashlib.sha256(c.get("/large").content).hexdigest() == nginx.digest
        assert c.statistics().made == 1


@coro_test
def test_nginx_pipelined(nginx):
    c = client("127.0.0.1", nginx.port)
    requests = [c.send_request("GET", "/small" if n % 3 else "/large", {}) for n in range(30)]
    for number, request in enumerate(requests):
        request.wait()
        assert request.reply_code == 200
        assert len(request.content) == (5 if number % 3 else 3_000_000)
    c.close()


@coro_test
def test_node():
    with started(find_program("node", "nodejs"), "-e", textwrap.dedent(NODE)) as url, Client(base_url=url) as c:
        for _ in range(2):
            assert c.get("/x?y=z").json()["url"] == "/x?y=z"
        assert c.post("/", [b"abc"] * 1000).json()["length"] == 3000
        assert c.post("/", b"x" * 2_000_000).json()["length"] == 2_000_000
        assert c.post("/", b"body", expect_continue=True).json()["length"] == 4
        assert c.post("/", data={"a": "b"}, files={"f": ("n", b"x" * 1000)}).json()["length"] > 1000
        assert c.get("/gzip").content == c.get("/br").content == b"x" * 100_000
        assert c.get("/hints").text == "hints"
        trailed = c.get("/trailers")
        assert (trailed.text, trailed.trailers["digest"]) == ("body", "abc")
        assert c.head("/").content == b""
        headers = c.get("/").json()["headers"]
        assert headers["host"] == url.removeprefix("http://")
        assert c.statistics()[:2] == (0, 1)


@coro_test
def test_http_server(tmp_path):
    import sys

    (tmp_path / "file").write_bytes(b"content")
    command = (sys.executable, "-c", textwrap.dedent(HTTP_SERVER))
    with started(*command, cwd=tmp_path) as url, Client(base_url=url) as c:
        for _ in range(3):
            response = c.get("/file")
            assert (response.content, response.http_version) == (b"content", "1.0")
        assert c.get("/missing").status == 404
        assert c.post("/file", b"x").status == 501
