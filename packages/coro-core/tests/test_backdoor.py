"""The back door as a person at a terminal sees it, and as somebody hostile does. telnet and nc are played by
sockets."""

import contextlib
import io
import os
import socket
import stat
import sys

import pytest
from sockets_support import RawPeer
from support import ok, until

import coro
from coro import backdoor
from coro.backdoor import _server, _strangers, _telnet

PROMPT = b">>> "
LIMIT = 60


@pytest.fixture(autouse=True)
def _clean(leaves_nothing, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    streams = sys.stdin, sys.stdout, sys.stderr, sys.displayhook
    yield
    assert (sys.stdin, sys.stdout, sys.stderr, sys.displayhook) == streams


class Peer(RawPeer):
    def send(self, data):
        self.sock.send(data)

    def rest(self):
        with contextlib.suppress(OSError):
            while data := self.sock.recv(65536):
                self.got += data
        return self.got

    def ask(self, line, prompt=PROMPT):
        self.send(line.encode() + b"\n")
        return self.until(prompt).decode().replace("\r\n", "\n")

    def close(self):
        self.sock.close()


def with_server(body, **options):
    """Run ``body(server)`` in a loop with a back door that sees ``options['names']``."""
    names = options.pop("names", {"x": 5})

    def main():
        if "port" not in options and "ip" not in options:
            options.setdefault("unix_path", os.path.join(os.environ["XDG_RUNTIME_DIR"], "door"))
        server = backdoor.start(global_dict=names, **options)
        try:
            with coro.timeout(LIMIT):
                return body(server)
        finally:
            server.close()
            coro.sleep_relative(0)

    return coro.run(main)


def session(server):
    peer = Peer(server)
    peer.until(PROMPT)
    return peer


# -- a session


def test_expressions_statements_blocks_and_the_last_result():
    def body(server):
        peer = Peer(server)
        welcome = peer.until(PROMPT)
        assert welcome.startswith(b"Python 3.") and b"Copyright" in welcome and welcome.endswith(b"hello there\r\n")
        assert peer.ask("x + 1") == "6\n"
        assert peer.ask("_ * 2") == "12\n"
        assert peer.ask("None") == ""
        assert peer.ask("y = 'ä中'") == ""
        assert peer.ask("y") == "'ä中'\n"
        peer.send(b"for i in range(2):\n")
        peer.until(b"... ")
        peer.send(b"    print(i)\r\n")
        peer.until(b"... ")
        assert peer.ask("") == "0\n1\n"
        assert peer.ask("'''a\nb\n\nc'''").endswith("'a\\nb\\n\\nc'\n")
        assert peer.ask("import sys; print('e', file=sys.stderr, end='')") == "e"
        peer.send(b"exit()\n")
        assert peer.rest() == b""

    with_server(body, welcome_message="hello there")


def test_assignments_stay_in_the_session_and_objects_are_the_programs():
    names = {"x": 5, "things": []}

    def body(server):
        one, two = session(server), session(server)
        one.ask("x = 6; things.append(1)")
        assert two.ask("x, things") == "(5, [1])\n"
        assert two.ask("_") == "(5, [1])\n"
        assert one.ask("_").startswith("Traceback")
        assert server.sessions == 2

    with_server(body, names=names)
    assert names == {"x": 5, "things": [1]}


def test_the_namespace_is_that_of_main_by_default(monkeypatch):
    import __main__

    monkeypatch.setattr(__main__, "something_of_main", 7, raising=False)
    with_server(lambda server: session(server).ask("something_of_main").startswith("7") or pytest.fail(), names=None)


def test_errors_show_the_users_frames_only():
    def body(server):
        peer = session(server)
        assert peer.ask("1/0") == (
            'Traceback (most recent call last):\n  File "<back door>", line 1, in <module>\n'
            "ZeroDivisionError: division by zero\n"
        )
        assert "SyntaxError" in peer.ask("a b")
        assert "SyntaxError" in peer.ask("'unfinished")
        assert "ValueError" in peer.ask("raise ValueError('x')")
        assert "coro.exceptions.TimeoutError" in peer.ask("coro.with_timeout(0, coro.sleep_relative, 9)")
        assert "GeneratorExit" in peer.ask("raise GeneratorExit")
        assert peer.ask("x") == "5\n"

    with_server(body)


def test_output_goes_to_the_session_that_makes_it_and_to_no_other():
    seen = io.StringIO()
    gate = coro.event()

    def body(server):
        one, two = session(server), session(server)
        with contextlib.redirect_stdout(seen):
            one.send(b"gate.wait(); print('one')\n")
            two.send(b"gate.wait(); print('two')\n")
            until(lambda: len(gate.waiting) == 2)
            print("program")
            gate.set()
            assert one.until(PROMPT) == b"one\r\n"
            assert two.until(PROMPT) == b"two\r\n"
        print("program again")

    kept = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()) as outside:
        with_server(body, names={"gate": gate})
    assert seen.getvalue() == "program\n"
    assert outside.getvalue() == "program again\n"
    assert sys.stdout is kept


def test_what_a_session_spawns_prints_there_too():
    def body(server):
        peer = session(server)
        peer.ask("import threading")
        peer.send(b"t = coro.spawn(print, 'from a thread'); t.join()\n")
        peer.until(b"from a thread")
        peer.send(b"coro.in_thread(print, 'from a worker')\n")
        peer.until(b"from a worker")
        peer.send(b"sys = __import__('sys'); sys.stdout.encoding\n")
        peer.until(b"'utf-8'")

    with_server(body)


def test_input_and_pdb_read_from_the_session():
    def body(server):
        peer = session(server)
        peer.send(b"input('name? ')\n")
        assert peer.until(b"name? ") == b""
        assert peer.ask("Bob") == "'Bob'\n"
        peer.send(b"import sys; sys.stdin.read()\n")
        peer.send(b"one\ntwo\n\x04")
        assert peer.until(b"two\\n'") == b"'one\\n"

    with_server(body)


def test_help_threads_and_memory():
    def body(server):
        peer = session(server)
        assert "Return the number of items in a container" in peer.ask("help(len)")
        assert 'The "if" statement' in peer.ask("help('if')")
        assert "Type help(object)" in peer.ask("help")
        assert "Type help(object)" in peer.ask("help()")
        shown = peer.ask("threads()")
        assert "backdoor session" in shown and "test_backdoor.py" in shown
        assert peer.ask("threads('no such thread')") == ""
        assert "backdoor session" in peer.ask("memory()")
        assert peer.ask("thread(coro.current().id) is coro.current()") == "True\n"
        assert "end this session" in peer.ask("exit")

    with_server(body)


def test_hooks_of_a_subclass():
    class Mine(backdoor.backdoor):
        def login(self):
            self.send("who? ")
            return self.read_line() == "me"

        def print_result(self, result):
            print("<", result, ">")

    def body(server):
        peer = Peer(server)
        peer.until(b"who? ")
        peer.send(b"me\n")
        peer.until(PROMPT)
        assert peer.ask("3") == "< 3 >\n"
        peer.ask("")
        stranger = Peer(server)
        stranger.until(b"who? ")
        stranger.send(b"you\n")
        assert stranger.rest() == b""

    with_server(body, client_class=Mine)


def test_any_function_serves_as_client_class():
    seen = []

    def serve_one(sock, address, welcome, names):
        seen.append((welcome, names))
        sock.send(b"bye")
        sock.close()

    def body(server):
        assert Peer(server).rest() == b"bye"

    with_server(body, client_class=serve_one, welcome_message="w")
    assert seen == [("w", {"x": 5})]


def test_large_results_arrive_whole():
    def body(server):
        peer = session(server)
        assert len(peer.ask("'y' * 3_000_000")) == 3_000_003
        assert peer.ask("print('a\\nb' * 3)") == "a\nba\nba\nb\n"
        assert peer.ask("'\\udc80'") == "'\\udc80'\n"

    with_server(body)


# -- other terminal programs


def test_telnet_commands_are_taken_out_and_answered():
    def body(server):
        peer = session(server)
        peer.send(bytes([255, 253, 3, 255, 251, 31]) + b"x" + bytes([255, 250, 31, 0, 80, 0, 24, 255, 240, 255, 241]))
        peer.send(b" + 1\r\0")
        assert peer.until(PROMPT).replace(bytes([255, 252, 3, 255, 254, 31]), b"") == b"6\r\n"
        peer.send(b"x\r\n")
        assert peer.until(PROMPT) == b"5\r\n"
        peer.send(b"x\rx\r")
        assert peer.until(PROMPT) + peer.until(PROMPT) == b"5\r\n5\r\n"

    with_server(body)


@pytest.mark.parametrize("signal", [b"\x03", bytes([255, 244]), bytes([255, 243]), _telnet.message(b"I")])
def test_interrupting_a_command(signal):
    gate = coro.event()

    def body(server):
        peer = session(server)
        peer.send(b"gate.wait()\n")
        until(lambda: gate.waiting)
        peer.send(b"forgotten\n" + signal)
        assert b"KeyboardInterrupt" in peer.until(PROMPT)
        assert peer.ask("x") == "5\n"

    with_server(body, names={"gate": gate, "x": 5})


def test_interrupting_an_unfinished_block():
    def body(server):
        peer = session(server)
        peer.send(b"if x:\n")
        peer.until(b"... ")
        peer.send(b"\x03")
        assert peer.until(PROMPT) == b"\r\nKeyboardInterrupt\r\n"
        assert peer.ask("x") == "5\n"

    with_server(body)


@pytest.mark.parametrize("end", [b"\x04", b"exit()\n", b"quit()\n", b"raise SystemExit(3)\n", bytes([255, 236])])
def test_ways_to_leave(end):
    def body(server):
        peer = session(server)
        peer.send(end)
        assert peer.rest() == b""
        assert coro.current().name != "x"

    with_server(body)


def test_commands_piped_in_are_finished_after_the_end_of_input():
    def body(server):
        peer = session(server)
        peer.send(b"coro.sleep_relative(0.02)\nprint('done')")
        peer.sock.shutdown(socket.SHUT_WR)
        assert b"done\r\n" in peer.rest()

    with_server(body)


def test_our_clients_messages():
    def body(server):
        peer = session(server)
        peer.send(_telnet.message(b"H", b"1"))
        assert peer.until(_telnet.message(b"P", b">>> ")) == _telnet.message(b"H", b"1")
        peer.send(b"x\n")
        assert peer.until(_telnet.message(b"P", b">>> ")) == b"5\n"
        for text, found in [
            ("coro.sock", b'"coro.socketpair"'),
            ("impo", b'"import"'),
            ("x.bit_l", b'["x.bit_length"]'),
        ]:
            peer.send(_telnet.message(b"C", text.encode()))
            assert found in peer.until(bytes([255, 240]))
        for text in ("1/0", "x.nothing.y", "nothing.y", "open('x').", ""):
            peer.send(_telnet.message(b"C", text.encode()))
            assert peer.until(bytes([255, 240])).startswith(bytes([255, 250, _telnet.OPTION]) + b"C[")

    with_server(body)


# -- who may come in


def test_the_default_is_a_unix_socket_that_is_ours_alone(tmp_path):
    def main():
        server = backdoor.start(global_dict={})
        assert server.address == backdoor.default_path() == str(tmp_path / "coro" / f"{os.getpid()}.backdoor")
        assert stat.S_IMODE(os.stat(server.address).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(tmp_path / "coro").st_mode) == 0o700
        server.close()
        assert not os.path.exists(server.address)

    before = os.umask(0)
    try:
        coro.run(main)
    finally:
        os.umask(before)


def test_the_mode_is_set_before_anybody_can_connect(monkeypatch, tmp_path):
    class Sock(type(coro.unix_sock())):
        def listen(self, backlog):
            modes.append(stat.S_IMODE(os.stat(tmp_path / "s").st_mode))
            super().listen(backlog)

    modes = []
    monkeypatch.setattr(_server.coro, "unix_sock", lambda: Sock(socket.AF_UNIX, socket.SOCK_STREAM))
    _server.listen_unix(str(tmp_path / "s")).close()
    assert modes == [0o600]


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "coro").mkdir(mode=0o755)
    os.chmod(tmp_path / "coro", 0o755)
    with pytest.raises(PermissionError, match="0700"):
        backdoor.default_path()
    os.rmdir(tmp_path / "coro")
    (tmp_path / "coro").symlink_to("/tmp")
    with pytest.raises(PermissionError):
        backdoor.default_path()


def test_paths_that_are_taken(tmp_path):
    path = str(tmp_path / "door")

    def body(server):
        with pytest.raises(OSError, match="somebody listens"):
            backdoor.Server(unix_path=path)
        os.unlink(path)
        other = backdoor.Server(unix_path=path)
        server.close()
        assert os.path.exists(path)  # of the other one
        other.close()

    with_server(body, unix_path=path)
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(path)
    with_server(lambda server: session(server).ask("x") == "5\n" or pytest.fail(), unix_path=path)
    (tmp_path / "door").write_text("precious")
    with pytest.raises(FileExistsError, match="something else"):
        backdoor.Server(unix_path=path)
    assert (tmp_path / "door").read_text() == "precious"


def test_tcp_outside_loopback_needs_a_token_or_tls():
    for ip in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ValueError, match="token=... or tls=..."):
            backdoor.Server(0, ip)
    with pytest.raises(ValueError):
        backdoor.Server(0, "example.org")
    for options in ({"token": "secret"}, {"tls": object()}):
        backdoor.Server(0, "0.0.0.0", **options).close()


def test_ports_are_tried_in_turn():
    one = backdoor.Server(0)
    port = one.address[1]
    assert one.address[0] == "127.0.0.1"
    with pytest.raises(OSError, match="every port of"):
        backdoor.Server(port)
    two = backdoor.Server([port, 0])
    assert two.address[1] != port
    assert _server.PORTS == range(8023, 8034)
    one.close()
    two.close()


def test_options_that_make_no_sense():
    for wrong, error in [
        ({"port": 1, "unix_path": "x"}, TypeError),
        ({"port": 0, "allow_uids": [0]}, TypeError),
        ({"allow_uids": "root"}, TypeError),
        ({"max_sessions": 0}, ValueError),
        ({"max_sessions": "1"}, TypeError),
        ({"token": ""}, ValueError),
        ({"token": b"x"}, TypeError),
        ({"token": "a\nb"}, ValueError),
        ({"client_class": 5}, TypeError),
        ({"client_class": print, "token": "x"}, TypeError),
        ({"global_dict": 5}, TypeError),
        ({"unix_path": 5}, TypeError),
    ]:
        with pytest.raises(error):
            backdoor.Server(**wrong)


def test_the_token():
    def body(server):
        peer = Peer(server)
        peer.until(b"token: ")
        peer.send("geheim-ü\n".encode())
        welcome = peer.until(PROMPT)
        assert b"Python 3." in welcome and b"geheim" not in welcome
        assert peer.ask("x") == "5\n"
        stranger = Peer(server)
        stranger.until(b"token: ")
        stranger.send(b"print('in')\nprint('in')\n")
        assert stranger.rest().endswith(b"wrong token\r\n")
        impatient = Peer(server)
        impatient.until(b"token: ")
        impatient.send(b"\x04")
        assert b"in" not in impatient.rest().replace(b"wrong token", b"")

    with_server(body, port=0, token="geheim-ü")


def test_nobody_may_take_all_day_to_log_in(monkeypatch):
    monkeypatch.setattr("coro.backdoor._session.LOGIN_SECONDS", 0.05)

    def body(server):
        peer = Peer(server)
        assert b"Python" not in peer.rest()
        assert server.sessions == 0

    with_server(body, port=0, token="secret")


@pytest.fixture
def written(monkeypatch):
    """The lines that the back door writes about refusals."""
    lines = []
    monkeypatch.setattr(_strangers, "print_stderr", lines.append)
    return lines


def log_in(server):
    peer = Peer(server)
    peer.until(b"token: ")
    peer.send(b"secret\n")
    peer.until(PROMPT)
    return peer


def test_silent_strangers_keep_no_owner_out(written):
    def body(server):
        silent = [Peer(server) for _ in range(_strangers.MAX_STRANGERS)]
        for peer in silent:
            peer.until(b"token: ")
        assert server.sessions == 0
        owner = log_in(server)
        assert owner.ask("x") == "5\n"
        assert b"Python" not in silent[0].rest()  # his place was needed
        assert server.sessions == 1
        silent[1].send(b"secret\n")
        silent[1].until(PROMPT)
        assert server.sessions == 2 and server.refused == 1
        assert written == [
            "backdoor: refused a connection of 127.0.0.1: it had shown no token when its place was needed"
        ]
        for peer in silent[2:]:
            peer.close()
        until(lambda: not len(server._strangers))

    with_server(body, port=0, token="secret", max_sessions=2)


def test_a_flood_of_strangers_leaves_nothing_behind(written):
    def body(server):
        for _ in range(20):
            peers = [socket.create_connection(server.address) for _ in range(50)]
            coro.yield_slice()
            for peer in peers:
                peer.close()
        assert log_in(server).ask("x") == "5\n"
        until(lambda: not len(server._strangers))
        until(lambda: len(server._threads) == server.sessions)
        assert server.sessions <= 1

    with_server(body, port=0, token="secret")


def test_owners_are_counted_when_they_have_shown_the_token(written):
    def body(server):
        one = log_in(server)
        late = Peer(server)
        late.until(b"token: ")
        late.send(b"secret\n")
        assert late.rest().endswith(b"1 sessions are open, and no more are allowed; close one\r\n")
        assert written == ["backdoor: refused a connection of 127.0.0.1: 1 sessions are open, and no more are allowed"]
        one.send(b"exit()\n")
        one.rest()
        until(lambda: server.sessions == 0)
        log_in(server)

    with_server(body, port=0, token="secret", max_sessions=1)


def test_wrong_tokens_are_written_and_slow_down_their_address(written, monkeypatch):
    pauses = []
    real = _strangers.Strangers.pause_of

    def pause_of(strangers, origin):
        pauses.append(real(strangers, origin))
        return min(pauses[-1], 0.001)

    monkeypatch.setattr(_strangers.Strangers, "pause_of", pause_of)

    def body(server):
        for _ in range(7):
            peer = Peer(server)
            peer.until(b"token: ")
            peer.send(b"guess\n")
            assert peer.rest().endswith(b"wrong token\r\n")
        log_in(server)

    with_server(body, port=0, token="secret")
    assert pauses == [0, 0.5, 1, 2, 4, 8, 8, 8]
    assert written == ["backdoor: refused a connection of 127.0.0.1: wrong token"] * 7


def test_who_leaves_during_the_pause_has_learnt_nothing(written, monkeypatch):
    monkeypatch.setattr(_strangers, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(_strangers, "MOST_PAUSE", 1000.0)

    def body(server):
        peer = Peer(server)
        peer.send(b"guess\n")
        peer.rest()
        for guess in (b"guess\n", b"secret\n"):
            peer = Peer(server)
            peer.until(b"token: ")
            peer.send(guess)
            until(lambda: any(one.pausing for one in server._strangers._here))
            assert server.sessions == 0
            peer.close()
            until(lambda: not len(server._strangers))
        assert server.sessions == 0

    with_server(body, port=0, token="secret")


def test_the_place_of_a_stranger(written, monkeypatch):
    """Newcomers displace the silent of the largest crowd; who waits for an answer only goes for other addresses."""
    now = [1000.0]
    monkeypatch.setattr(_strangers, "_now", lambda: now[0])
    ended = []

    def enter(ip):
        one = strangers.enter((ip, 1))
        if one is not None:
            one.end = lambda: ended.append(one)
        return one

    strangers = _strangers.Strangers(4)
    crowd = [enter("10.0.0.1") for _ in range(3)]
    owner = enter("10.0.0.2")
    crowd[0].pause()
    assert enter("10.0.0.3") is not None and ended == [crowd[1]]
    assert enter("10.0.0.3") is not None and ended == crowd[1:]
    assert len(strangers) == 4 and owner in strangers._here

    strangers = _strangers.Strangers(4)
    crowd = [enter("10.0.0.1") for _ in range(4)]
    for one in crowd:
        one.pause()
    del ended[:]
    assert enter("10.0.0.1") is None and not ended
    assert "many connections of this address" in written[-1]
    assert enter("10.0.0.2") is not None and ended == crowd[:1]
    strangers.leave(crowd[0])
    assert len(strangers) == 4


def test_addresses_are_remembered_for_a_while(written, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_strangers, "_now", lambda: now[0])
    strangers = _strangers.Strangers()
    one = strangers.enter(("2001:db8::1", 1, 0, 0))
    for _ in range(12):
        one.was_wrong()
    assert strangers.enter(("2001:db8::ffff:1", 2, 0, 0)).pause() == _strangers.MOST_PAUSE
    assert strangers.enter(("2001:db8:0:1::1", 2, 0, 0)).pause() == 0
    assert strangers.enter(("::ffff:10.0.0.1", 2, 0, 0)).origin == "10.0.0.1"
    assert [strangers.enter((ip, 2, 0, 0)).origin for ip in ("fe80::1%eth0", "::1")] == ["fe80::/64", "::1"]
    assert len(written) == _strangers.LINES  # the rest of this second is counted
    now[0] += 1
    one.was_wrong()
    assert written[-1].endswith("2001:db8::/64: wrong token (and 2 refusals before this one that have no line)")
    now[0] += _strangers.FORGET
    assert one.pause() == 0
    one.was_wrong()
    assert one.pause() == _strangers.FIRST_PAUSE
    for i in range(_strangers.ADDRESSES + 10):
        strangers.note_wrong_token(_strangers.Stranger(strangers, (f"10.1.{i >> 8}.{i & 255}", 1)))
    assert len(strangers._wrong) == _strangers.ADDRESSES


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell who is at the other end")
def test_users_may_be_chosen():
    def refused(server):
        assert b"other users" in Peer(server).rest()
        assert server.refused == 1

    with_server(refused, allow_uids=[os.getuid() + 1])
    with_server(lambda server: session(server).ask("x") == "5\n" or pytest.fail(), allow_uids=[os.getuid()])


# -- hostile clients


def test_an_endless_line_ends_the_session():
    def body(server):
        peer = session(server)
        with contextlib.suppress(OSError):
            for _ in range(40):
                peer.send(b"x" * 4096)
        assert b"without a line end" in peer.rest()
        assert session(server).ask("x") == "5\n"

    with_server(body)


def test_an_endless_message_ends_the_session():
    def body(server):
        peer = session(server)
        with contextlib.suppress(OSError):
            peer.send(bytes([255, 250]) + b"x" * 100_000)
        assert b"without a line end" in peer.rest()

    with_server(body)


@pytest.mark.slow
def test_more_lines_than_anybody_types_wait_in_the_peer():
    gate = coro.event()

    def body(server):
        peer = session(server)
        peer.send(b"gate.wait()\n")
        until(lambda: gate.waiting)
        sender = coro.spawn(peer.send, (b"#" + b"x" * 59_998 + b"\n") * 100)
        for _ in range(300):
            coro.yield_slice()
        assert not sender.dead
        gate.set()
        drain = coro.spawn(peer.rest, daemon=True)
        sender.join()
        assert session(server).ask("x") == "5\n"
        drain.shutdown()

    with_server(body, names={"gate": gate, "x": 5})


def test_binary_rubbish():
    import random

    rubbish = random.Random(4)

    def body(server):
        for _ in range(30):
            peer = Peer(server)
            reader = coro.spawn(peer.rest)
            with contextlib.suppress(OSError):
                peer.send(rubbish.randbytes(3000) + b"\n\n\n")
                peer.sock.shutdown(socket.SHUT_WR)
            reader.join()
            peer.close()
        assert session(server).ask("x") == "5\n"

    with_server(body)


def test_a_peer_that_goes_away_while_a_command_waits_or_prints():
    begun, ended = [], []

    def note():
        begun.append(1)
        try:
            coro.sleep_relative(1000)
        finally:
            ended.append("wait")

    def chatter():
        begun.append(1)
        try:
            while True:
                print("chatter " * 100)
        finally:
            ended.append("print")

    def body(server):
        for name in (b"note()\n", b"chatter()\n"):
            peer = session(server)
            peer.send(name)
            until(lambda: len(begun) > len(ended))
            peer.close()
            until(lambda: not server.sessions)

    with_server(body, names={"note": note, "chatter": chatter})
    assert sorted(ended) == ["print", "wait"]


def test_a_slow_reader_holds_up_its_own_session_only():
    def body(server):
        slow, other = session(server), session(server)
        slow.send(b"print('z' * 5_000_000)\n")
        for _ in range(20):
            assert other.ask("x") == "5\n"
        assert len(slow.until(PROMPT)) == 5_000_002

    with_server(body)


def test_a_slow_reader_does_not_hold_up_threads_that_do_real_work():
    worked = []

    def work():
        for _ in range(100):
            print("w" * 10_000)
            worked.append(1)
            coro.yield_slice()
        worked.append("done")

    def body(server):
        peer = session(server)
        peer.send(b"coro.spawn(work) and None\nprint('z' * 3_000_000)\n")
        until(lambda: "done" in worked)
        assert b"characters of other threads were dropped" in peer.until(b"this terminal is too slow")

    with_server(body, names={"work": work})


def test_a_client_that_completes_without_end():
    def body(server):
        peer = session(server)
        flood = coro.spawn(peer.send, _telnet.message(b"C", b"coro.") * 20_000, daemon=True)
        for _ in range(300):
            coro.yield_slice()
        assert not flood.dead  # our side has stopped reading until the peer reads
        assert session(server).ask("x") == "5\n"
        peer.close()

    with_server(body)


def test_no_more_sessions_than_allowed():
    def body(server):
        one, two = session(server), session(server)
        assert b"no more are allowed" in Peer(server).rest()
        one.send(b"exit()\n")
        one.rest()
        until(lambda: server.sessions == 1)
        assert session(server).ask("x") == "5\n"
        assert two.ask("x") == "5\n"
        assert server.refused == 1

    with_server(body, max_sessions=2)


@pytest.mark.slow
def test_a_thousand_sessions_at_once():
    def body(server):
        peers = [Peer(server) for _ in range(1000)]
        for peer in peers:
            peer.until(PROMPT)
        assert server.sessions == 1000
        for number, peer in enumerate(peers):
            peer.send(f"x + {number}\n".encode())
        for number, peer in enumerate(peers):
            assert peer.until(PROMPT) == f"{number + 5}\r\n".encode()
        for peer in peers:
            peer.close()
        until(lambda: not server.sessions)

    from coro import limits

    limits.raise_open_files(4096)
    with coro_limit(60):
        with_server(body, max_sessions=1000, port=0)


@contextlib.contextmanager
def coro_limit(seconds):
    global LIMIT
    LIMIT, before = seconds, LIMIT
    try:
        yield
    finally:
        LIMIT = before


def test_interruptions_without_end():
    gate = coro.event()

    def body(server):
        peer = session(server)
        peer.send(b"gate.wait()\n")
        until(lambda: gate.waiting)
        peer.send(b"\x03" * 3000)
        peer.send(b"\x03" * 3000 + b"\nx + 37\n")
        peer.until(b"42")

    with_server(body, names={"gate": gate, "x": 5})


# -- the end


def test_sessions_keep_no_loop_from_ending_and_end_with_it():
    assert ok(
        """
        import coro, sys, os
        from coro import backdoor

        def main():
            server = backdoor.start(unix_path="door", global_dict={})
            peer = coro.unix_sock()
            peer.connect("door")
            peer.recv(1)
            peer.send(b"coro.sleep_relative(1000)\\n")
            coro.sleep_relative(0.01)

        coro.spawn(main)
        coro.set_print_exit_string(False)
        coro.event_loop()
        print(type(sys.stdout).__name__, os.path.exists("door"))
        """
    ) == ["TextIOWrapper False"]


def test_serve_runs_in_the_calling_thread(tmp_path):
    path = str(tmp_path / "door")

    def main():
        thread = coro.spawn(backdoor.serve, unix_path=path, global_dict={"x": 1})
        coro.yield_slice()
        peer = coro.unix_sock()
        peer.connect(path)
        assert peer.recv(6) == b"Python"
        thread.shutdown()
        thread.join()
        assert not os.path.exists(path)
        assert peer.read(10**6) is not None
        peer.close()

    coro.run(main)
