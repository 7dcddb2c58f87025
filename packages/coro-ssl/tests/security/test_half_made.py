"""Objects that ``__new__`` made alone, as a subclass that forgets ``super().__init__()`` does: they raise, or work.

Each attribute of each public class meets a fresh object, in another process, which a crash would end. Nothing may wait,
and nothing may fail inside of the interpreter (SystemError, but for the two calls of ``coro.ssl.sock`` that are said to
raise it).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import coro

SKIPPED = {"__class__", "__new__", "__init_subclass__", "__subclasshook__", "__getattribute__", "recvfrom", "sendto"}
VALUES = (None, 1, -1, b"x", "x", 1 << 70)


def classes() -> list[type]:
    import coro.ssl
    import coro.tls
    from coro.ssl import _context, openssl, testing

    modules = (coro.ssl, coro.tls, openssl, testing)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    return [_context._ClientStream, *{one: None for one in public if isinstance(one, type)}]


def hollow(cls: type) -> object:
    try:
        return cls.__new__(cls)
    except TypeError:
        return None  # of the tuples, which cannot be made so


def expect(what: str, function: object, *arguments: object) -> None:
    """The call works, or raises what a program can understand."""
    try:
        coro.with_timeout(0, function, *arguments)
    except SystemError as e:
        raise AssertionError(f"{what} of {arguments}") from e
    except (Exception, coro.Interrupted):
        pass


def use_all() -> None:
    for cls in classes():
        print(cls.__name__, file=sys.stderr, flush=True)  # the last one is that which crashes
        for function in (repr, str, hash, bool, len, iter, list, dir):
            expect(function.__name__, function, hollow(cls))
        for name in sorted(set(dir(cls)) - SKIPPED):
            for arguments in ((), *((v,) for v in VALUES), *((v, v) for v in VALUES), *((v, v, v) for v in VALUES)):
                thing = hollow(cls)
                try:
                    method = getattr(thing, name)
                except (AttributeError, OSError, ValueError):
                    break
                if not callable(method):
                    break
                expect(f"{cls.__name__}.{name}", method, *arguments)


@pytest.mark.slow
def test_what_new_made_alone_works_or_raises() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "TLSStream" in done.stderr and "sock" in done.stderr and "x509" in done.stderr


if __name__ == "__main__":
    coro.set_latency_warning(0)
    coro.run(use_all)
