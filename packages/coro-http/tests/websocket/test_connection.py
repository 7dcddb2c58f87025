"""Open WebSockets: messages both ways, closing, keepalive, interruption. Streams in memory and a virtual clock."""

from __future__ import annotations

import contextlib

import pytest
from ws_support import pair, raw

import coro
from coro.http.exceptions import LocalError, WebSocketClosed, WebSocketProtocolError
from coro.http.websocket import Deflate
from coro.http.ws import Codec, Ping
from coro.testing import coro_test, virtual_clock, wait_all_blocked


def echo(ws):
    with ws:
        for message in ws:
            ws.send(message)


def end_of(ws):
    """Receive until it is closed: the exception that says so."""
    try:
        while True:
            ws.receive()
    except WebSocketClosed as e:
        return e


@coro_test
def test_messages_both_ways():
    client, server = pair(deflate=Deflate(threshold=100))
    thread = coro.spawn(echo, server)
    for message in ("", "x", "\u00fc" * 200, b"", bytes(1000), bytearray(b"abc"), memoryview(b"abc"), b"y" * 300_000):
        client.send(message)
        assert client.receive() == (message if isinstance(message, str) else bytes(message))
    client.close(1000, "bye")
    thread.join()
    assert (server.close_code, server.close_reason) == (1000, "bye")
    assert (client.close_code, client.closed) == (1000, True)
    for call in (client.receive, lambda: client.send("x"), client.ping, client.pong):
        with pytest.raises(WebSocketClosed) as caught:
            call()
        assert caught.value.code == 1000
    client.close()
    counts = server.statistics()
    assert (counts.messages_received, counts.messages_sent) == (8, 8)
    assert counts.bytes_received == client.statistics().bytes_sent


@coro_test
def test_fragments_from_an_iterable():
    client, server = pair()
    client.send_fragments(["a", "b", "\u00fc"])
    client.send_fragments(iter([b"x", b"y"]))
    assert server.receive() == "ab\u00fc"
    assert server.receive() == b"xy"
    with pytest.raises(LocalError, match="at least one"):
        client.send_fragments([])
    client.send("still open")
    assert server.receive() == "still open"

    def failing():
        yield "a"
        yield "b"
        raise KeyError("no more")

    thread = coro.spawn(end_of, server)
    with pytest.raises(KeyError):
        client.send_fragments(failing())
    assert client.closed
    assert thread.get().code == 1011


@coro_test
def test_many_senders_and_one_large_message():
    client, server = pair(capacity=4096)
    large = [bytes([i]) * 500_000 for i in range(3)]
    small = [f"{i}" for i in range(50)]
    for message in large:
        coro.spawn(client.send, message)
    for text in small:
        coro.spawn(client.send, text)
    got = [server.receive() for _ in range(53)]
    assert sorted(m for m in got if isinstance(m, str)) == sorted(small)
    assert [m for m in got if isinstance(m, bytes)] == large


@coro_test
def test_receivers_share_what_comes():
    client, server = pair()
    threads = [coro.spawn(server.receive) for _ in range(5)]
    wait_all_blocked()
    for i in range(5):
        client.send(str(i))
    assert sorted(thread.get() for thread in threads) == ["0", "1", "2", "3", "4"]


@coro_test
def test_ping():
    client, server = pair()
    thread = coro.spawn(echo, server)
    assert client.ping() >= 0
    assert client.ping(b"payload", timeout=30) >= 0
    assert server.statistics().messages_received == 0
    # while another thread receives
    receiver = coro.spawn(client.receive)
    wait_all_blocked()
    assert client.ping() >= 0
    client.send("x")
    assert receiver.get() == "x"
    client.close()
    thread.join()
    with pytest.raises(LocalError):
        pair()[0].ping(bytes(126))


@coro_test
def test_pongs_overtake_messages_that_wait():
    stream, ws = raw()
    peer = Codec("client")

    def send():
        with contextlib.suppress(WebSocketClosed):
            ws.send(bytes(3_000_000))  # more than the stream takes

    sender = coro.spawn(send)
    receiver = coro.spawn(end_of, ws)
    wait_all_blocked()
    stream.sendall(peer.ping(b"now"))
    kinds = []
    codec = Codec("client", assemble=False, max_message=None)
    while "Pong" not in kinds:
        codec.feed(stream.recv(65536))
        kinds += [type(event).__name__ for event in codec.events()]
    assert kinds.count("Fragment") < 3_000_000 // 65536  # it went between two
    stream.close()
    sender.join()
    assert receiver.get().code == 1006


@coro_test
def test_an_interrupted_send_is_completed():
    client, server = pair(capacity=1000)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0, client.send, bytes(50_000))
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0, client.send, "b" * 200_000)
    client_done = coro.spawn(client.send, "the end")
    assert server.receive() == bytes(50_000)
    assert server.receive() == "b" * 200_000
    assert server.receive() == "the end"
    client_done.join()


@coro_test
def test_an_interrupted_receive_loses_nothing():
    client, server = pair()
    for i in range(3):
        with pytest.raises(coro.TimeoutError):
            server.receive(timeout=0)
        client.send(str(i))
        assert server.receive(timeout=30) == str(i)


@coro_test
def test_closing_waits_for_what_was_sent():
    client, server = pair(capacity=1000)
    senders = [coro.spawn(client.send, str(i) * 5000) for i in range(5)]
    wait_all_blocked()
    closer = coro.spawn(client.close, 4000, "done")
    got = []
    with pytest.raises(WebSocketClosed) as caught:
        while True:
            got.append(server.receive())
    assert got == [str(i) * 5000 for i in range(5)]
    assert (caught.value.code, caught.value.reason) == (4000, "done")
    closer.join()
    for thread in senders:
        thread.join()
    with pytest.raises(WebSocketClosed):
        list(server)  # 4000 is no ordinary end


@coro_test
def test_a_peer_that_does_not_answer_the_close():
    with virtual_clock(autojump=True):
        stream, ws = raw(close_timeout=5.0)
        began = coro.now
        ws.close()
        assert (coro.now - began) / coro.ticks_per_sec == pytest.approx(5.0, abs=0.1)
        assert ws.close_code == 1006
        assert stream.recv(100) == b"\x88\x02\x03\xe8"


@coro_test
def test_the_end_of_the_stream_without_a_close():
    stream, ws = raw()
    waiting = [coro.spawn(end_of, ws) for _ in range(3)]
    wait_all_blocked()
    stream.close()
    for thread in waiting:
        assert thread.get().code == 1006
    with pytest.raises(WebSocketClosed):
        list(ws)


@coro_test
def test_everybody_gets_the_failure_with_its_cause():
    stream, ws = raw(close_timeout=0.0)
    waiting = [coro.spawn(end_of, ws) for _ in range(3)]
    wait_all_blocked()
    stream.sendall(b"\xff")
    for thread in waiting:
        cause = thread.get().__cause__
        assert isinstance(cause, WebSocketProtocolError)
        assert cause.code == 1002


@coro_test
def test_leaving_a_with_block():
    for error, code in ((None, 1000), (KeyError, 1011), (coro.Shutdown, 1001)):
        client, server = pair()
        thread = coro.spawn(end_of, server)
        try:
            with client:
                if error is not None:
                    raise error
        except BaseException as e:
            assert type(e) is error
        assert thread.get().code == code


# -- keepalive


@coro_test
def test_the_keepalive_of_an_idle_connection():
    with virtual_clock(autojump=True):
        client, server = pair({"ping_interval": 20.0, "pong_timeout": 20.0})
        thread = coro.spawn(echo, server)
        coro.sleep_relative(1000)
        assert not client.closed
        assert 40 <= client.statistics().pings_sent <= 50
        client.send("x")
        assert client.receive() == "x"
        client.close()
        thread.join()


@coro_test
def test_a_silent_peer_is_given_up():
    with virtual_clock(autojump=True):
        stream, ws = raw(ping_interval=20.0, pong_timeout=20.0)
        began = coro.now
        with pytest.raises(WebSocketClosed) as caught:
            ws.receive()
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert 40 <= (coro.now - began) / coro.ticks_per_sec <= 50
        stream.close()


@coro_test
def test_a_program_that_never_receives_answers_pings():
    with virtual_clock(autojump=True):
        stream, ws = raw(ping_interval=20.0, pong_timeout=20.0)
        peer = Codec("client")
        stream.sendall(peer.ping(b"there?"))
        codec = Codec("client")
        codec.feed(coro.with_timeout(10, stream.recv, 100))
        assert codec.next_event().payload == b"there?"
        # what it reads ahead is kept, in order, and is not without end
        for i in range(40):
            stream.sendall(peer.message(str(i)))
        coro.sleep_relative(100)
        assert not ws.closed
        assert ws.statistics().messages_waiting <= 16
        assert [ws.receive() for _ in range(40)] == [str(i) for i in range(40)]
        stream.close()
        with pytest.raises(WebSocketClosed):
            ws.receive()


@pytest.mark.slow
@coro_test
def test_a_slow_reader_of_100_megabytes_is_no_dead_peer():
    """A ping is not queued behind bulk data, and a peer that takes what is sent is alive.

    https://github.com/python-websockets/websockets/issues/1012
    """
    size, got = 100_000_000, 0
    with virtual_clock(autojump=True):
        stream, ws = raw(capacity=65536, ping_interval=20.0, pong_timeout=20.0)
        sender = coro.spawn(ws.send, bytes(size))
        receiver = coro.spawn(end_of, ws)
        codec = Codec("client", assemble=False, max_message=None)
        while got < size:
            coro.sleep_relative(8)  # all of it takes some three hours
            codec.feed(stream.recv(65536))
            for event in codec.events():
                if isinstance(event, Ping):
                    stream.sendall(codec.pong(event.payload))
                else:
                    got += len(event.data)
        sender.join()
        assert not ws.closed
        assert ws.statistics().pings_sent > 100
        stream.close()
        assert receiver.get().code == 1006


# -- interruption at every point


@coro_test
def test_threads_killed_at_any_point_leave_nothing():
    for turns in range(1, 12):
        client, server = pair(capacity=500)
        echoing = coro.spawn(echo, server)

        def talk(ws):
            with ws:
                for i in range(4):
                    ws.send(str(i) * 400)
                    ws.receive()

        thread = coro.spawn(talk, client)
        for _ in range(turns):
            coro.yield_slice()
        if not thread.dead:
            thread.shutdown()
        thread.join()
        echoing.join()
        assert client.closed
        assert server.closed
