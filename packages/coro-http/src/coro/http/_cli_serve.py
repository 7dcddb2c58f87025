"""``python -m coro.http serve module:app``: a WSGI or ASGI application, or a handler of this package, in production or
while it is written.

This process supervises (`coro.prefork`), and each worker, the only one, too, imports the application itself: so
``--reload`` and SIGHUP bring in new code and new certificates, one worker after the other, without a lost connection,
and under the same process number. A worker that cannot even start ends the program with what it has said; in a reload
the old ones go on. Rejected: one worker in this process, which SIGHUP could only end, or have without service while it
finishes.

WSGI applications and handlers run with coro's thread emulation, which makes `time.sleep`, sockets and database drivers
in Python wait as threads of coro do; ``--no-emulation`` leaves it out. ASGI applications have asyncio instead.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coro
from coro.http import __version__, activation
from coro.http._loading import INTERFACES, LoadError, handler_for, interface_of, load
from coro.http.access_log import FORMATS, escaped
from coro.http.exceptions import LifespanError

__all__ = ["add_arguments", "run"]

#: Seconds for a worker to import the application and start it: some load models of gigabytes.
START_TIMEOUT = 600.0
#: A worker that ends sooner looks like a failure to its supervisor.
SHORTEST_LIFE = 1.5
#: Seconds in which changes of several files count as one.
CALM = 0.1
_WATCHED = (".py", ".pyi", ".html", ".toml")
_COLOURS = {1: "36", 2: "32", 3: "36", 4: "33", 5: "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("app", help="module:attribute of the application; the attribute is 'app' if left out")
    parser.add_argument(
        "-b", "--bind", action="append", default=[], metavar="ADDRESS",
        help="HOST:PORT, :PORT, or unix:PATH; may be repeated (the sockets of systemd, or 127.0.0.1:8000)",
    )  # fmt: skip
    parser.add_argument(
        "-w", "--workers", type=int, default=1, metavar="N", help="processes; 0 is one per processor (1)"
    )
    parser.add_argument("--interface", choices=INTERFACES, default="auto", help="what the application is (auto)")
    parser.add_argument(
        "--factory", action="store_true", help="the attribute is a function that returns the application"
    )
    parser.add_argument("--app-dir", metavar="FOLDER", help="where the module is (the working directory)")
    parser.add_argument("--root-path", default="", metavar="PATH", help="where the application is mounted, as /app")
    parser.add_argument("--reload", action="store_true", help="begin anew when a source file changes")
    parser.add_argument(
        "--reload-dir", action="append", default=[], metavar="FOLDER", help="a folder to watch for that"
    )
    parser.add_argument("--cert", metavar="FILE", help="certificate chain in PEM: serve https")
    parser.add_argument("--key", metavar="FILE", help="its private key, if it is not in the same file")
    parser.add_argument(
        "--max-requests", type=int, default=0, metavar="N", help="replace a worker after about N requests"
    )
    parser.add_argument("--max-connections", type=int, metavar="N", help="most connections at once, for each worker")
    parser.add_argument(
        "--lifespan", choices=("auto", "on", "off"), default="auto", help="of an ASGI application (auto)"
    )
    parser.add_argument("--no-emulation", action="store_true", help="leave blocking calls as they are")
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="believe what proxies there say of clients",
    )
    parser.add_argument(
        "--trusted-header", action="append", default=[], metavar="NAME",
        help="a header that they set or remove: x-forwarded-for, x-forwarded-proto (these two), x-forwarded-host, "
        "forwarded",
    )  # fmt: skip
    parser.add_argument("--proxy-protocol", action="store_true", help="connections begin with a PROXY header")
    parser.add_argument(
        "--access-log", choices=("auto", "short", "off", *FORMATS), default="auto",
        help="a line per request to stderr (auto: short and coloured on a terminal, combined elsewhere)",
    )  # fmt: skip
    parser.add_argument("--drain-timeout", type=float, default=30.0, metavar="SECONDS", help="to end requests in (30)")


def address_of(text: str) -> Any:
    """An address as `coro.Server` takes it. SystemExit for anything else."""
    if text.startswith("unix:"):
        return text.removeprefix("unix:")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SystemExit(f"expected an address as HOST:PORT, :PORT or unix:PATH, not {text!r}")
    return host.strip("[]"), int(port)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop. Returns the exit code."""
    try:
        addresses = [address_of(text) for text in args.bind] or activation.listeners() or [("127.0.0.1", 8000)]
    except ValueError as e:
        raise SystemExit(str(e)) from None
    if args.workers < 0 or args.max_requests < 0:
        raise SystemExit("expected numbers of at least 0 as --workers and --max-requests")
    args.log = _log(args.access_log)
    try:
        _tls(args)  # each worker does so itself, with what the files hold then; mistakes are told before
        if not args.reload:
            _find_module(args)
        return _supervise(args, addresses)
    except LoadError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except (OSError, coro.prefork.PreforkError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


def _supervise(args: argparse.Namespace, addresses: Any) -> int:
    """Run the workers; returns the exit code."""
    has_begun = has_failed = False
    on_terminal = not _has_hung_up()

    def note(event: Any) -> None:
        nonlocal has_begun, has_failed
        if event.kind == "ready":
            has_begun = True
        elif event.kind == "failed" and event.pid is not None and not has_begun:
            has_failed = True  # it has said why, and the next one would say the same
            supervisor.stop()
        elif event.kind == "reloading" and on_terminal and _has_hung_up():
            supervisor.stop()  # the SIGHUP of a terminal that was closed
        elif event.kind in ("failed", "killed", "reload failed"):
            process = "" if event.pid is None else f" (process {event.pid})"
            who = "" if event.worker is None else f"worker {event.worker}{process} "
            print(f"{time.ctime()} {who}{event.kind}: {event.detail}", file=sys.stderr, flush=True)

    supervisor = coro.prefork.Prefork(
        args.workers or None,
        lambda worker: _work(worker, args),
        addresses,
        drain_timeout=args.drain_timeout,
        start_timeout=START_TIMEOUT,
        on_event=note,
    )
    supervisor.run()
    return 1 if has_failed else 0


def _has_hung_up() -> bool:
    """Whether stderr is no terminal, or none any more."""
    try:
        os.tcgetpgrp(2)
    except OSError:
        return True
    return False


def _find_module(args: argparse.Namespace) -> None:
    """LoadError unless the module exists. The application is not imported in this process."""
    from importlib.util import find_spec

    folder = os.path.abspath(args.app_dir or ".")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = args.app.partition(":")[0]
    try:
        found = find_spec(name) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise LoadError(f"there is no module {name!r} in {folder} or on the path; see --app-dir")


def _tls(args: argparse.Namespace) -> Any:
    if args.key and not args.cert:
        raise LoadError("--key needs --cert, the certificate that it belongs to")
    if not args.cert:
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(args.cert, args.key)
    except (OSError, ssl.SSLError) as e:
        raise LoadError(f"the certificate {args.cert} cannot be used: {e}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


# -- the log


def _log(wanted: str) -> Callable[[Any], None] | str | None:
    if wanted == "off":
        return None
    terminal = sys.stderr.isatty()
    if wanted == "auto":
        wanted = "short" if terminal else "combined"
    return short_log(terminal and "NO_COLOR" not in os.environ) if wanted == "short" else wanted


def short_log(coloured: bool) -> Callable[[Any], None]:
    """A line for people: time, status, method, target, duration, bytes."""

    def log(request: Any) -> None:
        status = request.reply_code
        shown = f"\x1b[{_COLOURS.get(status // 100, '0')}m{status}\x1b[0m" if coloured else str(status)
        seconds = request.seconds
        took = f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
        coro.write_stderr(
            f"{time.strftime('%H:%M:%S')} {shown} {escaped(request.method_raw)} {escaped(request.uri)} "
            f"{took}, {request.bytes_sent} bytes\n"
        )

    return log


def _place(address: Any, tls: bool) -> str:
    scheme = "https" if tls else "http"
    if not isinstance(address, tuple):
        return f"{scheme}+unix:{address}"
    host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
    return f"{scheme}://{host}:{address[1]}"


def _say(args: argparse.Namespace, interface: str, addresses: list[Any]) -> None:
    """The line that says what runs where."""
    places = ", ".join(_place(address, args.tls is not None) for address in addresses)
    names = {"wsgi": "WSGI", "asgi": "ASGI", "http": "handler"}
    workers = args.workers or len(os.sched_getaffinity(0))
    processes = f"{workers} worker{'s' if workers > 1 else ''}" if args.workers != 1 else f"process {os.getppid()}"
    extras = ", reloads on changes" if args.reload else ""
    print(
        f"coro-http {__version__}: {args.app} ({names[interface]}) on {places}, {processes}{extras}, "
        f"{platform.python_implementation()} {platform.python_version()}. Ctrl-C stops it.",
        file=sys.stderr,
        flush=True,
    )


# -- serving


def _built(args: argparse.Namespace) -> tuple[str, Any]:
    """The application's kind and the handler for it, in the process that serves."""
    emulated = not args.no_emulation and args.interface != "asgi"
    if emulated:
        coro.install_thread_emulation()
    app = load(args.app, factory=args.factory, folder=args.app_dir)
    interface = args.interface if args.interface != "auto" else interface_of(app)
    if emulated and interface == "asgi":
        coro.uninstall_thread_emulation()
    return interface, handler_for(
        app, interface, root_path=args.root_path, lifespan=args.lifespan, multiprocess=args.workers != 1
    )


@contextlib.contextmanager
def _serving(args: argparse.Namespace, handler: Any, addresses: Any) -> Iterator[Any]:
    from coro.http._server import server
    from coro.http.forwarded import USUAL

    counted = isinstance(handler, _Counted)
    inner = handler.handler if counted else handler
    life = inner if hasattr(inner, "startup") else contextlib.nullcontext()
    with life, server(
        handler,
        addresses,
        tls=args.tls,
        access_log=args.log,
        max_connections=args.max_connections,
        trusted_proxies=args.trusted_proxy,
        trusted_headers=args.trusted_header or USUAL,
        proxy_protocol=args.proxy_protocol,
        drain_timeout=args.drain_timeout,
    ) as made:  # fmt: skip
        yield made


def _work(worker: Any, args: argparse.Namespace) -> None:
    """A worker process, from its fork to its end. What ends it too early is said here, and the exit status is 1."""
    # Ctrl-C reaches all processes of a terminal; the supervisor tells its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    began = time.monotonic()
    # An import takes its time, and there is nobody yet who waits for this thread.
    latency = coro.set_latency_warning(0)
    if args.reload:
        # A cached module is told from a new source by second and size, and an edit may change neither.
        sys.dont_write_bytecode = True
        coro.spawn(_watch, args, thread_name="watch over the sources", daemon=True)
    try:
        args.tls = _tls(args)
        interface, handler = _built(args)
    except Exception as e:
        _tell(e)
        if not args.reload:
            raise SystemExit(1) from None
        print("waiting for a change of the sources", file=sys.stderr, flush=True)
        worker.ready()
        worker.stopping.wait()
        return
    if args.max_requests:
        handler = _Counted(handler, args.max_requests)
    try:
        with _serving(args, handler, worker.listeners) as made:
            coro.yield_slice()
            coro.set_latency_warning(latency)
            if worker.index == 0:
                _say(args, interface, made.addresses)
            if args.max_requests:
                handler.full = lambda: coro.spawn(made.drain, thread_name="end after many requests", daemon=True)
            made.wait()
    except Exception as e:
        _tell(e)
        raise SystemExit(1) from None
    rest = SHORTEST_LIFE - (time.monotonic() - began)
    if rest > 0 and not worker.stopping.is_set():
        with contextlib.suppress(coro.TimeoutError):
            worker.stopping.wait(rest)


def _tell(error: Exception) -> None:
    """Say what ended a worker: in a line if that is all there is to know."""
    if isinstance(error, (LoadError, LifespanError)):
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        traceback.print_exception(error)


class _Counted:
    """A handler that says when it has answered enough; workers begun together do not end together."""

    def __init__(self, handler: Any, most: int) -> None:
        self.handler = handler
        self.left = most + random.randrange(most // 10 + 1)
        self.full: Callable[[], object] | None = None

    def __call__(self, request: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.full is not None:
            self.full()
        return self.handler(request)


def _watch(args: argparse.Namespace) -> None:
    """Have the supervisor replace the workers when a source changes."""
    folders = [Path(folder) for folder in args.reload_dir] or [Path(args.app_dir or ".")]
    changed = coro.event()

    def look(folder: Path) -> None:
        with coro.watch(folder, recursive=True) as events:
            for event in events:
                if str(event.path).endswith(_WATCHED):
                    changed.set()

    for folder in folders:
        coro.spawn(look, folder, thread_name=f"watch {folder}", daemon=True)
    changed.wait()
    coro.sleep_relative(CALM)
    os.kill(os.getppid(), signal.SIGHUP)
