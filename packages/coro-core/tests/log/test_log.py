"""Facilities and loggers: what a record looks like, where it goes, and what happens when that place fails."""

import contextlib
import io
import logging
import os
import re
import socket
import sys
import threading

import pytest
from support import ok

import coro
from coro import log
from coro.log import bridge


class Kept:
    """A logger that keeps the records."""

    def __init__(self):
        self.records = []

    def log(self, *data):
        self.records.append(data)


@pytest.fixture
def kept():
    logger = Kept()
    before = log.set_logger(logger)
    yield logger.records
    assert log.set_logger(before) is logger


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d "


def test_records_are_items(kept):
    log.log("a", 1, None)
    mailer = log.Facility("mailer")
    mailer("sent", b"x")
    log.NoFacility()("bare")
    assert kept == [("a", 1, None), ("mailer", "sent", b"x"), ("bare",)]
    assert repr(mailer) == "Facility('mailer')"
    with pytest.raises(TypeError, match="name is a str"):
        log.Facility(5)


def test_exceptions(kept):
    try:
        raise KeyError("k")
    except KeyError:
        log.Facility("f").exc()
        log.NoFacility().exc()
    (name, word, (kind, text, places)), bare = kept
    assert (name, word, kind, text) == ("f", "exception", "<class 'KeyError'>", "'k'")
    assert places[-1][1] == "test_exceptions"
    assert bare == (word, (kind, text, places[:-1] + [(places[-1][0], places[-1][1], places[-1][2])]))


def test_set_logger():
    one = Kept()
    before = log.set_logger(one)
    assert log.get_logger() is one
    assert log.set_logger(before) is one
    with pytest.raises(TypeError, match="with a method log"):
        log.set_logger(print)


def test_the_lines_of_a_file(tmp_path):
    class Bad:
        def __repr__(self):
            raise RuntimeError

    out = io.StringIO()
    logger = log.FileLogger(out)
    logger.log("text", 1.5, b"\xff", "two\nlines\x1b[31m\x85\u2028", Bad(), 10**5000)
    logger.log()
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(
        STAMP + r"'text' 1\.5 b'\\xff' 'two\\nlines\\x1b\[31m\\x85\\u2028' "
        r"<unprintable Bad: repr\(\) raised RuntimeError> <unprintable int: repr\(\) raised ValueError>",
        first,
    )
    assert re.fullmatch(STAMP, second)
    path = tmp_path / "log"
    for _ in range(2):
        logger = log.FileLogger(path)
        logger.log("ä", "\ud800")
        logger.close()
    assert re.fullmatch(f"({STAMP}'ä' '\\\\ud800'\n){{2}}", path.read_text("utf-8"))
    with pytest.raises(TypeError, match="text file or a path"):
        log.FileLogger(5)


def test_a_repr_cannot_begin_a_line_of_its_own():
    class Forger:
        def __repr__(self):
            return "x\n2026-01-01T00:00:00 'forged'\r\x00"

    out = io.StringIO()
    log.FileLogger(out).log(Forger())
    assert out.getvalue().count("\n") == 1 and "\r" not in out.getvalue()


def test_stderr_is_the_default():
    out = ok(
        """
        import sys
        from coro import log
        assert type(log.get_logger()) is log.StderrLogger
        sys.stderr = sys.stdout
        import coro
        log._loggers._original_stderr = sys.stdout
        log.log("x", 1)
        log.get_logger().log("y")
        sys.stdout.flush()
        """
    )
    assert [line[20:] for line in out] == ["'x' 1", "'y'"]


def test_several_loggers_at_once():
    class Broken:
        def log(self, *data):
            raise OSError("full")

    one, two = Kept(), Kept()
    combo = log.ComboLogger(one, Broken(), two)
    with pytest.raises(OSError, match="full"):
        combo.log("x")
    assert one.records == two.records == [("x",)]
    with pytest.raises(TypeError):
        log.ComboLogger(5)


# -- syslog


class Daemon:
    def __init__(self, path, size=None):
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)
        self.sock.setblocking(False)

    def receive(self):
        return self.sock.recv(65536)

    def end(self):
        self.sock.close()
        os.unlink(self.path)


def test_syslog_and_a_daemon_that_restarts(tmp_path):
    daemon = Daemon(tmp_path / "log")
    logger = log.SysLogger(daemon.path, facility=17, level=3)
    logger.log("a", 1)
    assert daemon.receive() == b"<139>'a' 1\0"
    daemon.end()
    logger.log("nobody hears this")
    assert logger.lost == 1
    daemon = Daemon(tmp_path / "log")
    logger.log("b")
    assert daemon.receive() == b"<139>'b'\0"
    logger.log("x" * 100_000)
    long = daemon.receive()
    assert len(long) == 8192 and long.endswith(b"x\0")
    daemon.end()
    daemon = Daemon(tmp_path / "log")
    logger.log("c")
    assert daemon.receive() == b"<139>'c'\0"
    logger.close()
    daemon.end()
    for wrong in ({"facility": 24}, {"level": 8}):
        with pytest.raises(ValueError):
            log.SysLogger(**wrong)
    assert log.SysLogger().path


def test_a_syslog_daemon_that_does_not_keep_up_loses_records_and_stops_nobody(tmp_path):
    daemon = Daemon(tmp_path / "log")
    logger = log.SysLogger(daemon.path)
    for n in range(3000):
        logger.log(n)
    assert 0 < logger.lost < 3000
    assert daemon.receive() == b"<134>0\0"
    logger.close()
    daemon.end()


# -- Background


def test_background_keeps_order_and_does_not_wait(leaves_nothing):
    class Slow(io.StringIO):
        threads = set()

        def write(self, text):
            self.threads.add(threading.get_ident())
            gate.wait(60)
            return super().write(text)

    gate = threading.Event()
    out = Slow()

    def main():
        logger = log.FileLogger(log.Background(out))
        for n in range(50):
            logger.log(n)
            coro.yield_slice()
        assert out.getvalue() == ""
        gate.set()
        while out.getvalue().count("\n") < 50:
            coro.sleep_relative(0.005)

    coro.run(main)
    assert [int(line[20:]) for line in out.getvalue().splitlines()] == list(range(50))
    assert threading.get_ident() not in out.threads


def test_background_drops_what_does_not_fit_and_says_so(leaves_nothing):
    gate = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text):
            gate.wait(60)
            return super().write(text)

    out = Stuck()

    def main():
        background = log.Background(out, limit=1000)
        logger = log.FileLogger(background)
        for n in range(200):
            logger.log(n)
            coro.yield_slice()
        assert background.lost > 100
        gate.set()
        while background._size:
            coro.sleep_relative(0.005)
        logger.log("after")
        while "after" not in out.getvalue():
            coro.sleep_relative(0.005)
        return background.lost

    lost = coro.run(main)
    kept = [line for line in out.getvalue().splitlines() if re.fullmatch(STAMP + r"\d+", line)]
    assert len(kept) == 200 - lost
    assert f"[{lost} records were lost: the log's file is too slow]" in out.getvalue()


def test_background_without_a_loop_at_its_end_and_from_other_os_threads(leaves_nothing):
    out = io.BytesIO()
    background = log.Background(out)
    background.write(b"without ")

    def main():
        background.write(b"last words")

    coro.run(main)
    assert out.getvalue() == b"without last words"

    def other():
        def write():
            background.write(b" other")

        thread = threading.Thread(target=write)
        thread.start()
        coro.in_thread(thread.join)
        while not out.getvalue().endswith(b"other"):
            coro.sleep_relative(0.005)

    coro.run(other)
    broken = log.Background(io.StringIO())
    broken.f.close()
    broken.write("x")
    assert broken.errors == 1
    with pytest.raises(TypeError):
        log.Background(5)


# -- stderr


def test_redirecting_stderr(kept):
    before = sys.stderr, coro._runtime.output.saved_stderr
    with log.redirect_stderr() as redirector:
        assert sys.stderr is redirector
        print("one\ntwo", file=sys.stderr)
        print("half", end="", file=sys.stderr)
        assert kept == [("stderr", "one"), ("stderr", "two")]
        coro.write_stderr(" line\n")
        coro.print_stderr("from coro")
        with pytest.raises(TypeError):
            sys.stderr.write(b"x")
        sys.stderr.write("unfinished")
    assert (sys.stderr, coro._runtime.output.saved_stderr) == before
    assert kept[2] == ("stderr", "half line")
    assert kept[3][1].endswith("from coro")
    assert kept[4] == ("stderr", "unfinished")
    sys.stderr.write("")
    assert len(kept) == 5


def test_a_logger_that_writes_to_stderr_does_not_come_back(capsys):
    class Loud:
        def log(self, *data):
            print("logging", data, file=sys.stderr)
            raise OSError

    before = log.set_logger(Loud())
    try:
        with log.redirect_stderr() as redirector:
            redirector.write("x\n")
            redirector.write("y" * 100_000)
            assert redirector._line == ""
    finally:
        log.set_logger(before)


# -- logging


def test_the_bridge_from_logging(kept):
    logger = logging.Logger("app")
    handler = bridge.Handler()
    logger.addHandler(handler)
    logger.info("%s sent", 5)
    try:
        raise ValueError("v")
    except ValueError:
        logger.exception("failed")
    handler.setFormatter(logging.Formatter("<%(message)s>"))
    logger.warning("x")
    assert kept[0] == ("app", "INFO", "5 sent")
    assert kept[1][:3] == ("app", "ERROR", "failed") and kept[1][3][1] == "v"
    assert kept[2] == ("app", "WARNING", "<x>")


def test_the_bridge_to_logging_and_both_at_once(caplog):
    target = bridge.LoggingLogger("coro.test", "WARNING")
    before = log.set_logger(target)
    handler = bridge.Handler()
    logging.getLogger().addHandler(handler)
    try:
        log.log("a", 1)
        logging.getLogger("other").error("b")
    finally:
        logging.getLogger().removeHandler(handler)
        log.set_logger(before)
    assert caplog.record_tuples == [("coro.test", logging.WARNING, "'a' 1"), ("other", logging.ERROR, "b")]
    with pytest.raises(TypeError, match="a level"):
        bridge.LoggingLogger("x", "LOUD")


def test_a_logger_that_fails_is_loggings_affair(monkeypatch):
    class Broken:
        def log(self, *data):
            raise OSError

    before = log.set_logger(Broken())
    seen = []
    handler = bridge.Handler()
    monkeypatch.setattr(handler, "handleError", seen.append)
    logger = logging.Logger("app")
    logger.addHandler(handler)
    with contextlib.suppress(OSError):
        logger.error("x")
    log.set_logger(before)
    assert len(seen) == 1
