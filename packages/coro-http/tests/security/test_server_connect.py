"""A handler that answers everything answers CONNECT, too; a 2xx to it would make the connection a tunnel (RFC 9110
section 9.3.6), and what the client sends next would be taken for the tunnel's by proxies in between."""

import pytest

import coro
from coro import http
from coro.testing import coro_test, stream_pair

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@coro_test
def test_connect_is_not_answered_with_success():
    server = http.server(lambda request: "everything")
    mine, theirs = stream_pair()

    def serve():
        with theirs:
            server.create_connection(theirs, ("127.0.0.1", 1)).run()

    thread = coro.spawn(serve)
    mine.send(b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n")
    answer = b""
    while data := mine.recv(65536):
        answer += data
    mine.close()
    thread.join()
    assert answer.startswith((b"HTTP/1.1 405 ", b"HTTP/1.1 501 "))
