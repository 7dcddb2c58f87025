"""The opening handshake: what a server and a client check, subprotocols, origins, parameters of permessage-deflate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coro
from coro import http
from coro.http import _ws_handshake as handshake
from coro.http import websocket
from coro.http.exceptions import HandshakeError, UnknownOpcode
from coro.http.headers import header_set
from coro.http.websocket import Deflate
from coro.testing import coro_test

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GOOD = {
    "host": "server.example.com",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": KEY,
    "sec-websocket-version": "13",
}


def test_the_example_of_the_standard():
    assert handshake.accept_key(KEY) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert handshake.check_request("GET", "1.1", header_set(GOOD).get_all) == KEY


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"upgrade": None}, 426),
        ({"upgrade": "h2c"}, 426),
        ({"connection": "keep-alive"}, 400),
        ({"sec-websocket-key": None}, 400),
        ({"sec-websocket-key": "c2hvcnQ="}, 400),
        ({"sec-websocket-key": "not base64 at all!"}, 400),
        ({"sec-websocket-version": "8"}, 426),
        ({"sec-websocket-version": None}, 426),
        ({"sec-websocket-key1": "18x 6]8vM;54 *(5:  {   U1]8  z [  8"}, 426),
        ({"upgrade": 'web"socket'}, 400),
    ],
)
def test_requests_that_are_refused(change, status):
    fields = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(HandshakeError) as caught:
        handshake.check_request("GET", "1.1", header_set(fields).get_all)
    assert caught.value.status == status


def test_methods_and_versions():
    for method, version, status in (("POST", "1.1", 405), ("GET", "1.0", 426)):
        with pytest.raises(HandshakeError) as caught:
            handshake.check_request(method, version, header_set(GOOD).get_all)
        assert caught.value.status == status


def test_origins():
    handshake.check_origin("https://a.example", "a.example", "http", "same")
    handshake.check_origin(None, "a.example", "http", "same")
    handshake.check_origin("https://b.example", "a.example", "http", None)
    handshake.check_origin("https://B.example", "a.example", "http", ["https://b.example"])
    handshake.check_origin(None, "a.example", "http", [None])
    for origin, allowed in (
        ("https://evil.example", "same"),
        ("null", "same"),
        ("https://a.example.evil.example", "same"),
        ("https://a.example:444", "same"),
        (None, ["https://a.example"]),
        ("https://b.example", ["https://a.example"]),
    ):
        with pytest.raises(HandshakeError) as caught:
            handshake.check_origin(origin, "a.example", "https", allowed)
        assert caught.value.status == 403


def test_subprotocols():
    assert handshake.choose_subprotocol(["a", "b"], ["b", "a"]) == "b"
    assert handshake.choose_subprotocol(["a"], ["b"]) is None
    assert handshake.choose_subprotocol(["a", "b"], lambda offered: offered[-1]) == "b"
    with pytest.raises(ValueError, match="offered"):
        handshake.choose_subprotocol(["a"], lambda offered: "x")


@pytest.mark.parametrize(
    ("offer", "wanted", "answer"),
    [
        ("permessage-deflate", Deflate(), "permessage-deflate; server_max_window_bits=12"),
        ("permessage-deflate; client_max_window_bits", Deflate(),
         "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"),
        ("permessage-deflate; client_max_window_bits=10; server_max_window_bits=\"9\"", Deflate(),
         "permessage-deflate; server_max_window_bits=9; client_max_window_bits=10"),
        ("permessage-deflate; server_no_context_takeover", Deflate(server_max_window_bits=15),
         "permessage-deflate; server_no_context_takeover"),
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", Deflate(),
         "permessage-deflate; server_max_window_bits=12"),
        ("permessage-deflate; unknown=1", Deflate(), None),
        ("permessage-deflate; server_max_window_bits=16", Deflate(), None),
        ("permessage-deflate; server_max_window_bits", Deflate(), None),
        ("permessage-deflate; client_max_window_bits=9; client_max_window_bits=9", Deflate(), None),
        ("permessage-deflate; server_no_context_takeover=1", Deflate(), None),
        ("x-webkit-deflate-frame", Deflate(), None),
        ("permessage-deflate", None, None),
    ],
)  # fmt: skip
def test_offers_of_deflate(offer, wanted, answer):
    agreed = handshake.agree_deflate(wanted, [offer])
    assert (agreed and agreed[1]) == answer


@pytest.mark.parametrize("answer", [
    "permessage-deflate; server_max_window_bits=13",
    "permessage-deflate; client_max_window_bits=8",
    "permessage-deflate; unknown",
    "permessage-deflate; server_no_context_takeover; server_no_context_takeover; server_max_window_bits=12",
    "permessage-deflate",
    "permessage-deflate; server_max_window_bits=12, permessage-deflate; server_max_window_bits=12",
    "other",
    "a=b=c;;",
])  # fmt: skip
def test_answers_that_a_client_refuses(answer):
    fields = header_set({
        "upgrade": "websocket", "connection": "upgrade",
        "sec-websocket-accept": handshake.accept_key(KEY), "sec-websocket-extensions": answer,
    })  # fmt: skip
    with pytest.raises(HandshakeError):
        handshake.check_answer(101, fields.get_all, KEY, [], Deflate())


def test_wrong_answers():
    good = {"upgrade": "websocket", "connection": "upgrade", "sec-websocket-accept": handshake.accept_key(KEY)}
    assert handshake.check_answer(101, header_set(good).get_all, KEY, [], None) == (None, None)
    for change in (
        {"upgrade": "h2c"},
        {"connection": "close"},
        {"sec-websocket-accept": "x"},
        {"sec-websocket-protocol": "never-offered"},
    ):
        with pytest.raises(HandshakeError):
            handshake.check_answer(101, header_set({**good, **change}).get_all, KEY, ["chat"], None)
    with pytest.raises(HandshakeError) as caught:
        handshake.check_answer(404, header_set(good).get_all, KEY, [], None)
    assert caught.value.status == 404


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_header_is_understood_or_refused(extensions, other):
    for text in (extensions, "permessage-deflate;" + extensions, "permessage-deflate; " + other):
        try:
            handshake.agree_deflate(Deflate(), [text])
            handshake.tokens([text])
        except HandshakeError as e:
            assert e.status == 400


@given(
    st.builds(Deflate, server_max_window_bits=st.integers(9, 15), client_max_window_bits=st.integers(9, 15),
              server_no_context_takeover=st.booleans(), client_no_context_takeover=st.booleans()),
    st.builds(Deflate, server_max_window_bits=st.integers(9, 15), client_max_window_bits=st.integers(9, 15),
              server_no_context_takeover=st.booleans(), client_no_context_takeover=st.booleans()),
)  # fmt: skip
def test_both_sides_agree_on_the_same(client, server):
    agreed = handshake.agree_deflate(server, [handshake.offer_deflate(client)])
    assert agreed is not None
    parameters = handshake.extensions([agreed[1]])[0][1]
    ours = handshake._check_agreed(client, parameters)
    for name in ("server_max_window_bits", "server_no_context_takeover"):
        assert getattr(ours, name) == getattr(agreed[0], name)
    assert ours.client_max_window_bits <= agreed[0].client_max_window_bits
    assert ours.client_no_context_takeover >= agreed[0].client_no_context_takeover


def test_parameters_are_checked():
    for options in ({"server_max_window_bits": 16}, {"level": 10}, {"memory_level": 0}, {"threshold": -1}):
        with pytest.raises(ValueError, match="expected"):
            Deflate(**options)


# -- over the server


@coro_test
def test_through_a_server():
    seen = []

    def serve_echo(request):
        with websocket.accept(request, subprotocols=["chat"], deflate=True, headers=[("x-more", "1")]) as ws:
            seen.append((ws.request, ws.subprotocol))
            for message in ws:
                ws.send(message)

    with http.server(serve_echo, ("127.0.0.1", 0)) as s:
        url = f"ws://user:pass@127.0.0.1:{s.port}/path?q=1"
        with websocket.connect(url, subprotocols=["other", "chat"], deflate=True, headers=[("x-mine", "2")]) as ws:
            assert ws.subprotocol == "chat"
            assert ws.response_headers.get("x-more") == "1"
            assert ws.codec.deflate == Deflate()
            ws.send("hello " * 100)
            assert ws.receive() == "hello " * 100
        assert seen[0][1] == "chat"
        assert seen[0][0].headers.get("authorization") == "Basic dXNlcjpwYXNz"
        assert seen[0][0].headers.get("x-mine") == "2"
        with pytest.raises(HandshakeError) as caught:
            websocket.connect(url, origin="https://evil.example")
        assert caught.value.status == 403
        assert b"evil" in caught.value.body


@coro_test
def test_an_endpoint_of_a_route():
    app = http.App()

    def greet(ws, name):
        ws.send(f"hello, {name}")

    app.get("/greet/{name}")(websocket.endpoint(greet))
    with http.server(app, ("127.0.0.1", 0)) as s:
        with websocket.connect(f"ws://127.0.0.1:{s.port}/greet/you") as ws:
            assert list(ws) == ["hello, you"]
            assert ws.close_code == 1000
        with pytest.raises(HandshakeError) as caught:
            websocket.connect(f"ws://127.0.0.1:{s.port}/nothing")
        assert caught.value.status == 404
        conn = coro.connect("127.0.0.1", s.port)
        conn.sendall(b"GET /greet/x HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = conn.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 426 ")
        assert b"sec-websocket-version: 13" in answer.lower()
        conn.close()


@coro_test
def test_a_server_that_never_answers():
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with pytest.raises(coro.TimeoutError):
        websocket.connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/", timeout=0.05)
    listener.close()


# -- the classic interface


@coro_test
def test_the_classic_interface():
    ended = coro.event()

    class echo(websocket.websocket):
        def handle_packet(self, packet):
            data = packet.unpack()
            if packet.opcode == 1:
                self.send_text(data, packet.fin)
            elif packet.opcode == 0:
                self.send_packet(0, data, packet.fin)
            else:
                assert packet.mask
                assert packet.plen == len(data)
                self.send_binary(data)
                self.send_pong(b"p")
            return data == b"quit"

        def handle_close(self):
            ended.set()

    server = http.server()
    server.push_handler(websocket.handler("/echo", echo))
    server.start(("127.0.0.1", 0))
    with websocket.connect(f"ws://127.0.0.1:{server.port}/echo") as ws:
        ws.send("one")
        assert ws.receive() == "one"
        ws.send_fragments(["a", "b", "c"])
        assert ws.receive() == "abc"
        ws.send(b"binary")
        assert ws.receive() == b"binary"
        ws.send(b"quit")
        assert list(ws) == [b"quit"]
    ended.wait()
    with websocket.connect(f"ws://127.0.0.1:{server.port}/echo") as ws:
        ws.close()
    with pytest.raises(UnknownOpcode):
        websocket.websocket.send_packet(None, 3, b"")  # type: ignore[arg-type]
    server.close()
