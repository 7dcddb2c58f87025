"""pdb over a socket: one thread stops, the others run."""

import os
import socket
import sys

import pytest
from sockets_support import RawPeer
from support import ok, until

import coro
from coro import debug
from coro.backdoor import _telnet

PROMPT = b"(Pdb) "
LIMIT = 60


@pytest.fixture(autouse=True)
def _clean(leaves_nothing, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tracer = sys.gettrace()
    yield
    assert sys.gettrace() is tracer
    assert not debug._clients


class Peer(RawPeer):
    def __init__(self, server):
        super().__init__(server)
        self.until(b"waiting for coro.debug.set_trace() in a thread\r\n")

    def until(self, mark):
        return super().until(mark).decode().replace("\r\n", "\n")

    def ask(self, line, mark=PROMPT):
        self.sock.send(line.encode() + b"\n")
        return self.until(mark)

    def rest(self):
        while data := self.sock.recv(65536):
            self.got += data
        return self.got


def with_server(body, *address):
    def main():
        server = debug.start(*address)
        try:
            with coro.timeout(LIMIT):
                return body(server)
        finally:
            server.close()
            for client in list(debug._clients):
                client.leave()
            coro.sleep_relative(0)

    return coro.run(main)


def add(a, b):
    total = a
    total += b
    return total


def work(log):
    debug.set_trace()
    x = 1
    y = add(x, 2)
    log.append(y)


def test_one_thread_is_stepped_through_while_another_is_traced_and_the_rest_runs():
    log, ticks, traced = [], [], []

    def tick():
        while True:
            ticks.append(1)
            coro.sleep_relative(0.001)

    def trace(frame, event, arg):
        if frame.f_code is add.__code__:
            traced.append((coro.current(), event))
        return trace

    def with_a_tracer():
        sys.settrace(trace)
        try:
            while True:
                assert add(1, 2) == 3
                coro.sleep_relative(0.001)
                assert sys.gettrace() is trace
        finally:
            sys.settrace(None)

    def body(server):
        ticker = coro.spawn(tick)
        other = coro.spawn(with_a_tracer)
        peer = Peer(server)
        worker = coro.spawn(work, log)
        first = peer.until(PROMPT)
        assert "stopped in <coro" in first and "-> x = 1" in first
        assert "-> y = add(x, 2)" in peer.ask("next")
        before = len(ticks), len(traced)
        while len(ticks) < before[0] + 3 or len(traced) < before[1] + 3:
            coro.sleep_relative(0.001)
        assert "--Call--" in peer.ask("step")
        assert "-> total = a" in peer.ask("step")
        assert peer.ask("p a, b") == "(1, 2)\n"
        assert "--Return--" in peer.ask("return")
        assert "-> log.append(y)" in peer.ask("next")
        assert peer.ask("y = 10") == ""
        assert sys.gettrace() is not trace and not worker.dead
        assert {t for t, _ in traced} == {other}
        peer.sock.send(b"continue\n")
        worker.join()
        assert log == [10]
        ticker.shutdown()
        other.shutdown()

    with_server(body)


def test_nothing_happens_without_a_client():
    def body(server):
        log = []
        coro.spawn(work, log).join()
        assert log == [3]

    with_server(body)


def test_a_client_serves_one_thread_after_the_other():
    def body(server):
        log = []
        peer = Peer(server)
        for _ in range(3):
            worker = coro.spawn(work, log)
            peer.until(PROMPT)
            peer.sock.send(b"c\n")
            worker.join()
        assert log == [3, 3, 3]

    with_server(body)


def test_two_clients_two_threads_and_a_third_that_goes_on_without():
    def body(server):
        log = []
        one, two = Peer(server), Peer(server)
        workers = [coro.spawn(work, log) for _ in range(3)]
        assert "-> x = 1" in one.until(PROMPT)
        assert "-> x = 1" in two.until(PROMPT)
        workers[2].join()
        assert log == [3]
        two.sock.send(b"continue\n")
        workers[1].join()
        one.sock.send(b"continue\n")
        workers[0].join()
        assert log == [3, 3, 3]

    with_server(body)


@pytest.mark.parametrize("how", ["quit\n", "q\n", "exit\n", "EOF\n", "\x04", None])
def test_quitting_lets_the_program_go_on_and_closes_the_connection(how):
    def body(server):
        log = []
        peer = Peer(server)
        worker = coro.spawn(work, log)
        peer.until(PROMPT)
        peer.ask("break 1")
        if how is None:
            peer.sock.close()
        else:
            peer.sock.send(how.encode())
        worker.join()
        assert log == [3]
        if how is not None:
            peer.rest()
        coro.sleep_relative(0)
        assert not debug._clients

    with_server(body)


def test_a_client_that_has_gone_is_not_waited_for():
    def body(server):
        log = []
        peer = Peer(server)
        peer.sock.close()
        until(lambda: not debug._clients)
        coro.spawn(work, log).join()
        assert log == [3]

    with_server(body)


def test_breakpoints_stay_over_continue():
    def body(server):
        log = []
        peer = Peer(server)
        worker = coro.spawn(work, log)
        peer.until(PROMPT)
        assert "Breakpoint" in peer.ask(f"break {__file__}:{add.__code__.co_firstlineno + 2}")
        assert "-> total += b" in peer.ask("continue")
        assert peer.ask("p total") == "1\n"
        peer.ask("clear 1")
        peer.sock.send(b"continue\n")
        worker.join()
        assert log == [3]

    import bdb

    try:
        with_server(body)
    finally:
        bdb.Breakpoint.clearBreakpoints()


def test_stepping_out_of_the_thread_gives_the_client_back():
    def body(server):
        log = []
        peer = Peer(server)
        worker = coro.spawn(work, log)
        peer.until(PROMPT)
        for _ in range(6):
            peer.sock.send(b"next\n")
        worker.join()
        peer.until(b"the thread has ended")
        coro.sleep_relative(0)
        assert debug._clients[0].idle
        assert log == [3]

    with_server(body)


def test_stepping_over_a_wait():
    def waits(log):
        debug.set_trace()
        coro.sleep_relative(0.01)
        log.append(1)

    def body(server):
        log = []
        peer = Peer(server)
        worker = coro.spawn(waits, log)
        peer.until(PROMPT)
        assert "-> log.append(1)" in peer.ask("next")
        peer.sock.send(b"c\n")
        worker.join()

    with_server(body)


def test_interrupting_and_restarting_are_harmless():
    def body(server):
        log = []
        peer = Peer(server)
        worker = coro.spawn(work, log)
        peer.until(PROMPT)
        assert "cannot be restarted" in peer.ask("run")
        peer.sock.send(b"\x03")
        peer.until(PROMPT)
        peer.sock.send(b"c\n")
        worker.join()
        assert log == [3]

    with_server(body)


def test_attaching_to_a_thread_that_waits():
    def loops(log):
        while not log:
            total = len(log)
            coro.sleep_relative(0.005)
            total += 1

    def body(server):
        log = []
        peer = Peer(server)
        thread = coro.spawn(loops, log)
        coro.sleep_relative(0.001)
        debug.attach(thread)
        assert sys.gettrace() is None
        shown = peer.until(PROMPT)
        assert "-> total += 1" in shown, shown
        assert "-> while not log:" in peer.ask("next")
        assert peer.ask("p total") == "1\n"
        peer.ask("log.append(1)")
        peer.sock.send(b"c\n")
        thread.join()

    with_server(body)


def test_attaching_while_another_thread_is_traced_already():
    def other():
        sys.settrace(lambda *args: None)
        try:
            while True:
                coro.sleep_relative(0.001)
        finally:
            sys.settrace(None)

    def loops(log):
        while not log:
            coro.sleep_relative(0.001)
            total = len(log)
            total += 1

    def body(server):
        log = []
        traced = coro.spawn(other)
        thread = coro.spawn(loops, log)
        coro.yield_slice()
        peer = Peer(server)
        debug.attach(thread)
        assert "-> total = len(log)" in peer.until(PROMPT)
        assert "-> total += 1" in peer.ask("next")
        peer.ask("log.append(1)")
        peer.sock.send(b"c\n")
        thread.join()
        traced.shutdown()

    with_server(body)


def test_attaching_in_the_middle_of_calls_and_through_c():
    def key(n):
        coro.sleep_relative(0.005)
        return -n

    def outer(log):
        log.extend(sorted([1, 2], key=key))
        log.append("end")

    def body(server):
        log = []
        peer = Peer(server)
        thread = coro.spawn(outer, log)
        coro.sleep_relative(0.001)
        debug.attach(thread)
        assert "-> return -n" in peer.until(PROMPT)
        peer.ask("return")
        assert "key" in peer.ask("where")
        peer.sock.send(b"c\n")
        thread.join()
        assert log == [2, 1, "end"]

    with_server(body)


def test_attaching_to_what_cannot_be_debugged():
    def body(server):
        with pytest.raises(TypeError, match="expected a thread"):
            debug.attach(5)
        with pytest.raises(coro.ScheduleError):
            debug.attach(coro.current())
        fresh = coro.new(int)
        with pytest.raises(coro.ScheduleError):
            debug.attach(fresh)
        dead = coro.spawn(int)
        dead.join()
        with pytest.raises(coro.DeadCoroutine):
            debug.attach(dead)
        bare = coro.spawn(coro._yield)
        coro.yield_slice()
        with pytest.raises(RuntimeError, match="no Python function"):
            debug.attach(bare)

        def traced():
            sys.settrace(lambda *args: None)
            coro.sleep_relative(1000)

        thread = coro.spawn(traced)
        coro.yield_slice()
        with pytest.raises(RuntimeError, match="traced already"):
            debug.attach(thread)
        for t in (thread, bare):
            t.shutdown()

    with_server(body)


def test_attached_without_a_client_it_goes_on():
    def waits():
        coro.sleep_relative(0.001)
        return 5

    def body(server):
        thread = coro.spawn(waits)
        coro.yield_slice()
        debug.attach(thread)
        thread.join()
        assert thread.result == 5

    with_server(body)


class Chooser(Peer):
    """Our own client, as far as it asks for a thread."""

    def __init__(self, server, thread):
        RawPeer.__init__(self, server)
        self.sock.send(_telnet.message(b"H", b"1") + _telnet.message(b"T", str(thread).encode()))
        RawPeer.until(self, bytes([_telnet.IAC, _telnet.SB, _telnet.OPTION]) + b"T")
        self.refusal = RawPeer.until(self, bytes([_telnet.IAC, _telnet.SE])).decode()

    def prompt(self):
        return self.until(_telnet.message(b"P", b""))

    def ask(self, line):
        self.sock.send(line.encode() + b"\n")
        return self.prompt().removesuffix("(Pdb) ")


def stuck(event, log):
    before = 5
    event.wait()
    after = before + 1
    log.append(after)


def with_a_stuck_thread(body):
    """Run ``body(server, thread, event, log)``; the thread waits for the event."""

    def inside(server):
        event, log = coro.event(), []
        thread = coro.spawn(stuck, event, log, thread_name="stuck")
        coro.yield_slice()
        body(server, thread, event, log)
        event.set()
        if not thread.dead:
            thread.join()

    with_server(inside)


@pytest.mark.parametrize("by", ["name", "number"])
def test_looking_at_a_thread_that_waits(by):
    def body(server, thread, event, log):
        peer = Chooser(server, "stuck" if by == "name" else thread.id)
        assert peer.refusal == ""
        first = peer.prompt()
        assert f"--{thread!r} is here, and stops at its next line--" in first and "-> event.wait()" in first
        assert peer.ask("p before") == "5\n"
        assert "stuck()" in peer.ask("where")
        peer.sock.send(b"next\n")
        peer.until(b"has not come to a line yet; Ctrl-C looks at it again--\n")
        peer.sock.send(_telnet.message(b"I"))
        assert "-> event.wait()" in peer.prompt()
        peer.sock.send(b"next\n")
        peer.until(b"looks at it again--\n")
        event.set()
        assert "-> after = before + 1" in peer.prompt()
        assert "-> log.append(after)" in peer.ask("next")
        assert log == []
        peer.sock.send(b"quit\n")
        peer.rest()
        thread.join()
        assert log == [6]

    with_a_stuck_thread(body)


def test_a_thread_that_goes_on_while_somebody_looks_stops_at_its_next_line():
    def body(server, thread, event, log):
        peer = Chooser(server, "stuck")
        peer.prompt()
        event.set()
        for _ in range(5):
            coro.yield_slice()
        assert not thread.dead and log == []
        assert "-> after = before + 1" in peer.ask("step")
        peer.sock.send(b"continue\n")
        thread.join()
        assert log == [6]

    with_a_stuck_thread(body)


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("last", ["continue", "quit", None])
def test_a_thread_that_is_let_go_is_not_traced_any_more(last, goes_on):
    def body(server, thread, event, log):
        for _ in range(2):  # again, although the thread has not had an opportunity to do anything
            peer = Chooser(server, "stuck")
            assert peer.refusal == ""
            peer.prompt()
            if goes_on:
                event.set()
                coro.yield_slice()
            if last is None:
                peer.sock.close()
            else:
                peer.sock.send(last.encode() + b"\n")
            if last == "continue":
                until(lambda: debug._clients[0].idle)
                peer.sock.send(_telnet.message(b"I"))  # Ctrl-C without a thread: leave
            until(lambda: not debug._clients)
            if goes_on:
                break
        event.set()
        thread.join()
        assert log == [6]
        assert thread not in debug._debuggers

    with_a_stuck_thread(body)


def test_a_client_that_leaves_before_the_thread_comes_to_its_next_line():
    def body(server, thread, event, log):
        peer = Chooser(server, "stuck")
        peer.prompt()
        peer.sock.send(b"next\n")
        peer.until(b"looks at it again--\n")
        peer.sock.close()
        until(lambda: not debug._clients)
        event.set()
        thread.join()
        assert log == [6]

    with_a_stuck_thread(body)


def test_an_interruption_while_somebody_looks_waits_for_the_decision():
    def body(server, thread, event, log):
        peer = Chooser(server, "stuck")
        peer.prompt()
        thread.shutdown()
        for _ in range(5):
            coro.yield_slice()
        assert not thread.dead
        assert "Shutdown" in peer.ask("step")
        peer.sock.send(b"step\n" * 5)
        RawPeer.until(peer, b"the thread has ended")
        until(lambda: debug._clients[0].idle)
        assert thread.dead and log == []

    with_a_stuck_thread(body)


def test_threads_that_cannot_be_chosen():
    def body(server, thread, event, log):
        bare = coro.spawn(coro._yield, thread_name="bare")
        twins = [coro.spawn(stuck, event, log, thread_name="twin") for _ in range(2)]
        coro.yield_slice()
        refusal = Chooser(server, "nobody").refusal
        assert refusal.startswith("no thread has the number or name 'nobody'. There are:\n")
        assert f"{thread.id:>6} stuck" in refusal
        refusal = Chooser(server, "twin").refusal
        assert refusal.startswith("2 threads are called 'twin'; give the number of one:\n")
        assert all(f"{t.id:>6} twin" in refusal for t in twins) and "stuck" not in refusal
        assert "runs no Python function" in Chooser(server, bare.id).refusal
        assert "has the number or name '999999999999999999999999'" in Chooser(server, 10**24 - 1).refusal
        peer = Chooser(server, "stuck")
        assert peer.refusal == ""
        assert "by the debugger of another client" in Chooser(server, "stuck").refusal
        peer.prompt()
        peer.sock.send(b"quit\n")
        bare.shutdown()
        event.set()
        for t in twins:
            t.join()

    with_a_stuck_thread(body)


def test_a_long_list_of_threads_is_cut():
    def body(server):
        threads = [coro.spawn(coro.sleep_relative, 1000, thread_name=f"t{n}") for n in range(debug.MOST_LISTED + 5)]
        refusal = Chooser(server, "nobody").refusal
        assert len(refusal.splitlines()) <= debug.MOST_LISTED + 2 and " more" in refusal.splitlines()[-1]
        for t in threads:
            t.shutdown()

    with_server(body)


def test_tcp_and_our_own_client():
    def body(server):
        log = []
        peer = Peer(server)
        peer.sock.send(_telnet.message(b"H", b"1"))
        peer.until(_telnet.message(b"H", b"1"))
        worker = coro.spawn(work, log)
        assert "-> x = 1" in peer.until(_telnet.message(b"P"))
        peer.sock.send(b"c\n")
        worker.join()

    with_server(body, ("127.0.0.1", 0))


def test_addresses_that_are_refused(tmp_path):
    for address in [("0.0.0.0", 0), ("example.org", 1)]:
        with pytest.raises(ValueError):
            debug.Server(address)
    for address in [5, ("127.0.0.1",)]:
        with pytest.raises(TypeError):
            debug.Server(address)

    def body(server):
        assert server.address == debug.default_path() == str(tmp_path / "coro" / f"{os.getpid()}.debug")
        assert os.stat(server.address).st_mode & 0o777 == 0o600
        peers = [Peer(server) for _ in range(debug.MAX_CLIENTS)]
        extra = coro.unix_sock()
        extra.connect(server.address)
        assert b"wait already" in extra.recv(1000)
        assert len(peers) == len(debug._clients)
        with pytest.raises(TypeError, match="expected a frame"):
            debug.set_trace(5)

    with_server(body)
    with pytest.raises(coro.YieldFromMain):
        debug.set_trace()


def test_serve_runs_in_the_calling_thread(tmp_path):
    def main():
        thread = coro.spawn(debug.serve, str(tmp_path / "d"))
        coro.yield_slice()
        peer = coro.unix_sock()
        peer.connect(str(tmp_path / "d"))
        assert peer.recv(7) == b"waiting"
        peer.shutdown(socket.SHUT_RDWR)
        thread.shutdown()
        thread.join()
        peer.close()
        until(lambda: not debug._clients)

    coro.run(main)


def test_an_exception_in_a_frame_that_was_parked_when_tracing_began():
    seen = []

    def parked():
        coro._yield()
        try:
            raise KeyError
        except KeyError:
            seen.append("caught")
        [].pop() if coro._yield() else None

    def inside():
        threads = [coro.spawn(parked) for _ in range(200)]  # more than there are slots
        coro.yield_slice()
        sys.settrace(lambda *args: None)
        for thread in threads:
            thread.schedule()
        coro.yield_slice()
        sys.settrace(None)
        for thread in threads:
            thread.schedule()
        coro.yield_slice()

    coro.run(inside)
    assert seen == ["caught"] * 200


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_an_exception_in_main_when_a_thread_has_begun_to_monitor():
    events = []
    tool = 4

    def inside():
        sys.monitoring.use_tool_id(tool, "test")
        sys.monitoring.register_callback(tool, sys.monitoring.events.RAISE, lambda *args: events.append(type(args[2])))
        sys.monitoring.set_events(tool, sys.monitoring.events.RAISE)

    try:
        coro.run(inside)
        with pytest.raises(KeyError):
            raise KeyError
        assert events.count(KeyError) >= (sys.version_info < (3, 15))
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)


def test_who_attaches_to_another_thread_may_fail_afterwards():
    # The interpreter prepares the functions that are being executed; it did not see those of the caller. On 3.15 an
    # exception in one of them, which nothing had prepared, ended the process.
    assert ok("""
        import coro
        from coro import debug

        def caller(thread):
            debug.attach(thread)
            try:
                raise KeyError("after")
            except KeyError:
                return "caught"

        def main():
            thread = coro.spawn(lambda: coro.sleep(1000))
            coro.yield_slice()
            print(caller(thread))
            thread.shutdown()
            thread.join()

        coro.run(main)
    """) == ["caught"]
