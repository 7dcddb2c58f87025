"""One class per errno, under both styles of `except`, with everything an OSError carries."""

import copy
import errno
import os
import pickle
import re
import shutil
import socket
import ssl
import traceback
from pathlib import Path

import pytest

from coro import oserrors

NAMES = sorted(n for n in dir(errno) if n.startswith("E") and isinstance(getattr(errno, n), int))
UNKNOWN = 77777


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_class_like_the_builtin_one(name):
    cls = getattr(oserrors, name)
    number = getattr(errno, name)
    plain = OSError(number, "text")
    assert issubclass(cls, type(plain))
    assert cls is oserrors.err_map[number] is oserrors.class_for(number)
    assert cls.__module__ == "coro.oserrors"
    assert getattr(oserrors, cls.__name__) is cls
    assert getattr(errno, cls.__name__) == number
    assert name in oserrors.__all__
    assert f"({number})" in cls.__doc__
    e = oserrors.make(number)
    assert type(e) is cls
    assert (e.errno, e.strerror) == (number, os.strerror(number))
    assert str(e) == str(OSError(number, os.strerror(number)))


def test_some_pairs_by_name():
    assert issubclass(oserrors.ECONNRESET, ConnectionResetError)
    assert issubclass(oserrors.EAGAIN, BlockingIOError)
    assert issubclass(oserrors.EINTR, InterruptedError)
    assert issubclass(oserrors.ETIMEDOUT, TimeoutError)
    assert issubclass(oserrors.ENOENT, FileNotFoundError)
    assert oserrors.EMFILE.__bases__ == (OSError,)
    assert oserrors.EWOULDBLOCK is oserrors.EAGAIN
    assert len({id(c) for c in oserrors.err_map.values()}) == len(oserrors.err_map)


@pytest.mark.parametrize("name", ["ECONNRESET", "EWOULDBLOCK", "EMFILE", "ENOENT", "EDEADLK"])
@pytest.mark.parametrize("files", [(), ("a.txt",), ("a.txt", "b.txt"), (b"\xff",), (None, "b.txt")])
def test_pickle_and_copy(name, files):
    e = oserrors.make(getattr(errno, name), *files)
    e.note = "kept"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(e, protocol))
        assert type(other) is type(e)
        assert (other.errno, other.strerror, other.filename) == (e.errno, e.strerror, e.filename)
        if e.filename is not None:
            assert other.filename2 == e.filename2
        assert other.note == "kept"
    assert type(copy.copy(e)) is type(e)


def test_the_class_fills_in_what_is_missing():
    e = oserrors.EPIPE()
    assert (e.errno, e.strerror) == (errno.EPIPE, os.strerror(errno.EPIPE))
    e = oserrors.EPIPE("while sending")
    assert (e.errno, e.strerror) == (errno.EPIPE, "while sending")
    with pytest.raises(BrokenPipeError) as info:
        raise oserrors.EPIPE
    assert info.value.errno == errno.EPIPE
    e = oserrors.ENOENT(errno.ENOENT, "gone", "a.txt")
    assert (e.errno, e.strerror, e.filename) == (errno.ENOENT, "gone", "a.txt")


def test_raise_oserror():
    with pytest.raises(oserrors.ENOENT) as info:
        oserrors.raise_oserror(errno.ENOENT, "a", "b")
    assert (info.value.filename, info.value.filename2) == ("a", "b")
    with pytest.raises(OSError, match="77777") as info:
        oserrors.raise_oserror(UNKNOWN)
    assert type(info.value) is OSError
    assert info.value.errno == UNKNOWN


@pytest.mark.parametrize("number", [0, -1, -(2**31), UNKNOWN, 2**31, 2**80])
def test_unknown_numbers_are_plain(number):
    assert oserrors.class_for(number) is OSError
    e = oserrors.make(number)
    assert type(e) is OSError
    assert e.errno == number


@pytest.mark.parametrize("bad", ["2", None, 2.0, b"2", [], errno])
def test_wrong_types(bad):
    with pytest.raises(TypeError, match="expected an errno as an int"):
        oserrors.make(bad)
    with pytest.raises(TypeError, match="expected an errno as an int"):
        oserrors.raise_oserror(bad)
    with pytest.raises(TypeError, match="expected an exception"):
        oserrors.map_exception(bad)


def test_map_exception_keeps_files_and_traceback():
    missing = os.path.join(os.path.dirname(__file__), "no such file")

    def opens():
        open(missing)

    with pytest.raises(oserrors.ENOENT) as info:
        try:
            opens()
        except OSError as e:
            e.add_note("a note")
            oserrors.map_exception(e)
    e = info.value
    assert e.filename == missing
    assert e.__notes__ == ["a note"]
    assert "opens" in [f.name for f in traceback.extract_tb(e.__traceback__)]
    assert len(re.findall("No such file", "".join(traceback.format_exception(e)))) == 1


def test_map_exception_keeps_both_files_and_the_cause():
    cause = KeyError("cause")
    plain = OSError(errno.EXDEV, "text", "a", None, "b")
    plain.__cause__ = cause
    with pytest.raises(oserrors.EXDEV) as info:
        oserrors.map_exception(plain)
    assert (info.value.filename, info.value.filename2) == ("a", "b")
    assert info.value.__cause__ is cause


def test_convert_keeps_the_count_of_a_blocking_write():
    e = BlockingIOError(errno.EAGAIN, "text", 17)
    assert oserrors.convert(e).characters_written == 17
    e = oserrors.convert(BlockingIOError(errno.EAGAIN, "text"))
    with pytest.raises(AttributeError):
        e.characters_written  # noqa: B018


@pytest.mark.parametrize(
    "e",
    [
        OSError("no number"),
        OSError(),
        OSError(UNKNOWN, "text"),
        KeyError("x"),
        oserrors.make(errno.EPIPE),
        ssl.SSLError(1, "its 1 is not EPERM"),
        socket.gaierror(-2, "text"),
        shutil.Error("text"),
    ],
    ids=repr,
)
def test_what_is_not_converted_comes_back(e):
    assert oserrors.convert(e) is e
    with pytest.raises(type(e)) as info:
        oserrors.map_exception(e)
    assert info.value is e


def test_the_stub_lists_all_classes():
    path = Path(oserrors.__file__).with_suffix(".pyi")
    text = path.read_text()
    classes = dict(re.findall(r"^class (\w+)\((\w+)\): \.\.\.$", text, re.M))
    aliases = dict(re.findall(r"^(E\w+) = (\w+)$", text, re.M))
    for name in NAMES:
        cls = getattr(oserrors, name)
        if name == cls.__name__:
            assert classes.get(name) == cls.__base__.__name__, f"add {name} to oserrors.pyi"
        else:
            assert aliases.get(name) == cls.__name__, f"add {name} to oserrors.pyi"
