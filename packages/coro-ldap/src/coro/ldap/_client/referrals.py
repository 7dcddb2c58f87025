"""Following referrals and search continuations to other servers (RFC 4511, 4.1.10 and 4.5.3), only when asked to.

A referral is a request of one server to go to another one, so it is a way to make a client connect anywhere.  The
policy says where it may go, how deep, to how many servers, and how to log in there.  Nothing of this connection's login
is ever sent on.  A URL is visited once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import coro
from coro.ldap._client.search import Item
from coro.ldap._wire import Entry
from coro.ldap.exceptions import LDAPError, ReferralError, ReferralReceived, URLError
from coro.ldap.protocol import (
    AddRequest,
    CompareRequest,
    Control,
    DelRequest,
    ModifyDNRequest,
    ModifyRequest,
    Operation,
    Result,
    SearchRequest,
    SearchResultReference,
)
from coro.ldap.url import LDAPUrl

if TYPE_CHECKING:
    from coro.ldap.client import client

__all__ = ["Referrals"]


@dataclass(frozen=True)
class Referrals:
    """Whether and how other servers are asked.

    depth: referrals one after the other at most.  servers: connections at most for one operation.  allow: called with
    the `LDAPUrl`; False for one that is not to be followed.  Without it, ldap and ldaps URLs are, and ldapi is not.
    bind: called with the new connection and the URL to log in; without it nobody is logged in there.  tls: a TLS
    context for ldaps; None for the one of the connection.
    """

    depth: int = 10
    servers: int = 16
    allow: Callable[[LDAPUrl], bool] | None = None
    bind: Callable[[client, LDAPUrl], object] | None = None
    tls: Any = None


class Chase:
    """What one operation has visited, and its connections.  Close it at the end."""

    def __init__(self, origin: client, policy: Referrals) -> None:
        self._origin = origin
        self._policy = policy
        self._seen: set[str] = set()
        self._clients: dict[tuple[str, str, int], client] = {}

    def close(self) -> None:
        """Close the connections to other servers."""
        clients, self._clients = self._clients, {}
        for one in clients.values():
            one.close()

    def _usable(self, text: str) -> LDAPUrl | None:
        """The URL if the policy lets it be followed."""
        try:
            url = LDAPUrl(text)
        except URLError:
            return None
        allow = self._policy.allow
        if not (url.urlscheme != "ldapi" if allow is None else allow(url)):
            return None
        return url if url.host else None

    def _client(self, url: LDAPUrl) -> client:
        key = (url.urlscheme, url.host.lower(), url.port)
        found = self._clients.get(key)
        if found is not None and found.alive:
            return found
        if len(self._clients) >= self._policy.servers:
            raise ReferralError(f"expected at most {self._policy.servers} other servers for one operation, got more")
        made = self._origin._other(url, self._policy.tls)
        try:
            if self._policy.bind is not None:
                self._policy.bind(made, url)
        except BaseException:
            made.close()
            raise
        self._clients[key] = made
        return made

    def _choose(
        self, urls: Sequence[str], depth: int, doing: str, once: bool = False
    ) -> Iterator[tuple[client, LDAPUrl]]:
        """A connection for the first of these equivalent URLs that can be reached.

        doing: what is asked for there, beside what the URL says.  once: there is none if that was done already.
        """
        reasons = []
        for text in urls:
            url = self._usable(text)
            if url is None:
                reasons.append(f"{text:.200}: not allowed")
                continue
            key = f"{doing} {url.urlscheme} {url.host.lower()} {url.port} {text.partition('//')[2].partition('/')[2]}"
            if key in self._seen:
                if once:
                    return
                reasons.append(f"{text:.200}: visited already")
                continue
            if depth >= self._policy.depth:
                raise ReferralError(
                    f"expected at most {self._policy.depth} referrals one after the other, got another one"
                )
            self._seen.add(key)
            try:
                yield self._client(url), url
                return
            except ReferralError:
                raise
            except (LDAPError, OSError, coro.NameError) as exc:
                reasons.append(f"{text:.200}: {exc}")
        raise ReferralError("no referral could be followed: " + ("; ".join(reasons) or "there is no URL"))

    def operation(
        self, op: Operation, urls: Sequence[str], controls: Sequence[Control], timeout: float | None, depth: int = 0
    ) -> Result:
        """The result of an operation at the first of these URLs that can be reached."""
        for there, url in self._choose(urls, depth, type(op).__name__):
            moved = _moved(op, url)
            try:
                result: Result = there.operation(moved, controls, timeout)
                return result
            except ReferralReceived as exc:
                return self.operation(moved, exc.result.referrals, controls, timeout, depth + 1)
        raise ReferralError("no referral could be followed")

    def search(
        self,
        request: SearchRequest,
        urls: Sequence[str],
        controls: Sequence[Any],
        options: dict[str, Any],
        depth: int = 0,
        continued: bool = False,
    ) -> Iterator[Entry]:
        """The entries of a search at the first of these URLs that can be reached, and of those that it names.

        continued: the URLs are a continuation, not the result.  Parts of a directory may lead to the same other part,
        or back: that is searched once.
        """
        doing = f"search {continued} {request.scope} {request.filter!s}"
        for there, url in self._choose(urls, depth, doing, continued):
            moved = replace(request, base=url.dn or request.base)
            if url.scope is not None:
                moved.scope = url.scope
            elif continued and request.scope == 1:
                moved.scope = 0  # RFC 4511, 4.5.3.1: one level below the base is the entry that the URL names
            if url.filterstr:
                moved.filter = url.filterstr
            try:
                item: Item
                for item in there._items(moved, controls, **options):
                    if isinstance(item, SearchResultReference):
                        yield from self.search(moved, item.urls, controls, options, depth + 1, True)
                    elif isinstance(item, Entry):
                        yield item
            except ReferralReceived as exc:
                yield from self.search(moved, exc.result.referrals, controls, options, depth + 1)
            return


def _moved(op: Operation, url: LDAPUrl) -> Operation:
    """The operation for the entry that a URL names, if it names one (RFC 4511, 4.1.10)."""
    if url.dn and isinstance(op, (AddRequest, CompareRequest, DelRequest, ModifyDNRequest, ModifyRequest)):
        return replace(op, dn=url.dn)
    return op
