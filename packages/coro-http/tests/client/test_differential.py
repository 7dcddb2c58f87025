"""What requests, httpx and our client send for the same arguments, as a server sees it; where we differ on purpose, the
reason stands there."""

from __future__ import annotations

import threading
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import coro
from coro.http.client import Client, Limits


class Recorder:
    def __init__(self):
        self.seen = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                if self.headers.get("transfer-encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("content-length", "0")))
                outer.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                if self.path.startswith("/redirect"):
                    self.send_response(int(self.path[-3:]))
                    self.send_header("Location", "/to")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(b"ok")

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = answer

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def recorder():
    made = Recorder()
    yield made
    made.close()


def sent(recorder, call):
    before = len(recorder.seen)
    call()
    return recorder.seen[before:]


def ours(recorder, method, path, options):
    def main():
        with Client(limits=Limits(idle=0)) as client:
            client.request(method, recorder.url + path, **options)

    return sent(recorder, lambda: coro.run(main))


def theirs(recorder, name, method, path, options):
    library = pytest.importorskip(name)
    options = dict(options)
    if name == "requests" and "content" in options:
        options["data"] = options.pop("content")
    with library.Session() if name == "requests" else library.Client(follow_redirects=True) as client:
        return sent(recorder, lambda: client.request(method, recorder.url + path, **options))


def fields(body, kind):
    """The parts of a multipart body, without its boundary."""
    message = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    return [
        (part.get_param("name", header="content-disposition"), part.get_filename(), part.get_payload(decode=True))
        for part in message.get_payload()
    ]


CASES = [
    ("GET", "/a/b?c=d", {}),
    ("GET", "/a%20b/%7Euser/ü", {}),
    ("GET", "/", {"params": {"a": "1", "b": ["2", "3"]}}),
    ("GET", "/?x=y", {"params": {"ä": "ö&="}}),
    ("POST", "/", {"json": {"a": [1, 2.5, None, True, "text"]}}),
    ("POST", "/", {"data": {"a": "b c", "d": "&=ü"}}),
    ("POST", "/", {"data": {"a": ["1", "2"]}}),
    ("PUT", "/", {"content": b"\x00\xff bytes"}),
    ("POST", "/", {}),
    ("DELETE", "/x", {}),
    ("HEAD", "/x", {}),
    ("GET", "/", {"headers": {"X-A": "b", "Accept": "text/html"}}),
    ("GET", "/", {"auth": ("user", "pass")}),
    ("POST", "/redirect/303", {"data": {"a": "b"}}),
    ("POST", "/redirect/302", {"data": {"a": "b"}}),
    ("POST", "/redirect/307", {"content": b"again"}),
    ("PUT", "/redirect/308", {"content": b"again"}),
]
#: Where we differ on purpose: (library, path) -> why.
DIFFERENT = {
    (
        "requests",
        "/a%20b/%7Euser/ü",
    ): "it rewrites %7E as ~; we send what was written (RFC 3986 section 6.2.2.2 allows both)",
    ("httpx", "/?x=y"): "it drops the query of the URL when there are params; requests and we append them",
    (
        "httpx",
        "/redirect/303",
    ): "it keeps the Content-Type of the body that it drops (RFC 9110 section 15.4 takes it out)",
    ("httpx", "/redirect/302"): "the same",
}
#: Fields that name the program, or are about the connection.
OWN = {"user-agent", "accept", "accept-encoding", "connection"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requests", "httpx"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]} {list(case[2])}")
def test_the_same_arguments(recorder, name, case):
    method, path, options = case
    if (name, path) in DIFFERENT:
        assert len(ours(recorder, *case)) == len(theirs(recorder, name, *case))
        return
    a, b = ours(recorder, *case), theirs(recorder, name, *case)
    assert [one[0] for one in a] == [one[0] for one in b]
    for mine, other in zip(a, b, strict=True):
        # httpx writes a blank in a query as "+" or "%20", depending on where it comes from: both mean the same.
        assert mine[1].replace("%20", "+") == other[1].replace("%20", "+")
        if "json" in options:
            import json

            assert json.loads(mine[3]) == json.loads(other[3])
            assert mine[2]["content-type"] == other[2]["content-type"]
            continue
        assert mine[3] == other[3]
        shown = {k: v for k, v in mine[2].items() if k not in OWN}
        expected = {k: v for k, v in other[2].items() if k not in OWN}
        if mine[0] in ("DELETE", "PUT", "POST", "PATCH") and not mine[3]:
            # requests says "Content-Length: 0" for a DELETE, too; RFC 9110 section 8.6 asks for it where a body has a
            # meaning.
            shown.pop("content-length", None)
            expected.pop("content-length", None)
        assert shown == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requests", "httpx"])
def test_uploads(recorder, name):
    options = {"data": {"kind": "x", "ü": "ö"}, "files": {"f": ("näme.txt", b"content", "text/plain"), "g": b"raw"}}
    (mine,), (other,) = ours(recorder, "POST", "/", options), theirs(recorder, name, "POST", "/", options)
    a, b = fields(mine[3], mine[2]["content-type"]), fields(other[3], other[2]["content-type"])
    # The name of a file that has none is everybody's own.
    assert [(n, p) for n, _, p in a] == [(n, p) for n, _, p in b]
    assert a[2][1] is not None and mine[2]["content-length"] == str(len(mine[3]))
