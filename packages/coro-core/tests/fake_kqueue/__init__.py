"""Builds the imitation of kqueue(2) and has coro use it; see fake_kqueue.c.

The library is compiled once and kept in the system's folder for temporary files, under a name made of its sources; a
test run on a poller costs the second the compiler takes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import coro
from coro._poll import choose
from coro._poll import kqueue as _kqueue
from coro._runtime import scheduler

SOURCE = Path(__file__).with_name("fake_kqueue.c")


def compiler() -> list[str] | None:
    """The command of the C compiler, or None. In CC it may have arguments, or a compiler cache before it."""
    for command in (os.environ.get("CC") or "cc", "gcc"):
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def build() -> Path:
    """The compiled library."""
    include = Path(coro.get_include())
    digest = hashlib.sha256(SOURCE.read_bytes() + (include / "_poll/kqueue.h").read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"coro-fake-kqueue-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to somebody else; remove it")
    library = folder / f"fake_kqueue-{digest}.so"
    if not library.exists():
        command = [*(compiler() or ["cc"]), "-shared", "-fPIC", "-O1", "-g", "-fvisibility=hidden", f"-I{include}"]
        partial = folder / f"{library.name}.{os.getpid()}"
        subprocess.run([*command, SOURCE, "-o", partial, "-lpthread"], check=True, stdin=subprocess.DEVNULL)
        partial.replace(library)
    return library


def use() -> None:
    """Have every loop from now on, in this process and in those it starts, run on the imitation."""
    os.environ.update(CORO_POLLER="kqueue", CORO_KQUEUE_LIBRARY=str(build()))
    scheduler.set_poller_factory(choose.choose())


def library() -> ctypes.CDLL:
    """The loaded library, with the functions that steer it."""
    path = build()
    if not _kqueue.available():
        _kqueue.use_library(path)
    fake = ctypes.CDLL(str(path))
    fake.fake_inject.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_uint, ctypes.c_uint] + [ctypes.c_ssize_t] * 2
    fake.fake_udata.argtypes = [ctypes.c_size_t, ctypes.c_int]
    fake.fake_udata.restype = ctypes.c_int64
    fake.fake_calls.restype = fake.fake_changes.restype = ctypes.c_long
    return fake
