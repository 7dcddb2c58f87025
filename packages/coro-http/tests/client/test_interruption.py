"""A client's thread may be ended at any point: no place in the pool stays taken, no descriptor open."""

from __future__ import annotations

import random

import client_support
import pytest
from client_support import hello, raw, response, site

import coro
from coro import testing
from coro.http.client import Client, DigestAuth, Limits, Retries, client
from coro.http.exceptions import ConnectionClosed, HTTPError
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def slow(conn):
    """Redirects, challenges and answers, a few bytes in each turn."""
    while (head := client_support.read_head(conn)) is not None:
        line, fields = head
        body = client_support.read_body(conn, fields)
        names = {name.lower() for name, _ in fields}
        if line.split()[1] == "/from":
            answer = response(307, [("Location", "/to"), ("Set-Cookie", "a=b")], b"moved")
        elif "authorization" not in names:
            answer = response(401, [("WWW-Authenticate", 'Digest realm="r", nonce="n", qop="auth"')], b"who?")
        else:
            answer = response(200, [("X", "y")], b"z" * 100 + body[:10])
        for start in range(0, len(answer), 40):
            conn.send(answer[start : start + 40])
            coro.yield_slice()


def ended(function, turns):
    """Run the function in a thread for so many turns, then end it. True if it had ended by itself."""
    thread = coro.spawn(function)
    for _ in range(turns):
        coro.yield_slice()
    by_itself = thread.dead
    thread.shutdown()
    thread.join()
    assert thread.exception is None or isinstance(thread.exception, coro.Shutdown), thread.exception
    return by_itself


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["get", "post", "stream", "upload", "name"])
@coro_test
def test_ended_at_every_turn(kind):
    with raw(slow) as server, Client(auth=DigestAuth("u", "p"), limits=Limits(connections=2)) as c:
        url = server.url + "/from"
        if kind == "name":
            url = url.replace("127.0.0.1", "localhost")

        def go():
            if kind == "stream":
                with c.stream("GET", url) as got:
                    for _ in got.iter_bytes():
                        coro.yield_slice()
            elif kind == "upload":
                c.put(url, [b"x" * 100_000] * 3)
            elif kind == "post":
                c.post(url, b"data")
            else:
                c.get(url)

        turns = 0
        while not ended(go, turns):
            s = c.statistics()
            assert s.used == 0 and s.waiting == 0, turns
            turns += 1
            if turns % 7 == 0:
                c.pool.close()
                c.pool._closed = False
            assert turns < 3000
        assert turns > 5
        assert c.statistics().used == 0


def _kills(number: int, seed: int) -> None:
    chance = random.Random(seed)
    with site(hello) as server:
        with Client(limits=Limits(connections=4, idle=2), retries=Retries(attempts=2, wait_initial=0)) as c:

            def go():
                try:
                    if chance.random() < 0.1:
                        with c.stream("GET", server.url) as got:
                            coro.yield_slice()
                            got.read()
                    else:
                        c.get(server.url)
                    if chance.random() < 0.3:
                        c.pool.close()
                        c.pool._closed = False
                except HTTPError:
                    pass

            left = number
            running = []
            while left or running:
                while left and len(running) < 12:
                    running.append(coro.spawn(go))
                    left -= 1
                for _ in range(chance.randrange(4)):
                    coro.yield_slice()
                victim = running.pop(chance.randrange(len(running)))
                if not victim.dead:
                    victim.shutdown()
                running = [thread for thread in running if not thread.dead]
            while c.statistics().used or c.statistics().waiting:
                coro.yield_slice()
            assert c.get(server.url).content == b"hello"
            assert c.statistics()[0] == 0 and c.pool._places.avail == 4


@coro_test
def test_threads_ended_at_random():
    _kills(400, 1)


@pytest.mark.slow
@coro_test(timeout=300)
def test_ten_thousand_threads_ended_at_random():
    """Of https://github.com/encode/httpcore/issues/1093: a cancelled connect kept its place in the pool for good."""
    _kills(10_000, 2)


@coro_test
def test_ended_while_it_waits_for_a_place():
    with raw(client_support.forever) as server, Client(limits=Limits(connections=1, per_origin=1)) as c:
        holder = coro.spawn(c.get, server.url)
        waiters = [coro.spawn(c.get, server.url) for _ in range(5)]
        for _ in range(10):
            coro.yield_slice()
        assert c.statistics().used == 1
        for waiter in waiters:
            waiter.shutdown()
        holder.shutdown()
        for thread in (holder, *waiters):
            thread.join()
        assert c.statistics()[:3] == (0, 0, 0) and c.pool._places.avail == 1 and c.pool._origins == {}


@coro_test
def test_a_place_that_was_handed_to_a_thread_that_ends_goes_on():
    with site(hello) as server, Client(limits=Limits(connections=1)) as c:
        with c.stream("GET", server.url) as holding:
            first = coro.spawn(c.get, server.url)
            second = coro.spawn(c.get, server.url)
            for _ in range(5):
                coro.yield_slice()
            holding.close()
            first.shutdown()
        assert second.get().content == b"hello"
        first.join()
        assert c.statistics().used == 0


@coro_test
def test_a_pause_between_attempts_can_be_ended():
    with testing.virtual_clock(autojump=True), site(lambda s: None) as server:
        with Client(retries=Retries(attempts=5, wait_initial=100, wait_max=100)) as c:
            thread = coro.spawn(c.get, server.url)
            coro.sleep(50)
            thread.shutdown()
            thread.join()
            assert c.statistics().used == 0


@coro_test
def test_the_classic_client_tells_everybody_that_it_has_ended():
    def two(conn):
        client_support.read_head(conn)
        conn.send(response(200, [], b"one"))
        client_support.read_head(conn)

    with raw(two) as server:
        c = client("127.0.0.1", server.port)
        requests = [c.send_request("GET", "/", {}) for _ in range(4)]
        requests[0].wait()
        assert requests[0].content == b"one" and requests[0].reply_code == 200
        for request in requests[1:]:
            with pytest.raises(ConnectionClosed):
                request.wait()
        with pytest.raises(ConnectionClosed):
            c.GET("/")
        c.close()
        assert c.inflight.avail == 100
