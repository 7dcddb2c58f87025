"""What a client is told of an error, and what the log says of it."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from http_support import in_loop, messages, serving, talk

import coro
from coro import http
from coro.http.exceptions import HTTPException

GET = b"GET %b HTTP/1.1\r\nHost: a\r\n%b\r\n"


@in_loop
@pytest.mark.parametrize("added", ["x\r\ny: z", "\x00", "\r\n\r\n<script>"])
def test_an_impossible_field_that_was_added_costs_no_answer(added: str) -> None:
    """Whoever added it, and whatever the handler does then; and it is not sent."""

    def plain(request: Any) -> str:
        request.add_header("x-page", added)
        return "ok"

    def classic(request: Any) -> str:
        request["x-page"] = added
        return "ok"

    def missing(request: Any) -> str:
        request.add_header("x-page", added)
        raise HTTPException(404)

    def raised(request: Any) -> str:
        raise HTTPException(400, headers=[("x-page", added)])

    def streams(request: Any) -> Any:
        request.add_header("x-page", added)
        return iter([b"a", b"b"])

    for handler in (plain, classic, missing, raised, streams):
        with serving(handler) as server:
            answers = messages(talk(server, GET % (b"/", b"") * 2))
        assert [(status, body) for status, _, body in answers] == [(500, b"Internal Server Error\n")] * 2, handler
        for _, fields, _ in answers:
            assert "x-page" not in fields and "y" not in fields


@in_loop
@pytest.mark.parametrize("impossible", [(5, "x"), (None, "x"), 7, ("a",)])
def test_an_impossible_pair_costs_no_answer(impossible: Any) -> None:
    """Whatever is in the place of a field, and when the error itself cannot be written."""

    def added(request: Any) -> str:
        pair = impossible if isinstance(impossible, tuple) else (impossible,)
        request.add_header(pair[0], pair[-1] if pair[0] != "a" else 5.0)
        return "ok"

    def raised(request: Any) -> str:
        raise HTTPException(404, headers=[impossible])

    def wordless(request: Any) -> str:
        raise HTTPException(404, "\udc80")

    for handler in (added, raised, wordless):
        with serving(handler) as server:
            answers = messages(talk(server, GET % (b"/", b"") * 2))
        assert [(status, body) for status, _, body in answers] == [(500, b"Internal Server Error\n")] * 2, handler


def failing() -> http.App:
    app = http.App()

    @app.get("/fails")
    def fails(request: Any) -> str:
        raise ZeroDivisionError("secret")

    @app.get("/teapot")
    def teapot(request: Any) -> str:
        raise HTTPException(418, "short and \u00fcber")

    @app.post("/json")
    def takes(request: Any) -> Any:
        return request.json()

    return app


@in_loop
@pytest.mark.parametrize(
    ("fields", "in_json"),
    [
        (b"", False),
        (b"Accept: */*\r\n", False),
        (b"Accept: application/json\r\n", True),
        (b"Accept: application/json, text/plain, */*\r\n", False),
        (b"Accept: application/json, text/plain;q=0.5, */*\r\n", True),
        (b"Accept: application/vnd.api+json\r\n", True),
        (b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n", False),
        (b"Accept: application/json;q=x\r\n", False),
        (b"Accept: text/html;q=0.1, application/problem+json\r\n", True),
        (b"Accept: " + b"a," * 4000 + b"application/json\r\n", False),
    ],
)
def test_clients_of_json_get_errors_in_json(fields: bytes, in_json: bool) -> None:
    """Problem details, RFC 9457, from an App."""
    with serving(failing()) as server:
        for path, status, detail in (
            (b"/none", 404, "Not Found"),
            (b"/fails", 500, "Internal Server Error"),
            (b"/teapot", 418, "short and \u00fcber"),
        ):
            ((got, answered, body),) = messages(talk(server, GET % (path, fields)))
            assert got == status
            if in_json:
                assert answered["content-type"] == ["application/problem+json"]
                problem = json.loads(body)
                assert (problem["status"], problem["detail"]) == (status, detail)
            else:
                assert answered["content-type"] == ["text/plain; charset=utf-8"]
                assert body.decode() == detail + "\n"


@in_loop
def test_who_sends_json_and_takes_everything_takes_json() -> None:
    request = (
        b"POST /json HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{"
    )
    with serving(failing()) as server:
        ((status, fields, body),) = messages(talk(server, request))
    assert (status, fields["content-type"]) == (400, ["application/problem+json"])
    assert "JSON" in json.loads(body)["detail"]


@in_loop
def test_a_handler_that_is_no_app_answers_in_text() -> None:
    with serving(lambda request: 1 / 0) as server:
        ((_, fields, _),) = messages(talk(server, GET % (b"/", b"Accept: application/json\r\n")))
    assert fields["content-type"] == ["text/plain; charset=utf-8"]


# -- the log


@contextmanager
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What goes to stderr, in a program that has not configured ``logging``; pytest has, anew for each test."""
    from coro._runtime import output
    from coro.log import _loggers

    found = io.StringIO()
    monkeypatch.setattr(output, "saved_stderr", found)
    monkeypatch.setattr(_loggers, "_original_stderr", found)
    monkeypatch.setattr(logging.root, "handlers", [])
    yield found
    monkeypatch.undo()


def test_a_failure_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, where nothing else is configured; an event is a line."""

    @in_loop
    def run() -> None:
        with serving(failing()) as server:
            talk(server, GET % (b"/fails?\x1b[31m".replace(b"\x1b", b"%1b"), b""))
            talk(server, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")

    with written(monkeypatch) as said:
        run()
    lines = said.getvalue().splitlines()
    assert "http handlers: error <request from" in lines[0] and "GET /fails" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
    assert "ZeroDivisionError: secret" in lines[2:-1]
    assert any(line.strip().startswith("File ") and "in fails" in line for line in lines)
    assert "refused" in lines[-1]


def test_a_failure_goes_to_logging_if_the_program_has_configured_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coro._runtime import output

    said = io.StringIO()
    monkeypatch.setattr(output, "saved_stderr", said)

    @in_loop
    def run() -> None:
        with serving(failing()) as server:
            talk(server, GET % (b"/fails", b""))
            talk(server, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")

    run()
    failure, refused = caplog.records
    assert (failure.name, failure.levelname) == ("coro.http.handlers", "ERROR")
    assert failure.exc_info and failure.exc_info[0] is ZeroDivisionError
    assert (refused.name, refused.levelname) == ("coro.http", "WARNING")
    assert "refused" in refused.getMessage() and "\n" not in refused.getMessage()
    assert said.getvalue() == ""


def test_a_logger_of_coro_s_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    class Records:
        def __init__(self) -> None:
            self.all: list[Any] = []

        def log(self, *data: Any) -> None:
            self.all.append(data)

    @in_loop
    def run() -> None:
        with serving(failing()) as server:
            talk(server, GET % (b"/fails", b""))

    records = Records()
    before = coro.log.set_logger(records)
    try:
        run()
    finally:
        coro.log.set_logger(before)
    assert [data[:2] for data in records.all] == [("http handlers", "error"), ("http handlers", "exception")]
    assert caplog.records == []


def test_an_endless_traceback_is_cut_and_controls_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from coro.http._reports import LONGEST_TRACEBACK, Reports

    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("\x1b[31m" + "x" * 100_000)
        deep(n - 1)

    report = Reports("http test", "coro.http.test.nobody")

    @in_loop
    def run() -> None:
        try:
            deep(300)
        except ValueError as e:
            report.failure(e, "deep\x1b", "line\nbreak")

    with written(monkeypatch) as said:
        run()
    text = said.getvalue()
    assert len(text) < LONGEST_TRACEBACK + 1000
    assert "\x1b" not in text and "line\\nbreak" in text.splitlines()[0]
    assert sys.exc_info() == (None, None, None)
