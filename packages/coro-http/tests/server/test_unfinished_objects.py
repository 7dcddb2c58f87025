"""Connections that were not made as they should be, or are used twice."""

from __future__ import annotations

from typing import Any

import http_samples
import pytest
from http_support import in_loop, serving, talk

from coro.http import _connection, h1, ws
from coro.http.exceptions import LocalError

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@in_loop
def test_a_connection_whose_init_was_not_called() -> None:
    class Mine(_connection.connection):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"super\(\).__init__\(\)"):
        Mine().run()


@in_loop
def test_a_connection_that_is_being_served_is_not_served_again() -> None:
    refused: list[str] = []

    def handler(request: Any) -> str:
        with pytest.raises(RuntimeError, match=r"run\(\) is called once") as e:
            request.client.run()
        refused.append(str(e.value))
        return "x"

    with serving(handler) as server:
        assert talk(server, GET).endswith(b"x")
        assert len(refused) == 1


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (http_samples.connection, lambda: (None, http_samples.Stream(), None, http_samples.registry())),
        (http_samples.websocket, lambda: (http_samples.Stream(), ws.Codec("server"))),
        (http_samples.codec, lambda: ("server",)),
    ],
)
@in_loop
def test_what_was_initialised_is_not_initialised_again(make: Any, arguments: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be initialised twice: make a new one"):
        make().__init__(*arguments())


def test_a_codec_that_was_refused_can_be_initialised() -> None:
    made = ws.Codec.__new__(ws.Codec)
    with pytest.raises(LocalError, match="the role"):
        made.__init__("neither")
    made.__init__("server")
    assert made.role == "server"


def test_a_piece_of_nothing() -> None:
    with pytest.raises(TypeError):
        h1.Data(None)
