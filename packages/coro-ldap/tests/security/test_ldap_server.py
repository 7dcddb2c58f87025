"""What hostile clients send to the LDAP server: it stays up, its memory stays bounded, and others are served."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

import pytest
from ldap_server_support import (
    ADMIN,
    BASE,
    PASSWORD,
    Bare,
    Ours,
    bind_request,
    control,
    entries,
    replace_request,
    search_request,
)

from coro.asn1 import ber
from coro.ldap._wire import encode_message

pytestmark = pytest.mark.slow
FRED = f"uid=u1,ou=people,{BASE}"


@pytest.fixture(scope="module")
def server() -> Iterator[Ours]:
    with Ours(entries(400)) as running:
        yield running


@pytest.fixture(autouse=True)
def still_serves(server: Ours) -> Iterator[None]:
    yield
    with Bare(server.port) as client:
        assert client.ask(bind_request(ADMIN, PASSWORD))[0] == 0
        assert len(client.search("(uid=u7)")[1]) == 1


def ended(client: Bare) -> int | None:
    """The code of the notice of disconnection, None if there was none, when the server has closed the connection."""
    code = None
    try:
        while True:
            identity, tag, content = client.receive()
            if identity == 0:
                assert tag == 24
                code = content[0]
    except (EOFError, ConnectionResetError):
        return code


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("3084ffffffff"),
        bytes.fromhex("30847fffffff0201"),
        bytes.fromhex("3080020101"),
        bytes.fromhex("30050201004200"),
        bytes.fromhex("3003020100"),
        encode_message(0, bind_request()),
        encode_message(1, ber.APPLICATION(4, True, b"")),
        encode_message(1, ber.APPLICATION(30, True, b"")),
        bytes.fromhex("30820400") + b"\x30\x80" * 512,
    ],
)
def test_no_ldap_gets_a_notice(server: Ours, data: bytes) -> None:
    with Bare(server.port) as client:
        client.sock.sendall(data)
        assert ended(client) == 2


def test_deep_filters(server: Ours) -> None:
    with Bare(server.port) as client:
        client.ask(bind_request(ADMIN, PASSWORD))
        deep = b"\x87\x01a"
        for _ in range(45):
            deep = ber.CONTEXT(2, True, deep)
        assert client.ask(search_request(deep))[0] == 2
        for _ in range(5000):
            deep = ber.CONTEXT(2, True, deep)
        client.send(search_request(deep))
        assert ended(client) == 2


def test_wide_filters(server: Ours) -> None:
    with Bare(server.port) as client:
        client.ask(bind_request(ADMIN, PASSWORD))
        assert client.ask(search_request(ber.CONTEXT(1, True, b"\x87\x01a" * 5000)))[0] == 2
        pieces = ber.SEQUENCE(*[ber.CONTEXT(1, False, b"x")] * 5000)
        assert client.ask(search_request(ber.CONTEXT(4, True, ber.OCTET_STRING(b"cn") + pieces)))[0] == 2


def test_a_message_that_is_too_long(server: Ours) -> None:
    with Bare(server.port) as client:
        client.sock.sendall(bytes.fromhex("308400200000020101"))
        assert ended(client) == 2


def test_unknown_critical_control(server: Ours) -> None:
    with Bare(server.port) as client:
        assert client.ask(bind_request(ADMIN, PASSWORD), control("1.2.3", True))[0] == 12
        assert client.ask(search_request(), control("1.2.3", True))[0] == 12
        assert client.ask(bind_request(ADMIN, PASSWORD), control("1.2.3", False))[0] == 0


def test_empty_password_is_no_login(server: Ours) -> None:
    with Bare(server.port) as client:
        assert client.ask(bind_request(ADMIN, ""))[0] == 53
        assert client.ask(bind_request(FRED, ""))[0] == 53
        assert client.search()[0] == 32


def test_a_failed_login_ends_the_one_before(server: Ours) -> None:
    with Bare(server.port) as client:
        assert client.ask(bind_request(ADMIN, PASSWORD))[0] == 0
        assert client.ask(bind_request(FRED, "wrong"))[0] == 49
        assert client.ask(replace_request(FRED, "sn", "x"))[0] in (32, 50)


def test_guessing_ends(server: Ours) -> None:
    with Bare(server.port) as client:
        for _ in range(10):
            assert client.ask(bind_request(FRED, "wrong"))[0] == 49
        assert ended(client) == 8


def test_users_cannot_change_others(server: Ours) -> None:
    with Bare(server.port) as client:
        assert client.ask(bind_request(FRED, "pw1"))[0] == 0
        assert client.ask(replace_request(f"uid=u2,ou=people,{BASE}", "userPassword", "x"))[0] == 50
        assert client.ask(replace_request(FRED, "uid", "admin"))[0] == 50
        assert client.ask(ber.APPLICATION(10, False, FRED.encode()))[0] == 50
        compare = ber.SEQUENCE(ber.OCTET_STRING(b"userPassword"), ber.OCTET_STRING(b"pw2"))
        other = ber.OCTET_STRING(f"uid=u2,ou=people,{BASE}".encode())
        assert client.ask(ber.APPLICATION(14, True, other + compare))[0] == 50


def test_a_used_id(server: Ours) -> None:
    with Bare(server.port) as client:
        client.ask(bind_request(ADMIN, PASSWORD))
        one = encode_message(9, replace_request(FRED, "title", "x"))
        client.sock.sendall(one + one)
        assert ended(client) == 2


def test_too_many_at_a_time(server: Ours) -> None:
    with Bare(server.port) as client:
        client.ask(bind_request(ADMIN, PASSWORD))
        change = replace_request(FRED, "title", "y")
        client.sock.sendall(b"".join(encode_message(number, change) for number in range(100, 400)))
        codes = [client.receive()[2][0] for _ in range(300)]
        assert set(codes) <= {0, 51} and codes.count(0) >= 64


def test_a_client_that_does_not_read(server: Ours) -> None:
    """It holds its own operations up, and nobody else's."""
    with Bare(server.port) as slow:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.ask(bind_request(ADMIN, PASSWORD))
        for _ in range(60):
            slow.send(search_request("(objectClass=*)"))
        with Bare(server.port) as other:
            other.ask(bind_request(ADMIN, PASSWORD))
            for number in range(20):
                assert len(other.search(f"(uid=u{number})")[1]) == 1


def test_cookies_of_others(server: Ours) -> None:
    with Bare(server.port) as client:
        client.ask(bind_request(ADMIN, PASSWORD))
        value = ber.SEQUENCE(ber.INTEGER(5), ber.OCTET_STRING(os.urandom(8)))
        assert client.ask(search_request(), control("1.2.840.113556.1.4.319", True, value))[0] == 53
        for wrong in (b"", b"\x30\x00", b"\x30\x03\x02\x01\x05", ber.SEQUENCE(ber.INTEGER(-1), ber.OCTET_STRING(b""))):
            assert client.ask(search_request(), control("1.2.840.113556.1.4.319", True, wrong))[0] == 2


def test_starttls_without_a_certificate(server: Ours) -> None:
    request = ber.APPLICATION(23, True, ber.CONTEXT(0, False, b"1.3.6.1.4.1.1466.20037"))
    with Bare(server.port) as client:
        assert client.ask(request)[0] == 52
        client.sock.sendall(encode_message(70, request) + encode_message(71, bind_request(ADMIN, PASSWORD)))
        assert ended(client) == 2


def test_damaged_requests(server: Ours) -> None:
    """Random damage gives an answer or the end of the connection, never silence and never a fault."""
    random.seed(3)
    whole = [
        encode_message(1, bind_request(ADMIN, PASSWORD)),
        encode_message(1, search_request("(&(cn=a*b*c)(!(sn:dn:caseExactMatch:=x))(uid>=1))", names=("cn", "*"))),
        encode_message(1, replace_request(FRED, "sn", "x")),
        encode_message(1, search_request(), control("1.2.840.113556.1.4.319", False, b"\x30\x05\x02\x01\x01\x04\x00")),
    ]
    for _ in range(300):
        data = bytearray(random.choice(whole))
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(2, len(data))] = random.randrange(256)
        with Bare(server.port) as client:
            client.sock.sendall(data)
            client.sock.shutdown(socket.SHUT_WR)
            ended(client)
    assert "Traceback" not in server.log_tail(10_000)
