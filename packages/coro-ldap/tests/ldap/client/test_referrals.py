"""Referrals of servers that mean no good: without an end, in circles, to more and more places; and where they meet."""

from __future__ import annotations

import pytest
from ldap_client_support import Conversation, Scripted, in_loop
from real_programs.running import HOST

from coro.ldap import Referrals
from coro.ldap.exceptions import ReferralError, ReferralReceived
from coro.ldap.protocol import (
    CompareRequest,
    Message,
    SearchRequest,
    SearchResultReference,
    UnbindRequest,
)


class Referring(Scripted):
    """Answers everything with `where(base)`: URLs, by continuation for searches or as the result of any operation.

    `asked` has the names that were asked for, in order.
    """

    def __init__(self, where, continued: bool = False) -> None:
        super().__init__(self.talk)
        self.where, self.continued = where, continued
        self.asked: list[str] = []

    def talk(self, peer: Conversation) -> None:
        while (request := peer.next()) is not None and not isinstance(request.op, UnbindRequest):
            op = request.op
            assert isinstance(op, (SearchRequest, CompareRequest))
            name = op.base if isinstance(op, SearchRequest) else op.dn
            self.asked.append(name)
            urls = [url.format(port=self.port) for url in self.where(name)]
            if isinstance(op, SearchRequest) and self.continued:
                peer.entry(request, name)
                for url in urls:
                    peer.send(Message(request.id, SearchResultReference((url,))))
                peer.answer(request)
            elif urls:
                peer.answer(request, 10, referrals=tuple(urls))
            else:
                peer.answer(request, 6 if isinstance(op, CompareRequest) else 0)


def deeper(name: str) -> list[str]:
    return [f"ldap://{HOST}:{{port}}/cn={int(name[3:] or 0) + 1}"]


@pytest.mark.parametrize("continued", [False, True])
def test_ten_one_after_the_other(continued: bool) -> None:
    @in_loop
    def run() -> None:
        with Referring(deeper, continued) as server, server.client(referrals=Referrals()) as client:
            found = []
            with pytest.raises(ReferralError, match="at most 10 referrals one after the other"):
                for entry in client.search_iter("cn=0"):
                    found.append(entry.dn)
            assert server.asked == [f"cn={n}" for n in range(11)]
            assert found == (server.asked if continued else [])
            del server.asked[:]
            if not continued:
                with pytest.raises(ReferralError, match="at most 10"):
                    client.compare("cn=0", "cn", "x")
                assert server.asked == [f"cn={n}" for n in range(11)]
                with pytest.raises(ReferralError, match="at most 2 "):
                    list(client.search_iter("cn=0", referrals=Referrals(depth=2)))
            # All over one more connection, which is closed afterwards.
            assert len(server.conversations) <= 5

    run()


def test_a_circle_ends() -> None:
    @in_loop
    def run() -> None:
        def there(name: str) -> list[str]:
            return [f"ldap://{HOST}:{{port}}/cn={'b' if name == 'cn=a' else 'a'}"]

        with Referring(there) as server, server.client(referrals=Referrals()) as client:
            with pytest.raises(ReferralError, match="visited already"):
                client.compare("cn=a", "cn", "x")
            assert server.asked == ["cn=a", "cn=b", "cn=a"]
            with pytest.raises(ReferralError, match="visited already"):
                list(client.search_iter("cn=a"))

    run()


def test_what_two_parts_of_a_directory_refer_to_is_read_once() -> None:
    """Two continuations that lead to the same third place, and one that leads back: each is searched once."""
    parts = {"cn=a": ["b", "c"], "cn=b": ["d"], "cn=c": ["d", "b"], "cn=d": ["b"]}

    @in_loop
    def run() -> None:
        def there(name: str) -> list[str]:
            return [f"ldap://{HOST}:{{port}}/cn={part}" for part in parts[name]]

        with Referring(there, True) as server, server.client(referrals=Referrals()) as client:
            assert [entry.dn for entry in client.search_iter("cn=a")] == ["cn=a", "cn=b", "cn=d", "cn=c"]

    run()


def test_the_next_of_several_places_if_one_is_not_there() -> None:
    @in_loop
    def run() -> None:
        with Scripted() as target:
            urls = ["ldap://directory.1/cn=b", f"ldap://{HOST}:1/cn=b", f"{target.url}/cn=b"]
            with Referring(lambda name: urls) as server, server.client(referrals=Referrals()) as client:
                assert [entry.dn for entry in client.search_iter("cn=a")] == ["cn=x"]
                del urls[2]
                with pytest.raises(ReferralError, match="'directory.1' is neither .*; .* cannot connect"):
                    list(client.search_iter("cn=a"))

    run()


def test_no_more_servers_than_allowed() -> None:
    @in_loop
    def run() -> None:
        with Referring(lambda name: []) as one, Referring(lambda name: []) as two:
            with Referring(
                lambda name: [f"ldap://{HOST}:{port}/cn=x" for port in (one.port, two.port)], True
            ) as server:
                with server.client(referrals=Referrals(servers=1)) as client:
                    with pytest.raises(ReferralError, match="at most 1 other servers"):
                        list(client.search_iter("cn=a"))

    run()


def test_where_nobody_may_go() -> None:
    """UNIX sockets of this machine, URLs without a host, other schemes and what is no URL are not followed."""

    @in_loop
    def run() -> None:
        urls = ["ldapi://%2Frun%2Fx/cn=a", "ldap:///cn=a", "http://127.0.0.1/", "ldap://[", "\0"]
        with Referring(lambda name: urls) as server:
            with server.client(referrals=Referrals()) as client:
                with pytest.raises(ReferralError) as caught:
                    client.compare("cn=a", "cn", "x")
                assert str(caught.value).count("not allowed") == len(urls)
            with server.client() as client, pytest.raises(ReferralReceived) as received:
                client.compare("cn=a", "cn", "x")
            assert list(received.value.result.referrals) == urls

    run()
