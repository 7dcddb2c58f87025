"""``Client``: from a call to a response. Builds the request, finds its way, follows redirects, answers challenges,
tries again, and reads the body.

The layers, from the outside in; each calls the next:

* ``request`` and ``stream`` build a Request and hold the total limit around all that follows;
* ``_followed`` follows redirects and minds the cookies;
* ``_answered`` adds credentials and answers a challenge, once;
* ``_tried`` tries again what may be tried again;
* ``_sent`` takes a link from the pool, and turns what comes into a Response.

What belongs to one origin stays with it (RFC 9110 section 15.4, and CVE-2018-18074, CVE-2018-1000007, CVE-2023-32681,
CVE-2024-37891 of other clients): credentials, cookies of the caller and other fields that carry secrets are sent to the
origin that the caller named, and are gone after a redirect to another one, in which scheme and port count as well. They
do not come back when a later redirect leads home.

This file is long because the layers share the state of one call; what stands by itself is in the other rooms.

The shortest way, a GET without options over a connection that is open, is a function of its own, ``_quick``: it does
the same with a head that was made before. Cost: see the benchmarks; most of it are the two system calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from time import time
from types import TracebackType
from typing import Any, Self

from coro._clock import ticks
from coro._entry.connect import connect
from coro._runtime import scheduler
from coro.exceptions import ResolverNameError, TimeoutError
from coro.http import h1
from coro.http._client import decoding, urls
from coro.http._client.auth import Auth, BasicAuth, as_auth
from coro.http._client.fast import Plan, quick
from coro.http._client.fields import Headers, HeaderTypes
from coro.http._client.limits import DEFAULT_TIMEOUT, Limits, Retries, Timeout, as_retries, as_timeout
from coro.http._client.links import BodySource, Link
from coro.http._client.messages import Request, Response
from coro.http._client.multipart import Files, make_body
from coro.http._client.pool import Pool, PoolStatistics
from coro.http._client.proxies import Proxies, connect_through, proxy_fields
from coro.http._client.urls import URL, Params
from coro.http.cookie_jar import CookieJar
from coro.http.exceptions import (
    ConnectError,
    ConnectTimeout,
    DeadlineExceeded,
    HTTPError,
    LocalError,
    ReadError,
    ReadTimeout,
    RequestError,
    TooManyRedirects,
    WriteError,
    WriteTimeout,
)

__all__ = ["SENSITIVE", "USER_AGENT", "Client"]

USER_AGENT = "coro-http/0.1"
#: Fields that are not sent to another origin after a redirect, whoever set them.
SENSITIVE = frozenset(
    {
        "authorization",
        "cookie",
        "cookie2",
        "proxy-authorization",
        "www-authenticate",
        "api-key",
        "x-api-key",
        "x-auth-token",
        "x-access-token",
        "x-csrf-token",
        "x-xsrf-token",
    }
)
#: Fields that describe a body, which go when a redirect drops it.
_ABOUT_BODY = (
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-location",
    "transfer-encoding",
    "digest",
    "last-modified",
    "expect",
)
#: Bytes of a body that are read to keep the connection before a redirect is followed or a challenge answered.
DRAINED = 65_536
#: URLs whose requests are kept ready.
MOST_PLANS = 1024
_HOOKS = ("request", "response")

Hooks = Mapping[str, Callable[[Any], object] | Iterable[Callable[[Any], object]]]


class _Unset:
    def __repr__(self) -> str:
        return "the client's"


UNSET: Any = _Unset()


def _default_tls() -> Any:
    """Certificates verified against the system's store, host names checked, HTTP/1.1 by ALPN. Loaded once."""
    global _tls
    if _tls is None:
        import ssl

        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        _tls = context
    return _tls


_tls: Any = None


class Client:
    """Asks servers, keeps connections and cookies, and can be used by many threads at once::

        with Client(base_url="https://api.example.org/v1") as api:
            user = api.get("/user/7").raise_for_status().json()
            api.post("/user", json={"name": "Ada"})
            with api.stream("GET", "/export") as response:
                for block in response.iter_bytes():
                    ...

    base_url: what URLs without a scheme are appended to. Client-wide credentials and secret headers then go to its
    origin only. headers, params: for all requests; those of a call replace the ones of the same name. cookies: a
    ``CookieJar``, a mapping of cookies for the host of ``base_url``, or False to keep none; a jar of its own if None.
    auth: an ``Auth``, ``(user, password)`` for Basic, or a token for Bearer. timeout: a ``Timeout``, or the total in
    seconds; None for no limits. limits: a ``Limits``. retries: a ``Retries``, or how often to try again.
    follow_redirects: whether to; max_redirects: how many. proxy: see ``Proxies``. tls: an ``ssl.SSLContext``, a context
    with ``wrap()`` as coro-ssl has, or None for verified certificates and host names. unix: path of a UNIX socket to
    connect to instead of the URL's host. source_address: a numeric address to connect from. hooks: ``{"request":
    function of the Request, "response": function of the Response}``, or lists of such; each attempt that is sent and
    each response that comes passes through them, redirects included. decompress: whether to ask for compressed bodies
    and to unpack them. connector: a function of a URL that returns a connected stream in place of the network.
    transport: a function of a Request that returns a Response in place of connections; see ``coro.http.testing``.

    It verifies, follows, unpacks and limits by default. It reads no file or variable unless told to (proxy="env").
    TypeError, ValueError and LocalError for malformed arguments.
    """

    def __init__(
        self,
        *,
        base_url: str | URL | None = None,
        headers: HeaderTypes | None = None,
        params: Params | None = None,
        cookies: CookieJar | Mapping[str, str] | bool | None = None,
        auth: Auth | tuple[str, str] | str | None = None,
        timeout: Timeout | float | None = DEFAULT_TIMEOUT,
        limits: Limits | None = None,
        retries: Retries | int | None = None,
        follow_redirects: bool = True,
        max_redirects: int = 10,
        proxy: Any = None,
        tls: Any = None,
        unix: str | None = None,
        source_address: Any = None,
        hooks: Hooks | None = None,
        decompress: bool = True,
        connector: Callable[[URL], Any] | None = None,
        transport: Callable[[Request], Response] | None = None,
    ) -> None:
        self._plans: dict[Any, Plan] = {}
        self._base = None if base_url is None else urls.parse(base_url)
        self.headers = Headers({"User-Agent": USER_AGENT, "Accept": "*/*"})
        if decompress:
            self.headers["Accept-Encoding"] = decoding.accepted()
        self.headers.replace(headers)
        self.params = params
        self.auth = as_auth(auth)
        if self.auth is None and self._base is not None and self._base.userinfo is not None:
            self.auth = BasicAuth(*self._base.userinfo)
        self.timeout = as_timeout(timeout)
        self.limits = Limits() if limits is None else limits
        self.retries = as_retries(retries)
        self.follow_redirects = follow_redirects
        self.max_redirects = max_redirects
        self.proxies = Proxies(proxy)
        self.cookies: CookieJar | None = self._jar(cookies)
        self.hooks: dict[str, list[Callable[[Any], object]]] = {name: [] for name in _HOOKS}
        for name, given in (hooks or {}).items():
            if name not in _HOOKS:
                raise ValueError(f"expected hooks for 'request' and 'response', not for {name!r}")
            self.hooks[name] += [given] if callable(given) else list(given)
        self._tls = tls
        self._tls_context: Any = None
        self._unix = unix
        self._source = source_address
        self._decompress = decompress
        self._connector = connector
        self._transport = transport
        self.pool = Pool(self.limits)

    def _jar(self, cookies: Any) -> CookieJar | None:
        if cookies is False:
            return None
        if isinstance(cookies, CookieJar):
            return cookies
        jar = CookieJar()
        if cookies is not None and cookies is not True:
            if self._base is None:
                raise ValueError("cookies without a CookieJar are for the host of base_url, which is missing")
            for name, value in cookies.items():
                jar.set(name, value, host=self._base.host)
        return jar

    def __repr__(self) -> str:
        s = self.pool.statistics()
        where = f" for {self._base}" if self._base is not None else ""
        return f"<Client{where}: {s.used} connections in use, {s.idle} idle>"

    def statistics(self) -> PoolStatistics:
        """The state of its connections."""
        return self.pool.statistics()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when their responses end. Further requests are refused.
        Closing twice is no error."""
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- calls

    def get(self, url: str | URL, **options: Any) -> Response:
        """``request("GET", url, **options)``."""
        if options:
            return self.request("GET", url, **options)
        plan = self._plans.get(url)
        if plan is None or plan.version != self.headers._version or self.hooks["request"] or self.hooks["response"]:
            response = self.request("GET", url)
            self._note_plan(url)
            return response
        return self._quick(plan)

    def head(self, url: str | URL, **options: Any) -> Response:
        """``request("HEAD", url, **options)``."""
        return self.request("HEAD", url, **options)

    def options(self, url: str | URL, **options: Any) -> Response:
        """``request("OPTIONS", url, **options)``."""
        return self.request("OPTIONS", url, **options)

    def delete(self, url: str | URL, **options: Any) -> Response:
        """``request("DELETE", url, **options)``."""
        return self.request("DELETE", url, **options)

    def post(self, url: str | URL, content: Any = None, **options: Any) -> Response:
        """``request("POST", url, content=content, **options)``."""
        return self.request("POST", url, content=content, **options)

    def put(self, url: str | URL, content: Any = None, **options: Any) -> Response:
        """``request("PUT", url, content=content, **options)``."""
        return self.request("PUT", url, content=content, **options)

    def patch(self, url: str | URL, content: Any = None, **options: Any) -> Response:
        """``request("PATCH", url, content=content, **options)``."""
        return self.request("PATCH", url, content=content, **options)

    def request(
        self,
        method: str,
        url: str | URL,
        *,
        params: Params | None = None,
        headers: HeaderTypes | None = None,
        content: Any = None,
        data: Any = None,
        json: Any = UNSET,
        files: Files | None = None,
        cookies: Mapping[str, str] | None = None,
        auth: Auth | tuple[str, str] | str | None = UNSET,
        timeout: Timeout | float | None = UNSET,
        follow_redirects: bool | None = None,
        retries: Retries | int | None = UNSET,
        expect_continue: bool = False,
    ) -> Response:
        """Send a request and return the response with its body.

        method: such as "GET". url: absolute, or what ``base_url`` is the beginning of. params: appended to the query,
        see ``URL``. headers: beside the client's, in the place of those of the same name; a value of None leaves one
        out. content: the body as bytes, str, a path, a file opened in binary mode, or an iterable of bytes, which is
        sent chunked unless the headers have its Content-Length. json: a value that is sent as JSON. data: a mapping or
        pairs for a form; with files, which is a mapping or pairs from names of fields to bytes, paths, open files,
        ``(file name, content)`` or ``(file name, content, content type)``, as multipart/form-data. cookies: for this
        request alone. auth, timeout, retries, follow_redirects: in the place of the client's. expect_continue: ask the
        server whether it wants the body before it is sent (RFC 9110 section 10.1.1).

        Any status is a result: see ``Response.raise_for_status``.

        Raises RequestError and its kinds when there is no response: ConnectError, ReadError, WriteError, ProxyError,
        TooManyRedirects, UnsupportedURL; those that are timeouts are also ``TimeoutError``: PoolTimeout,
        ConnectTimeout, ReadTimeout, WriteTimeout, DeadlineExceeded. RemoteError and its kinds when the server does not
        speak HTTP as it should: IncompleteError, LimitError, DecodeError, BombError. LocalError, TypeError and
        ValueError for arguments that make no request. coro.NameError is the cause of a ConnectError for a name that has
        no address.
        """
        request = self.build(
            method,
            url,
            params=params,
            headers=headers,
            content=content,
            data=data,
            json=json,
            files=files,
            cookies=cookies,
        )
        return self.send(
            request,
            auth=auth,
            timeout=timeout,
            follow_redirects=follow_redirects,
            retries=retries,
            expect_continue=expect_continue,
        )

    @contextmanager
    def stream(self, method: str, url: str | URL, **options: Any) -> Iterator[Response]:
        """For a ``with`` block: a response whose body is still on its way, to be read in pieces.

        The arguments are those of ``request``. The total limit holds for the body only if this call or the client names
        it: by default a download may take as long as it makes progress. Leaving the block closes the response.
        """
        sending = {name: options.pop(name) for name in _SENDING if name in options}
        response = self.send(self.build(method, url, **options), stream=True, **sending)
        try:
            yield response
        finally:
            response.close()

    def build(
        self,
        method: str,
        url: str | URL,
        *,
        params: Params | None = None,
        headers: HeaderTypes | None = None,
        content: Any = None,
        data: Any = None,
        json: Any = UNSET,
        files: Files | None = None,
        cookies: Mapping[str, str] | None = None,
    ) -> Request:
        """The Request that the arguments of ``request`` describe, to be changed and passed to ``send``."""
        where = self._where(url)
        if self.params:
            where = urls.with_params(where, self.params)
        if params:
            where = urls.with_params(where, params)
        fields = self.headers.copy()
        if self._base is not None and where.origin != self._base.origin:
            fields.discard(*SENSITIVE)
        fields.replace(headers)
        has_json = json is not UNSET
        body = make_body(content, data, None if json is UNSET else json, files, has_json=has_json)
        request = Request(_method(method), where, fields, body)
        if body is not None and body.content_type is not None and "content-type" not in fields:
            fields["Content-Type"] = body.content_type
        if cookies:
            jar = CookieJar()
            for name, value in cookies.items():
                jar.set(name, value, host=where.host)
            fields.add("Cookie", jar.header(where))
        return request

    def _where(self, url: str | URL) -> URL:
        base = self._base
        if base is not None and isinstance(url, str) and not urls._SCHEME.match(url):
            if url.startswith("//"):
                return urls.join(base, url)
            path, mark, rest = url.partition("?")
            joint = base.path.rstrip("/") + "/" + path.lstrip("/") if path else base.path
            target, fragment = urls._target(joint + mark + rest)
            urls._check_text(url)
            return URL(base.scheme, base.host, base.port, target, None, fragment)
        return urls.parse(url)

    # -- the short way

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if not name.startswith("_"):
            # What was made ready may not be right any more.
            object.__setattr__(self, "_plans", {})

    def _note_plan(self, url: str | URL) -> None:
        """Make ready what a later ``get`` of this URL sends, if nothing has to be decided anew each time."""
        if (
            not isinstance(url, str)
            or self.auth is not None
            or self._transport is not None
            or self.proxies
            or self.retries.attempts > 1
            or not self.retries.stale
            or "GET" not in self.retries.methods
        ):
            return
        request = self.build("GET", url)
        where = request.url
        if where.userinfo is not None or "cookie" in request.headers or "content-length" in request.headers:
            return
        if "connection" in request.headers or "expect" in request.headers or "upgrade" in request.headers:
            return
        request.headers._fields.insert(0, ("host", "Host", where.authority))
        head = h1.Connection(h1.CLIENT).request(b"GET", where.target.encode("ascii"), request.headers._raw())
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        self._plans[url] = Plan(
            (where.scheme, where.host, where.port),
            head,
            request,
            self.headers._version,
            self.timeout.read,
            self.timeout.total,
            self.limits.body,
        )

    def _quick(self, plan: Plan) -> Response:
        jar = self.cookies
        head = plan.head
        if jar is not None and jar._hosts and (line := jar.header(plan.request.url)):
            head = head[:-2] + b"Cookie: " + line.encode("latin-1") + b"\r\n\r\n"
        response = quick(self.pool, plan, head, Response)
        if not isinstance(response, Response):
            if response is None:
                return self.request("GET", plan.request.url)
            response = self._continued(plan, *response)
        if jar is not None and response._head.get(b"set-cookie") is not None:
            jar.extract(plan.request.url, response.headers.get_list("set-cookie"))
        if 300 <= response.status < 400 and self.follow_redirects and response.is_redirect:
            return self._sent_within(plan.request.copy(), self._plain_call(), False, response)
        return response

    def _plain_call(self) -> _Call:
        return _Call(None, self.timeout, self.retries, self.follow_redirects, False)

    def _continued(self, plan: Plan, link: Link, head: Any, held: Sequence[bytes]) -> Response:
        """Go on where the short way ended, in the middle of a response."""
        request, timeout = plan.request.copy(), self.timeout
        seconds = timeout.total
        scope = scheduler.timeout(1e9 if seconds is None else seconds)
        try:
            with scope:
                try:
                    if head is None:
                        head = link.head(timeout.read)
                    response = self._response(request, link, head, None, timeout, held)
                except BaseException:
                    self.pool.give_back(link, False)
                    raise
                response.read()
                return response
        except TimeoutError:
            if not scope.expired:
                raise
            raise self._too_late(request, seconds) from None

    # -- sending

    def send(
        self,
        request: Request,
        *,
        stream: bool = False,
        auth: Auth | tuple[str, str] | str | None = UNSET,
        timeout: Timeout | float | None = UNSET,
        follow_redirects: bool | None = None,
        retries: Retries | int | None = UNSET,
        expect_continue: bool = False,
    ) -> Response:
        """Send a Request of ``build``. stream: return when the head is there, and leave the body to be read; close the
        response then. The other arguments, and what is raised, are those of ``request``."""
        limits = self.timeout if timeout is UNSET else as_timeout(timeout)
        credentials = self._credentials(request) if auth is UNSET else as_auth(auth)
        if credentials is None and request.url.userinfo is not None and auth is UNSET:
            credentials = BasicAuth(*request.url.userinfo)
        call = _Call(
            credentials,
            limits,
            self.retries if retries is UNSET else as_retries(retries),
            self.follow_redirects if follow_redirects is None else follow_redirects,
            expect_continue,
        )
        return self._sent_within(request, call, stream, None)

    def _too_late(self, request: Request, total: float | None) -> DeadlineExceeded:
        return DeadlineExceeded(f"{request.method} {request.url} took longer than its total limit of {total:g} seconds")

    def _sent_within(self, request: Request, call: _Call, stream: bool, first: Response | None) -> Response:
        """Everything, within the total limit. first: the response, if there is one already."""
        total = call.timeout.total
        if total is None:
            return self._whole(request, call, stream, first)
        began = ticks.get_now()
        scope = scheduler.timeout(total)
        try:
            with scope:
                response = self._whole(request, call, stream, first)
        except TimeoutError:
            if not scope.expired:
                raise
            raise self._too_late(request, total) from None
        source = response._source
        if source is not None and call.timeout is not DEFAULT_TIMEOUT:
            source.deadline = began + int(min(total, 1e9) * ticks.ticks_per_sec)
        return response

    def _credentials(self, request: Request) -> Auth | None:
        """The client's, unless they belong to another origin."""
        if self._base is not None and request.url.origin != self._base.origin:
            return None
        return self.auth

    def _whole(self, request: Request, call: _Call, stream: bool, first: Response | None) -> Response:
        response = self._followed(request, call, first)
        if not stream:
            try:
                response.read()
            except BaseException:
                response.close()
                raise
        return response

    def _followed(self, request: Request, call: _Call, first: Response | None) -> Response:
        history: list[Response] = []
        while True:
            response = self._answered(request, call) if first is None else first
            first = None
            if history:
                response.history = history.copy()
            if not call.follow or not response.is_redirect:
                return response
            try:
                if len(history) >= self.max_redirects:
                    raise TooManyRedirects(
                        f"more than {self.max_redirects} redirects; the last leads from {response.url} to "
                        f"{response.headers['location'][:200]!r}"
                    )
                following = self._redirected(request, response)
                if following.url.origin != request.url.origin:
                    call.auth = None
                _drain(response)
            except BaseException:
                response.close()
                raise
            history.append(response)
            request = following

    def _redirected(self, request: Request, response: Response) -> Request:
        """The request that a redirect asks for (RFC 9110 section 15.4)."""
        location = response.headers.get_list("location")
        if len(set(location)) != 1:
            raise RequestError(f"expected one Location in a redirect, not {len(location)} that differ")
        try:
            # Servers put UTF-8 into the field; it was read as latin-1.
            text = location[0].encode("latin-1").decode("utf-8")
        except UnicodeError:
            text = location[0]
        url = urls.join(request.url, text)
        new = request.copy()
        new.url = url
        method, status = request.method, response.status
        if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
            new.method = "GET"
            new.body = None
            new.headers.discard(*_ABOUT_BODY)
        elif new.body is not None and not new.body.again:
            raise RequestError(
                f"{request.method} {request.url} is redirected with its body, which cannot be read again; give it as "
                f"bytes, a path or a file, or send it to {url} at once"
            )
        if url.origin != request.url.origin:
            new.headers.discard(*SENSITIVE, "host")
        return new

    def _answered(self, request: Request, call: _Call) -> Response:
        auth = call.auth
        if auth is None:
            return self._tried(request, call)
        request = request.copy()
        auth.prepare(request)
        response = self._tried(request, call)
        if response.status != 401:
            auth.check(request, response)
            return response
        if (request.body is None or request.body.again) and auth.challenge(request, response):
            _drain(response)
            response = self._tried(request, call)
            if response.status != 401:
                auth.check(request, response)
        return response

    def _tried(self, request: Request, call: _Call) -> Response:
        rule = call.retries
        number = 1
        while True:
            try:
                response = self._sent_once(request, call)
            except (ConnectError, ReadError, WriteError) as e:
                may = isinstance(e, ConnectError) or (
                    request.method in rule.methods and (request.body is None or request.body.again)
                )
                if number >= rule.attempts or not may:
                    raise
                pause = rule.pause_after(number)
            else:
                if (
                    number >= rule.attempts
                    or response.status not in rule.statuses
                    or request.method not in rule.methods
                    or not (request.body is None or request.body.again)
                ):
                    return response
                told = _retry_after(response)
                pause = rule.pause_after(number) if told is None else told
                if pause > rule.wait_max:
                    return response
                _drain(response)
            number += 1
            scheduler.sleep(pause)

    def _sent_once(self, request: Request, call: _Call) -> Response:
        """One attempt; a connection that had gone stale does not count as one."""
        began = ticks.get_now()
        request = self._dressed(request)
        for hook in self.hooks["request"]:
            hook(request)
        if self._transport is not None:
            response = self._transport(request)
            response.request = request
        else:
            response = self._over_network(request, call)
        response.elapsed = (ticks.get_now() - began) / ticks.ticks_per_sec
        try:
            if self.cookies is not None and (lines := response.headers.get_list("set-cookie")):
                self.cookies.extract(request.url, lines)
            for hook in self.hooks["response"]:
                hook(response)
        except BaseException:
            response.close()
            raise
        return response

    def _dressed(self, request: Request) -> Request:
        """With the fields that each attempt has of its own: Host, cookies, length."""
        request = request.copy()
        fields = request.headers
        if "host" not in fields:
            first = Headers()
            first._fields = [("host", "Host", request.url.authority), *fields._fields]
            request.headers = fields = first
        if self.cookies is not None and (line := self.cookies.header(request.url)):
            given = fields.get("cookie")
            fields["Cookie"] = f"{given}; {line}" if given else line
        body = request.body
        if "transfer-encoding" in fields:
            if fields["transfer-encoding"].lower() != "chunked" or "content-length" in fields or body is None:
                raise LocalError("leave Transfer-Encoding out: a body of unknown length is sent chunked by itself")
        elif body is not None:
            if body.length is not None:
                given = fields.get("content-length")
                if given is not None and given != str(body.length):
                    raise LocalError(f"Content-Length is {given}, but the body has {body.length} bytes")
                fields["Content-Length"] = str(body.length)
            elif "content-length" not in fields:
                fields["Transfer-Encoding"] = "chunked"
        elif request.method in ("POST", "PUT", "PATCH"):
            # RFC 9110 section 8.6: these have a meaning for a body, so its absence is said.
            fields["Content-Length"] = "0"
        elif fields.get("content-length", "0") != "0":
            raise LocalError(f"Content-Length is {fields['content-length']}, but there is no body")
        return request

    def _over_network(self, request: Request, call: _Call) -> Response:
        url = request.url
        proxy = self.proxies.of(url) if self.proxies else None
        key: Any = (url.scheme, url.host, url.port)
        plain_proxy = proxy is not None and url.scheme == "http" and proxy.scheme in ("http", "https")
        if proxy is not None:
            key = ("proxy", str(proxy), proxy.userinfo) if plain_proxy else (*key, str(proxy), proxy.userinfo)
        target = url.target
        if plain_proxy:
            assert proxy is not None
            target = f"{url.scheme}://{url.authority}{target}"
            request.headers.discard("proxy-authorization")
            request.headers.extend(proxy_fields(proxy))
        if call.expect and request.body is not None:
            request.headers["Expect"] = "100-continue"
        timeout = call.timeout
        again = (
            call.retries.stale
            and request.method in call.retries.methods
            and (request.body is None or request.body.again)
        )
        while True:
            link = self.pool.take(key, lambda: self._connected(url, proxy, plain_proxy, timeout), timeout.pool)
            reused = link.uses > 0
            try:
                head, sender = link.exchange(
                    request.method, target, request.headers, request.body, timeout, call.expect and bool(request.body)
                )
                return self._response(request, link, head, sender, timeout)
            except BaseException as e:
                heard = link.heard
                self.pool.give_back(link, False)
                if (
                    again
                    and reused
                    and not heard
                    and isinstance(e, (ReadError, WriteError))
                    and not isinstance(e, (ReadTimeout, WriteTimeout))
                ):
                    continue  # each time one idle connection fewer, so this ends
                raise

    def _response(
        self, request: Request, link: Link, head: Any, sender: Any, timeout: Timeout, held: Sequence[bytes] = ()
    ) -> Response:
        response = Response._of(request, head)
        decoder = None
        if self._decompress and head.status not in (204, 304) and request.method != "HEAD":
            coding = head.get(b"content-encoding")
            if coding:
                decoder = decoding.decoder(response.headers["content-encoding"], self.limits)
        response._source = BodySource(self.pool, link, sender, decoder, self.limits.body, timeout.read, held)
        return response

    # -- connecting

    def _connected(self, url: URL, proxy: URL | None, plain: bool, timeout: Timeout) -> tuple[Any, Any]:
        """A new stream to the URL's server, and the sock below it."""
        first = url if proxy is None else proxy
        if self._connector is not None:
            return self._connector(url), None
        raw = self._connect(first, timeout)
        stream: Any = raw
        try:
            with _within(timeout.tls, f"the handshake with {first.authority} took longer than"):
                if proxy is not None:
                    if proxy.scheme == "https":
                        stream = self._secured(stream, proxy)
                    if not plain:
                        connect_through(stream, proxy, url.host, url.port)
                if url.secure:
                    stream = self._secured(stream, url)
        except (OSError, EOFError) as e:
            raw.close()
            if isinstance(e, HTTPError):
                raise
            raise ConnectError(f"cannot talk to {first.authority}: {e}") from e
        except BaseException:
            raw.close()
            raise
        return stream, raw

    def _connect(self, url: URL, timeout: Timeout) -> Any:
        try:
            if self._unix is not None:
                return connect(self._unix, timeout=timeout.connect)
            return connect(url.host, url.port, timeout=timeout.connect, source_address=self._source)
        except ResolverNameError as e:
            raise ConnectError(f"cannot find {url.host}: {e}") from e
        except OSError as e:
            if type(e).__name__ == "ETIMEDOUT":
                raise ConnectTimeout(str(e)) from e
            raise ConnectError(str(e)) from e

    def _secured(self, stream: Any, url: URL) -> Any:
        context = self._tls_context
        if context is None:
            from coro import tls

            context = self._tls_context = tls.context(_default_tls() if self._tls is None else self._tls)
        return context.wrap(stream, server_hostname=url.host.partition("%")[0])


class _Call:
    """What holds for one call, through redirects and attempts."""

    __slots__ = ("auth", "expect", "follow", "retries", "timeout")

    def __init__(self, auth: Auth | None, timeout: Timeout, retries: Retries, follow: bool, expect: bool) -> None:
        self.auth = auth
        self.timeout = timeout
        self.retries = retries
        self.follow = follow
        self.expect = expect


#: The arguments of ``request`` that ``send`` takes.
_SENDING = ("auth", "timeout", "follow_redirects", "retries", "expect_continue")

_STANDARD = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"})


def _method(method: Any) -> str:
    if not isinstance(method, str):
        raise TypeError(f"expected a method as a str, not {type(method).__name__}: {method!r}")
    upper = method.upper()
    if upper in _STANDARD:
        return upper
    if not method or not method.isascii() or not all(c.isalnum() or c in "!#$%&'*+-.^_`|~" for c in method):
        raise LocalError(f"expected a method of the characters of a token, such as GET, not {method!r}")
    if upper == "CONNECT":
        raise LocalError("CONNECT makes a tunnel, which is what proxy= is for")
    return method


@contextmanager
def _within(seconds: float | None, what: str) -> Iterator[None]:
    if seconds is None:
        yield
        return
    limit = scheduler.timeout(seconds)
    try:
        with limit:
            yield
    except TimeoutError:
        if not limit.expired:
            raise
        raise ConnectTimeout(f"{what} {seconds:g} seconds") from None


def _drain(response: Response) -> None:
    """Read a short body to its end, so that the connection can be used again; give a long one up."""
    source = response._source
    if source is None:
        return
    left = DRAINED
    pieces: list[bytes] = []
    try:
        while left > 0:
            piece = source.read_decoded()
            if not piece:
                response._content = b"".join(pieces)
                response._finish()
                return
            pieces.append(piece)
            left -= len(piece)
    except HTTPError:
        pass  # the response was answered by its head; the connection goes with the rest of it
    response._content = b"".join(pieces)
    response.close()


def _retry_after(response: Response) -> float | None:
    """Seconds that the server asks for (RFC 9110 section 10.2.3), None if it does not."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:10])
    if not text:
        return None
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (TypeError, ValueError, OverflowError):
        return None
