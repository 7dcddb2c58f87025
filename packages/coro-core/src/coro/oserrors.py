"""One exception class per errno name, so that `except oserrors.ECONNREFUSED` says what it means.

Each class derives from the class that `OSError(errno)` itself would have (PEP 3151): `ECONNRESET` is a
`ConnectionResetError`, `EAGAIN` a `BlockingIOError`, `EMFILE` plainly an `OSError`. So both styles of `except` catch
it. Where the platform gives one number two names (`EWOULDBLOCK` and `EAGAIN` on Linux), both are the same class.
Sockets raise these classes. An instance has `errno`, `strerror`, `filename` and `filename2` like any OSError, and keeps
them and its class when it is pickled.

    try:
        s.connect(address)
    except oserrors.ECONNREFUSED:
        ...

`raise oserrors.EPIPE` and `raise oserrors.EPIPE("while sending the header")` fill in the number, and the text where
none is given.
"""

# An exception is pickled by the name of its class in this module.
#
# Cost: all names of `errno` (some 130 on Linux) become classes at import, about 2 ms and 220 KiB, once; making an
# exception through `make()` takes half a microsecond. Rejected: classes made when first asked for (a misspelt name in
# an `except` clause would come to light only when an exception arrives there), and one class that compares numbers
# (`except` looks at the MRO and never calls `__instancecheck__`).

import errno as _errno
import os as _os
from typing import Any, NoReturn

#: errno -> class, one entry per number.
err_map: dict[int, type[OSError]] = {}

# Where two names share a number, the class bears the first of these, else the one that sorts first.
_PREFERRED = ("EAGAIN", "EDEADLK", "EOPNOTSUPP")


def _new(cls: Any, *args: Any) -> Any:
    if not args:
        args = (cls._number, _os.strerror(cls._number))
    elif len(args) == 1:
        args = (cls._number, args[0])
    # OSError.__new__ replaces only `OSError` itself by the subclass for the number, never one of ours
    return OSError.__new__(cls, *args)


def _define() -> list[str]:
    """Make the classes, bind them to all their names, and return the names."""
    names: dict[int, list[str]] = {}
    for name in dir(_errno):
        number = getattr(_errno, name)
        if name.startswith("E") and isinstance(number, int):
            names.setdefault(number, []).append(name)
    done = []
    for number, aliases in sorted(names.items()):
        name = next((p for p in _PREFERRED if p in aliases), aliases[0])
        text = _os.strerror(number)
        base = type(OSError(number, text))
        body = {
            "__module__": __name__,
            "__doc__": f"{base.__name__} for {' = '.join(sorted(aliases))} ({number}): {text}.",
            "__new__": _new,
            "_number": number,
        }
        cls = type(name, (base,), body)
        err_map[number] = cls
        for alias in aliases:
            globals()[alias] = cls
            done.append(alias)
    return done


__all__ = ["class_for", "convert", "err_map", "make", "map_exception", "raise_oserror", *sorted(_define())]


def class_for(errno: int) -> type[OSError]:
    """The class for an errno; `OSError` for a number that the platform has no name for."""
    return err_map.get(errno, OSError)


def make(errno: int, filename: Any = None, filename2: Any = None) -> OSError:
    """An exception for an errno, not raised.

    errno: the number.  filename, filename2: what it was about (a path, any object), None if nothing.
    Raises TypeError when errno is not an int.
    """
    try:
        text = _os.strerror(errno)
    except TypeError:
        raise TypeError(f"expected an errno as an int, got {errno!r}; see the errno module") from None
    except (OverflowError, ValueError):
        text = f"Unknown error {errno}"
    cls = err_map.get(errno, OSError)
    if filename2 is not None:
        return OSError.__new__(cls, errno, text, filename, None, filename2)
    if filename is not None:
        return OSError.__new__(cls, errno, text, filename)
    return OSError.__new__(cls, errno, text)


def raise_oserror(errno: int, filename: Any = None, filename2: Any = None) -> NoReturn:
    """Raise the exception for an errno.

    Parameters as for `make`.  Raises the class for the number (`OSError` if it has none), or TypeError when
    errno is not an int.
    """
    raise make(errno, filename, filename2)


def convert(e: BaseException) -> BaseException:
    """The exception of this module that says the same as `e`; `e` itself where there is none.

    Only the built-in OSError classes are converted.  Others (`ssl.SSLError`, `socket.gaierror`,
    `shutil.Error`, and the classes of this module) come back as they are: their `errno` may count something
    else. File names, traceback, cause, context, notes and attributes are kept.
    """
    if not isinstance(e, OSError) or type(e).__module__ != "builtins" or e.errno is None:
        return e
    cls = err_map.get(e.errno)
    if cls is None:
        return e
    if e.filename2 is not None:
        new = OSError.__new__(cls, e.errno, e.strerror, e.filename, None, e.filename2)
    elif e.filename is not None:
        new = OSError.__new__(cls, e.errno, e.strerror, e.filename)
    else:
        new = OSError.__new__(cls, e.errno, e.strerror)
    new.__dict__.update(e.__dict__)
    if isinstance(e, BlockingIOError) and isinstance(new, BlockingIOError):
        try:
            new.characters_written = e.characters_written
        except AttributeError:
            pass  # never set
    new.__traceback__ = e.__traceback__
    new.__cause__ = e.__cause__
    new.__context__ = e.__context__
    new.__suppress_context__ = e.__suppress_context__
    return new


def map_exception(e: BaseException) -> NoReturn:
    """Raise what `convert(e)` gives: the class for `e.errno`, or `e` again.

    Meant for an `except OSError as e:` block: the traceback goes on from that of `e`, and `e` itself is not
    shown as a second exception.  Raises TypeError when `e` is not an exception.
    """
    if not isinstance(e, BaseException):
        raise TypeError(f"expected an exception, got {type(e).__name__}; for a number use raise_oserror()")
    new = convert(e)
    if new is e:
        raise e
    raise new from e.__cause__
