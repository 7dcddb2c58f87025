"""What is written about exceptions that nobody has caught."""

import io
import os
import re
import sys
import types

import pytest

import coro
from coro import log
from coro._introspection import failures
from coro._runtime import output

DATE = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
VARIABLES = ("NO_COLOR", "FORCE_COLOR", "PYTHON_COLORS", "TERM")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    """What coro writes to; the default notifier and its memory as they are at the start of a program."""
    stream = io.StringIO()
    monkeypatch.setattr(output, "saved_stderr", stream)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = coro.set_exception_notifier(None)
    failures._seen.clear()
    yield stream
    failures._seen.clear()
    coro.set_exception_notifier(before)


@pytest.fixture
def clock(monkeypatch):
    """A list with the time that the notifier believes in."""
    now = [1000.0]
    monkeypatch.setattr(failures, "time", types.SimpleNamespace(monotonic=lambda: now[0], ctime=lambda: "now"))
    return now


def failing(exc):
    raise exc


def run(*calls, name="mine"):
    """Let a thread make each call; what they raise is the notifier's affair."""

    def main():
        for function, *args in calls:
            coro.spawn(function, *args, thread_name=name).join()

    coro.run(main)


def blocks(stream):
    return re.split(r"^(?=Exception in )", stream.getvalue(), flags=re.MULTILINE)[1:]


def test_a_block_is_a_normal_traceback_below_a_line_about_the_thread(stderr):
    run((failing, ValueError("text")))
    line = failing.__code__.co_firstlineno + 1
    assert re.fullmatch(
        rf"Exception in thread \d+ 'mine', {DATE}:\n"
        r"Traceback \(most recent call last\):\n"
        rf'  File "{re.escape(__file__)}", line {line}, in failing\n'
        r"    raise exc\n"
        r"ValueError: text\n",
        stderr.getvalue(),
    ), stderr.getvalue()


def test_an_exception_without_a_frame_keeps_its_type_and_text(stderr):
    def two(a, b):
        """Called with one."""

    run((two, 1))
    text = stderr.getvalue()
    assert re.match(rf"Exception in thread \d+ 'mine', {DATE}:\n  \(no line of Python was running: ", text)
    assert text.endswith("two() missing 1 required positional argument: 'b'\n")
    assert "TypeError: " in text


def test_notes_causes_and_groups_are_shown_as_python_shows_them(stderr):
    def fails():
        try:
            failing(KeyError("cause"))
        except KeyError as e:
            late = ValueError("late")
            late.add_note("a note")
            raise late from e

    def grouped():
        with coro.group() as g:
            g.spawn(failing, OSError("in a group"))

    run((fails,), (grouped,))
    first, second = blocks(stderr)
    assert "KeyError: 'cause'\n\nThe above exception was the direct cause of" in first
    assert first.endswith("ValueError: late\na note\n")
    assert "ExceptionGroup: 1 failure in a coro.group (1 sub-exception)" in second
    assert "    | OSError: in a group\n" in second


def test_data_sends_nothing_to_the_terminal(stderr):
    evil = ValueError("\x1b]0;title\x07\r\x9b31m\u2028\ud800")
    evil.add_note("\x1b[31mred")
    run((failing, evil), name="\x1b[2J\nException in thread 1")
    text = stderr.getvalue()
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    assert r"ValueError: \x1b]0;title\x07\r\x9b31m\u2028\ud800" in text
    assert len(blocks(stderr)) == 1


def test_data_begins_no_block(stderr):
    forged = f"x\nException in thread 1 'main', now:\n3:\t{DATE} lie\n"
    noted = ValueError("y")
    noted.add_note(forged)
    run((failing, ValueError(forged)), (failing, noted))
    assert len(blocks(stderr)) == 2
    assert stderr.getvalue().count("\n  Exception in thread 1 'main', now:\n  3:\t") == 2


def test_an_exit_says_what_ends_the_program(stderr):
    run((failing, SystemExit(3)))
    assert stderr.getvalue().endswith(
        "SystemExit: 3\n(sys.exit() ends a thread only; coro.set_exit(code) ends the program's loop)\n"
    )


def test_an_exception_that_cannot_be_printed(stderr):
    class Bad(Exception):
        def __str__(self):
            raise KeyError("inside")

    run((failing, Bad()))
    assert "Bad: <exception str() failed>\n" in stderr.getvalue()


@pytest.mark.parametrize("inside", [KeyboardInterrupt, SystemExit, coro.Shutdown, GeneratorExit])
@pytest.mark.parametrize("notifier", [None, coro.compact_exception_notifier])
def test_whatever_its_text_raises_an_exception_is_told_of(stderr, inside, notifier):
    class Bad(Exception):
        def __str__(self):
            raise inside

    before = coro.set_exception_notifier(notifier)
    try:
        run((failing, Bad()))
    finally:
        coro.set_exception_notifier(before)
    what = "<exception str() failed>" if notifier is None else f"<unprintable Bad: str() raised {inside.__name__}>"
    assert what in stderr.getvalue()


def test_where_a_block_cannot_be_made_a_line_is_written(stderr, monkeypatch):
    def no_memory(exc):
        raise MemoryError

    monkeypatch.setattr(failures, "_block", no_memory)
    run((failing, ValueError("text")))
    assert re.fullmatch(rf"\d+:\t{DATE} thread \d+ \(mine\): error \(.*ValueError.*'text'.*\)\n", stderr.getvalue())


# ------------------------------------------------------------------------------------------------ colours


@pytest.mark.skipif(sys.version_info < (3, 13), reason="tracebacks have no colours before Python 3.13")
@pytest.mark.parametrize(
    ("terminal", "variables", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"PYTHON_COLORS": "0", "FORCE_COLOR": "1"}, False),
        (False, {"PYTHON_COLORS": "1", "NO_COLOR": "1"}, True),
    ],
)
def test_colours_where_python_has_them(stderr, monkeypatch, terminal, variables, colours):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(output, "saved_stderr", stream)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run((failing, ValueError("te\x07xt\nException in x")))
    text = stream.getvalue()
    assert ("\x1b[" in text) == colours
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "ValueError: te\\x07xt\n  Exception in x\n" in plain


@pytest.mark.skipif(sys.version_info < (3, 13), reason="tracebacks have no colours before Python 3.13")
def test_no_colours_where_the_data_have_their_own(stderr, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    run((failing, ValueError("\x1b[31mred")))
    assert "\x1b" not in stderr.getvalue()


def test_before_colours_nobody_asks_for_a_terminal(stderr, monkeypatch):
    monkeypatch.setattr(output, "saved_stderr", Terminal())
    monkeypatch.setattr(failures, "_HAS_COLOURS", False)
    run((failing, ValueError("text")))
    assert "\x1b" not in output.saved_stderr.getvalue()


# ------------------------------------------------------------------------------------------------ again and again


def test_the_same_exception_is_counted_after_a_while(stderr, clock):
    def main():
        for n in range(8):
            coro.spawn(failing, ValueError(n)).join()
        assert len(blocks(stderr)) == failures.MOST
        assert blocks(stderr)[-1].endswith("(more of this kind are only counted for 10 seconds)\n")
        coro.spawn(failing, KeyError("another kind")).join()
        assert len(blocks(stderr)) == failures.MOST + 1
        clock[0] += failures.WINDOW
        stderr.seek(0)
        stderr.truncate()
        coro.spawn(failing, ValueError("again")).join()
        told = stderr.getvalue()
        words = "3 more exceptions of this kind not printed: ValueError in failing (introspection/test_failures.py:"
        assert f" {words}" in told
        assert len(blocks(stderr)) == 1

    coro.run(main)


def test_the_count_is_told_at_the_end_of_the_loop(stderr, clock):
    run(*[(failing, ValueError)] * (failures.MOST + 1))
    assert stderr.getvalue().splitlines()[-1].endswith(
        f"1 more exception of this kind not printed: ValueError in failing "
        f"(introspection/test_failures.py:{failing.__code__.co_firstlineno + 1})"
    )
    assert failures._seen == {}


def test_kinds_differ_by_type_place_cause_and_members(stderr, clock):
    def caused(cause):
        raise ValueError from (cause and cause("why"))

    def grouped(exc):
        raise ExceptionGroup("many", [exc("one")])

    kinds = [
        (failing, ValueError),
        (failing, KeyError),
        (caused, None),
        (caused, KeyError),
        (grouped, ValueError),
        (grouped, KeyError),
    ]

    def main():
        for function, *args in kinds * failures.MOST:
            coro.spawn(function, *args).join()
        assert len(failures._seen) == len(kinds)
        assert len(blocks(stderr)) == len(kinds) * failures.MOST

    coro.run(main)


def test_few_kinds_are_remembered(stderr, clock):
    def main():
        for n in range(failures.KINDS * 2):
            coro.spawn(failing, type(f"Kind{n}", (Exception,), {})()).join()
        assert len(failures._seen) == failures.KINDS

    coro.run(main)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # workers of tests before this one
def test_a_forked_child_tells_no_counts_of_its_parent(stderr, clock):
    def main():
        for _ in range(failures.MOST + 1):
            coro.spawn(failing, ValueError).join()
        if os.fork() == 0:
            os._exit(len(failures._seen))
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

    coro.run(main)


# ------------------------------------------------------------------------------------------------ one line


def test_the_line_is_an_option(stderr):
    coro.set_exception_notifier(coro.compact_exception_notifier)
    try:
        run((failing, ValueError("a 'text'\n")), name="two\nlines")
    finally:
        coro.set_exception_notifier(None)
    place = rf"\[introspection/test_failures.py failing\|{failing.__code__.co_firstlineno + 1}\]"
    assert re.fullmatch(
        rf"""\d+:\t{DATE} thread \d+ \(two\\nlines\): error """
        rf"""\('{place}', "<class 'ValueError'>", "a 'text'\\n", '{place}'\)\n""",
        stderr.getvalue(),
    ), stderr.getvalue()


def test_logs_get_the_line(stderr):
    records = []
    before = log.set_logger(types.SimpleNamespace(log=lambda *data: records.append(data)))
    try:
        with log.redirect_stderr():
            run((failing, ValueError("text")))
    finally:
        log.set_logger(before)
    [(facility, line)] = records
    assert facility == "stderr"
    assert re.match(rf"\d+:\t{DATE} thread \d+ \(mine\): error \('", line)
    assert stderr.getvalue() == ""


def test_a_notifier_that_fails_is_one_line_where_lines_are_records(stderr):
    stderr._lines_are_records = True

    def broken():
        failing(KeyError("of the notifier"))

    coro.set_exception_notifier(broken)
    run((failing, ValueError("what failed")))
    of_the_notifier, what_failed = stderr.getvalue().splitlines()
    assert "the exception notifier " in of_the_notifier and "broken has failed: error" in of_the_notifier
    assert "of the notifier" in of_the_notifier and "what failed" in what_failed


def test_a_notifier_of_compiled_code_that_fails(stderr):
    coro.set_exception_notifier([].pop)
    run((failing, ValueError("what failed")))
    head, error, *what_failed = stderr.getvalue().splitlines()
    assert "exception notifier list.pop, called in thread " in head
    assert error == "IndexError: pop from empty list"
    assert what_failed[0].startswith("Exception in thread ") and what_failed[-1] == "ValueError: what failed"
