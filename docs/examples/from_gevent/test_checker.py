"""python -m pytest -p coro.testing.pytest_plugin test_checker.py"""

from __future__ import annotations

import pytest
from checker_coro import PATIENCE, Answers, check

import coro
from coro import testing


def answer_of(target: str) -> str:
    answers = Answers(1)
    check(target, answers)
    return answers.get()[1]


@pytest.mark.coro
def test_one_that_speaks_first() -> None:
    def greet(conn: coro.sock, address: object) -> None:
        conn.send(b"220 ready\r\n")

    with coro.Server(greet, ("127.0.0.1", 0)) as server:
        assert answer_of(f"127.0.0.1:{server.addresses[0][1]}") == "220 ready"


@pytest.mark.coro
def test_one_that_says_nothing(coro_autojump_clock: testing.virtual_clock) -> None:
    def be_silent(conn: coro.sock, address: object) -> None:
        conn.recv(1)

    with coro.Server(be_silent, ("127.0.0.1", 0)) as server:
        assert answer_of(f"127.0.0.1:{server.addresses[0][1]}") == "no answer"
    assert coro_autojump_clock.elapsed == pytest.approx(PATIENCE)


@pytest.mark.coro
def test_nobody() -> None:
    with coro.tcp_sock() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        assert "refused" in answer_of(f"127.0.0.1:{reserved.getsockname()[1]}").lower()
