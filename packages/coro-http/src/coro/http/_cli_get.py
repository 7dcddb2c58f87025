"""``python -m coro.http get URL``: what curl is used for most of the time, with this package's client.

The body goes to standard output or a file, everything else to standard error, so that it can be piped. On a terminal a
download to a file shows how far it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import coro
from coro.http.client import Client, Response, Timeout
from coro.http.exceptions import HTTPError

__all__ = ["add_arguments", "client_arguments", "client_of", "pairs", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("url", help="where to ask; http:// is assumed")
    client_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the body to a file")
    parser.add_argument("-i", "--include", action="store_true", help="show the heads of request and response, too")
    parser.add_argument("--no-redirects", action="store_true", help="do not follow redirects")
    parser.add_argument("--retries", type=int, default=0, metavar="N", help="try again so many times")
    parser.add_argument("--json", action="store_true", help="print status, headers, times and body as one JSON object")
    parser.add_argument("-f", "--fail", action="store_true", help="exit with 1 for a status from 400 on")


def client_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say how to ask; `bench` has them, too."""
    parser.add_argument("-X", "--method", help="GET unless there is a body, then POST")
    parser.add_argument("-H", "--header", action="append", default=[], metavar="NAME: VALUE", help="a header to send")
    parser.add_argument(
        "-d", "--data", metavar="TEXT", help="a body; @FILE reads it from a file, @- from standard input"
    )
    parser.add_argument("-u", "--user", metavar="USER:PASSWORD", help="credentials; the password may be asked for")
    parser.add_argument("--digest", action="store_true", help="send them by Digest, not Basic")
    parser.add_argument(
        "--proxy", metavar="URL", help="http://, https://, socks5:// or socks5h://; 'env' for http_proxy etc."
    )
    parser.add_argument("--unix", metavar="PATH", help="connect to this UNIX socket")
    parser.add_argument("--insecure", action="store_true", help="take any certificate: anybody may answer")
    parser.add_argument("--ca", metavar="FILE", help="trust the certificates in this file")
    parser.add_argument("-t", "--timeout", type=float, default=60.0, metavar="SECONDS", help="for all of it (60)")


def pairs(lines: list[str]) -> list[tuple[str, str]]:
    """Headers as they were typed."""
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise SystemExit(f"expected a header as 'Name: value', not {line!r}")
        found.append((name, value.strip()))
    return found


def body_of(args: argparse.Namespace) -> Any:
    """The body that -d names."""
    if args.data is None:
        return None
    if args.data == "@-":
        return sys.stdin.buffer.read()
    if args.data.startswith("@"):
        path = Path(args.data[1:])
        if not path.is_file():
            raise SystemExit(f"there is no file {path}")
        return path
    return args.data.encode()


def client_of(args: argparse.Namespace, **more: Any) -> Client:
    """A client as the options ask for."""
    tls = None
    if args.insecure or args.ca:
        import ssl

        tls = ssl.create_default_context(cafile=args.ca)
        if args.insecure:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    auth: Any = None
    if args.user is not None:
        from coro.http.client import BasicAuth, DigestAuth

        user, colon, password = args.user.partition(":")
        if not colon:
            import getpass

            password = getpass.getpass(f"password of {user}: ")
        auth = (DigestAuth if args.digest else BasicAuth)(user, password)
    return Client(tls=tls, auth=auth, proxy=args.proxy, unix=args.unix, timeout=Timeout(total=args.timeout), **more)


def url_of(args: argparse.Namespace) -> str:
    """The URL, with its scheme."""
    return str(args.url) if "://" in args.url else f"http://{args.url}"


def run(args: argparse.Namespace) -> int:
    """Get it."""
    code: list[int] = []
    coro.run(lambda: code.append(_get(args)))
    return code[0] if code else 1


def _get(args: argparse.Namespace) -> int:
    body = body_of(args)
    method = args.method or ("GET" if body is None else "POST")
    began = time.monotonic()
    try:
        with client_of(args, follow_redirects=not args.no_redirects, retries=args.retries) as client:
            request = client.build(method, url_of(args), content=body, headers=pairs(args.header))
            response = client.send(request, stream=True)
            with response:
                if args.json:
                    return _as_json(args, response, began)
                if args.include:
                    _show_heads(response)
                if args.output:
                    with open(args.output, "wb") as file:
                        _write(response, file, sys.stderr.isatty())
                else:
                    _write(response, sys.stdout.buffer, False)
                return int(args.fail and not response.ok)
    except BrokenPipeError:
        # The reader of our output has had enough; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HTTPError, ValueError, OSError) as e:
        print(f"{method} {url_of(args)}: {e}", file=sys.stderr)
        return 2


def _show_heads(response: Response) -> None:
    out = sys.stderr
    for one in [*response.history, response]:
        print(f"> {one.request.method} {one.request.url}", file=out)
        for name, value in one.request.headers.pairs():
            hidden = name.lower() in ("authorization", "proxy-authorization", "cookie")
            print(f"> {name}: {'***' if hidden else value}", file=out)
        print(f"< HTTP/{one.http_version} {one.status} {one.reason}", file=out)
        for name, value in one.headers.pairs():
            print(f"< {name}: {value}", file=out)
        print(file=out)


def _write(response: Response, file: BinaryIO, progress: bool) -> None:
    text = response.headers.get("content-length", "")
    whole = int(text) if text.isdigit() and "content-encoding" not in response.headers else 0
    came, shown = 0, 0.0
    for piece in response.iter_bytes():
        file.write(piece)
        came += len(piece)
        if progress and time.monotonic() - shown > 0.2:
            shown = time.monotonic()
            share = f" of {whole / 1e6:.1f} MB, {came * 100 // whole} %" if whole else " MB"
            print(f"\r{came / 1e6:.1f}{share} ", end="", file=sys.stderr, flush=True)
    file.flush()
    if progress:
        print(f"\r{came / 1e6:.1f} MB, done" + " " * 20, file=sys.stderr)


def _as_json(args: argparse.Namespace, response: Response, began: float) -> int:
    content = response.read()
    shown = {
        "url": str(response.url),
        "status": response.status,
        "reason": response.reason,
        "http_version": response.http_version,
        "headers": list(response.headers.pairs()),
        "redirects": [str(one.url) for one in response.history],
        "seconds_to_head": round(response.elapsed, 6),
        "seconds": round(time.monotonic() - began, 6),
        "bytes": len(content),
        "text": response.text,
    }
    print(json.dumps(shown, indent=1))
    return int(args.fail and not response.ok)
