"""The two memory buffers that the TLS connections of an OS thread share: none of them ever finds another's bytes."""

from __future__ import annotations

import gc
import random
import signal
import ssl
import threading

import pytest
import tls_support
from support import in_loop

import coro
from coro import testing, tls
from coro.tls._openssl import OpenSSL, never_waits


def engines(client=None, server=None):
    return (
        OpenSSL(client or tls_support.client_context(), False, "localhost"),
        OpenSSL(server or tls_support.server_context(), True),
    )


def move(a, b):
    """What `a` has to say, to `b`."""
    data = a.channel.take()
    if data:
        b.channel.feed(data)


def shaken(a, b):
    done = False
    while not done:
        done = a.channel.handshake()
        move(a, b)
        done &= b.channel.handshake()
        move(b, a)
    assert a.channel.read(1) is None  # tickets
    return a, b


def pair():
    left, right = coro.socketpair()
    thread = coro.spawn(tls.context(tls_support.server_context()).wrap, right, server_side=True)
    return tls.context(tls_support.client_context()).wrap(left, server_hostname="localhost"), thread.get()


def test_the_connections_of_a_thread_share_them():
    a, b = engines()
    assert a.channel.buffers() == b.channel.buffers()
    found = []
    other = threading.Thread(target=lambda: found.append(engines()[0].channel.buffers()))
    other.start()
    other.join()
    assert found[0][0] is not a.channel.buffers()[0]


def test_steps_of_many_connections_in_any_order():
    """Ciphertext in all places at once: fed in pieces, records cut, answers not taken yet."""
    chosen = random.Random(20)
    connections = [shaken(*engines()) for _ in range(6)]
    ways = [(a, b) for one in connections for a, b in (one, one[::-1])]
    sent, got, line = (dict.fromkeys(ways, b"") for _ in range(3))
    for step in range(6000):
        way = a, b = chosen.choice(ways)
        what = chosen.randrange(4)
        if what == 0 and len(sent[way]) - len(got[way]) < 40_000:
            data = chosen.randbytes(chosen.choice((1, 100, 3000, 20_000)))
            assert a.channel.write(data) == len(data)
            sent[way] += data
        elif what == 1:
            line[way] += a.channel.take()
        elif what == 2 and line[way]:
            n = chosen.choice((1, 10, 5000, 50_000))
            b.channel.feed(line[way][:n])
            line[way] = line[way][n:]
        elif what == 3:
            data = b.channel.read(chosen.choice((1, 1000, 16_384)))
            got[way] += data or b""
            assert sent[way].startswith(got[way]), step
    for way in ways:
        a, b = way
        if rest := line[way] + a.channel.take():
            b.channel.feed(rest)
        while data := b.channel.read(16_384):
            got[way] += data
        assert got[way] == sent[way]


def test_what_a_connection_leaves_is_nobodys():
    a, b = shaken(*engines())
    c, d = shaken(*engines())
    a.channel.write(b"x" * 100)
    b.channel.feed(a.channel.take()[:50])
    b.channel.write(b"never sent")
    assert b.channel.received() == 50 and b.channel.unsent()
    del a, b
    gc.collect()
    assert c.channel.received() == c.channel.unsent() == 0
    c.channel.write(b"hello")
    move(c, d)
    assert d.channel.read(100) == b"hello" and d.channel.read(100) is None


def test_an_end_concerns_one_connection():
    a, b = shaken(*engines())
    c, d = shaken(*engines())
    b.channel.feed(b"")
    with pytest.raises(ssl.SSLEOFError):
        b.channel.read(1)
    c.channel.write(b"hello")
    move(c, d)
    assert d.channel.read(100) == b"hello"
    a.channel.write(b"before the end")
    b.channel.feed(a.channel.take())
    assert b.channel.read(100) == b"before the end"
    with pytest.raises(ssl.SSLEOFError):
        b.channel.read(1)


def test_connections_may_be_used_by_other_os_threads():
    """All are of this thread, and OpenSSL lets others run while it encrypts."""
    connections = [shaken(*engines()) for _ in range(4)]
    wrong = []

    def use(one, seed):
        chosen = random.Random(seed)
        try:
            for _ in range(200):
                a, b = one if chosen.random() < 0.5 else one[::-1]
                data = chosen.randbytes(chosen.choice((1, 5000, 60_000)))
                assert a.channel.write(data) == len(data)
                b.channel.feed(a.channel.take())
                got = b""
                while len(got) < len(data):
                    got += b.channel.read(16_384)
                assert got == data
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=use, args=(one, seed)) for seed, one in enumerate(connections[1:])]
    for thread in threads:
        thread.start()
    use(connections[0], 99)
    for thread in threads:
        thread.join()
    assert not wrong


@in_loop
def test_a_function_for_names_may_use_other_connections_and_wait():
    server = tls_support.server_context()
    here, there = pair()
    asked = []

    def choose(connection, name, context):
        for _ in range(3):
            here.send(b"who is " + name.encode())
            asked.append(there.recv(100))
            coro.yield_slice()

    server.sni_callback = choose
    made = [coro.socketpair() for _ in range(8)]
    contexts = tls.context(tls_support.client_context()), tls.context(server)
    with here, there:
        servers = [coro.spawn(contexts[1].wrap, right, server_side=True) for _, right in made]
        clients = [coro.spawn(contexts[0].wrap, left, server_hostname="localhost") for left, _ in made]
        for first, second in zip(clients, servers, strict=True):
            with first.get() as one, second.get() as other:
                one.send(b"hello")
                assert other.recv(100) == b"hello"
    assert len(asked) == 24 and b"".join(asked) == b"who is localhost" * 24


def late(server, function):
    """A connection whose context gets this function when it is too late for a pair of its own."""
    a, b = engines(server=server)
    assert a.channel.buffers() == b.channel.buffers()
    server.sni_callback = function
    return a, b


def test_a_function_within_a_handshake_uses_other_connections():
    inner = shaken(*engines())

    def choose(connection, name, context):
        shaken(*engines())
        inner[0].channel.write(b"within")
        move(*inner)
        assert inner[1].channel.read(100) == b"within"

    a, b = shaken(*late(tls_support.server_context(), choose))
    a.channel.write(b"hello")
    move(a, b)
    assert b.channel.read(100) == b"hello"


@in_loop
def test_one_that_waits_within_a_handshake_beside_others():
    go_on = coro.event()

    def choose(connection, name, context):
        go_on.wait()

    a, b = late(tls_support.server_context(), choose)
    others = shaken(*engines())
    a.channel.handshake()
    move(a, b)
    thread = coro.spawn(b.channel.handshake)
    coro.yield_slice()
    for i in range(10):
        others[0].channel.write(b"hello")
        data = others[0].channel.take()
        others[1].channel.feed(data[: i + 1])
        assert others[1].channel.read(100) is None
        others[1].channel.feed(data[i + 1 :])
        assert others[1].channel.read(100) == b"hello"
    go_on.set()
    assert thread.get() is False
    move(b, a)
    shaken(a, b)
    b.channel.write(b"hello")
    move(b, a)
    assert a.channel.read(100) == b"hello"


@in_loop
def test_two_that_wait_within_a_handshake_both_fail():
    """Where it could not be known that they would: neither may go on with what may be the other's bytes."""
    events = [coro.event(), coro.event()]
    waiting = iter(events)

    def choose(connection, name, context):
        next(waiting).wait()

    bystanders = shaken(*engines())
    server = tls_support.server_context()
    both = [engines(server=server) for _ in events]
    server.sni_callback = choose
    threads = []
    for a, b in both:
        a.channel.handshake()
        move(a, b)
        threads.append(coro.spawn(b.channel.handshake))
        coro.yield_slice()
    events[0].set()
    with pytest.raises(tls.TLSError, match="waited in functions that OpenSSL calls"):
        threads[0].get()
    events[1].set()
    with pytest.raises((tls.TLSError, ssl.SSLError)):
        threads[1].get()
        both[1][1].channel.handshake()
    for _, b in both:
        with pytest.raises(tls.TLSError):
            b.channel.handshake()
    bystanders[0].channel.write(b"hello")
    move(*bystanders)
    assert bystanders[1].channel.read(100) == b"hello"


def test_a_function_that_says_that_it_does_not_wait():
    server = tls_support.server_context()
    server.sni_callback = never_waits(lambda connection, name, context: None)
    a, b = engines(server=server)
    assert a.channel.buffers() == b.channel.buffers()
    server.sni_callback = lambda connection, name, context: None
    c, d = engines(server=server)
    assert c.channel.buffers() == a.channel.buffers() != d.channel.buffers()
    shaken(c, d)


@in_loop
def test_many_streams_at_once_with_cut_records():
    """Each thread sends and receives while the others do, and no record comes in one piece."""
    from coro.testing import faults

    def talk(seed):
        chosen = random.Random(seed)
        left, right = testing.stream_pair()
        thread = coro.spawn(tls.context(tls_support.server_context()).wrap, right, server_side=True)
        here = tls.context(tls_support.client_context()).wrap(
            faults.faulty_stream(left, faults.short(700)), server_hostname="localhost"
        )
        there = thread.get()
        for first, second in [(here, there), (there, here)] * 3:
            data = chosen.randbytes(chosen.choice((10, 5000, 40_000)))
            sender = coro.spawn(first.send, data)
            assert second.recv_exact(len(data)) == data
            sender.get()

    with coro.group() as g:
        for seed in range(10):
            g.spawn(talk, seed)


class _Struck(BaseException):
    pass


def test_an_exception_out_of_nowhere_harms_no_other_connection():
    """A signal's handler raises wherever it likes, also between two calls that belong together."""
    bystanders = shaken(*engines())
    armed = False

    def strike(signum, frame):
        nonlocal armed
        if armed:
            armed = False
            raise _Struck

    def ask_for_too_much(one):
        nonlocal armed
        try:
            armed = True
            while True:
                one[0].channel.write(b"x" * 20_000)
                one[1].channel.feed(one[0].channel.take()[:-1])
                one[1].channel.read(16_384)
        except ssl.SSLError:
            pass  # a byte is missing: its errors are its own, too
        finally:
            armed = False

    before = signal.signal(signal.SIGALRM, strike)
    struck = 0
    try:
        for step in range(100):
            one = shaken(*engines())
            signal.setitimer(signal.ITIMER_REAL, 0.00002 + step * 0.000003)
            try:
                ask_for_too_much(one)
            except _Struck:
                struck += 1
            bystanders[0].channel.write(b"hello")
            move(*bystanders)
            assert bystanders[1].channel.read(100) == b"hello"
            assert bystanders[0].channel.read(100) is bystanders[1].channel.read(100) is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck


@in_loop
def test_what_is_left_between_two_calls_while_another_waits_within():
    """What is fed and not read, what is encrypted and not taken: the one that goes on must not find it."""
    go_on = coro.event()

    def choose(connection, name, context):
        go_on.wait()

    a, b = late(tls_support.server_context(), choose)
    first, second = shaken(*engines()), shaken(*engines())
    a.channel.handshake()
    move(a, b)
    thread = coro.spawn(b.channel.handshake)
    coro.yield_slice()
    first[0].channel.write(b"fed")
    first[1].channel.feed(first[0].channel.take())
    second[0].channel.write(b"encrypted")
    second[1].channel.write(b"taken")
    taken = second[1].channel.take()
    go_on.set()
    assert thread.get() is False
    move(b, a)
    shaken(a, b)
    assert first[1].channel.read(100) == b"fed"
    move(*second)
    second[0].channel.feed(taken)
    assert second[1].channel.read(100) == b"encrypted" and second[0].channel.read(100) == b"taken"


@in_loop
def test_a_context_whose_function_waited_gets_pairs_of_their_own():
    go_on = coro.event()
    server = tls_support.server_context()
    a, b = late(server, lambda connection, name, context: go_on.wait())
    server.sni_callback = None
    assert engines(server=server)[1].channel.buffers() == b.channel.buffers()
    server.sni_callback = lambda connection, name, context: go_on.wait()
    a.channel.handshake()
    move(a, b)
    thread = coro.spawn(b.channel.handshake)
    coro.yield_slice()
    shaken(*engines())
    go_on.set()
    thread.get()
    server.sni_callback = None
    assert engines(server=server)[1].channel.buffers() != b.channel.buffers()


@pytest.mark.skipif(not hasattr(ssl.SSLContext, "set_psk_server_callback"), reason="new in Python 3.13")
@in_loop
def test_functions_for_keys_that_wait():
    """The ssl module does not tell whether there is one. Two that wait at once fail, and the next ones do not."""

    def context(kind):
        made = ssl.SSLContext(kind)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        made.maximum_version = ssl.TLSVersion.TLSv1_2
        made.set_ciphers("PSK")
        return made

    def key(identity):
        asked.append(identity)
        coro.yield_slice()
        coro.yield_slice()
        return b"secret"

    asked = []
    client, server = context(ssl.PROTOCOL_TLS_CLIENT), context(ssl.PROTOCOL_TLS_SERVER)
    client.set_psk_client_callback(lambda hint: ("me", b"secret"))
    server.set_psk_server_callback(key)
    bystanders = pair()

    def once():
        left, right = coro.socketpair()
        thread = coro.spawn(tls.context(server).wrap, right, server_side=True)
        try:
            with tls.context(client).wrap(left) as here, thread.get() as there:
                here.send(b"hello")
                return there.recv(100)
        except OSError:
            return thread

    for turn in range(3):
        threads = [coro.spawn(once) for _ in range(5)]
        got = [thread.get() for thread in threads]
        bystanders[0].send(b"fine")
        assert bystanders[1].recv(100) == b"fine"
        if turn:
            assert got == [b"hello"] * 5
    for one in got:
        if not isinstance(one, bytes):
            with pytest.raises(tls.TLSError):
                one.get()
    assert len(asked) == 15
    for one in bystanders:
        one.close()


@in_loop
def test_an_end_that_the_context_takes_for_a_farewell():
    """OP_IGNORE_UNEXPECTED_EOF, for peers that never say close_notify."""
    for silently in (False, True):
        context = tls_support.client_context()
        if silently:
            context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
        left, right = coro.socketpair()
        thread = coro.spawn(tls.context(tls_support.server_context()).wrap, right, server_side=True)
        here, there = tls.context(context).wrap(left, server_hostname="localhost"), thread.get()
        there.send(b"hello")
        there.sock.close()
        assert here.recv(100) == b"hello"
        if silently:
            assert here.recv(100) == here.recv(100) == b""
            assert here.recv_into(bytearray(9)) == 0
        else:
            with pytest.raises(tls.TruncatedError):
                here.recv(100)
        here.close()
        a, b = engines(client=context)
        a.channel.handshake()
        a.channel.take()
        a.channel.feed(b"")
        with pytest.raises(ssl.SSLEOFError):
            a.channel.handshake()


@pytest.mark.slow
@in_loop
def test_hundreds_of_streams_that_are_interrupted():
    """Streams over cut stretches of stream, with limits that end calls anywhere, and the collector's runs."""
    from coro.testing import faults

    collected = gc.get_threshold()
    whole = 0

    def receive(stream, size, chosen):
        got = b""
        while len(got) < size:
            with coro.move_on_after(chosen.choice((0, 0.001, 1000))):
                got += stream.recv(min(size - len(got), chosen.choice((1, 900, 70_000))))
            coro.yield_slice()
        return got

    def send(stream, data, chosen):
        sent = 0
        while sent < len(data):
            try:
                with coro.timeout(chosen.choice((0, 0.001, 1000))):
                    sent += stream.send(data[sent : sent + chosen.choice((10, 3000, 80_000))])
            except coro.TimeoutError as e:
                sent += e.bytes_sent
            coro.yield_slice()
        stream.send(b"")  # what an interrupted call has left

    def talk(seed):
        nonlocal whole
        chosen = random.Random(seed)
        left, right = testing.stream_pair() if seed % 2 else coro.socketpair()
        server, client = tls.context(tls_support.server_context()), tls.context(tls_support.client_context())
        thread = coro.spawn(server.wrap, right, server_side=True, handshake_timeout=None)
        below = faults.faulty_stream(left, faults.short(700)) if seed % 2 else left
        here = client.wrap(below, server_hostname="localhost", handshake_timeout=None)
        there = thread.get()
        for first, second in [(here, there), (there, here)] * 2:
            data = chosen.randbytes(chosen.choice((10, 5000, 40_000)))
            sender = coro.spawn(send, first, data, chosen)
            assert receive(second, len(data), chosen) == data
            sender.get()
        if chosen.random() < 0.5:
            here.close()
            assert there.recv(10) == b""
            there.close()
        whole += 1

    gc.set_threshold(7)
    try:
        with coro.group() as g:
            for seed in range(200):
                g.spawn(talk, seed)
    finally:
        gc.set_threshold(*collected)
    assert whole == 200
