# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Locks of files, and the opening of FIFOs: calls that wait in the kernel for others, perhaps for days, and that no
descriptor tells the end of.

Each waits in an OS thread of its own (see kernel_waits.h) while the calling coro thread is suspended. It has no worker
of coro.in_thread(): those are few, and whoever holds the lock may need one to come to its end. If the coro thread is
interrupted, the OS thread is taken out of the kernel before the caller goes on: nothing is left that would take the
lock later. What it got at that very moment is given back.

The calls here are for coro threads, and for when the same call without waiting has failed. They raise OSError as the
kernel says, and RuntimeError when there is no OS thread to be had.
"""

from libc.errno cimport errno
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset
from posix.types cimport mode_t, off_t

from coro._runtime.abi cimport require_abi

import os

from coro.emulation import _blocking

require_abi()

cdef extern from "emulation/kernel_waits.h" nogil:
    enum: CORO_WAIT_FLOCK
    enum: CORO_WAIT_FCNTL
    enum: CORO_WAIT_OPEN
    ctypedef struct coro_wait:
        char *data
        int result, error, told
    ctypedef struct flock_struct "struct flock":
        short l_type
        short l_whence
        off_t l_start
        off_t l_len
    ctypedef struct sigset_t:
        pass
    int sigemptyset(sigset_t *)
    int sigaddset(sigset_t *, int)
    int coro_wait_start(coro_wait **, int, int, int, int, mode_t, char *)
    void coro_wait_undo(coro_wait *)
    int coro_wait_cancel(coro_wait *)
    void coro_wait_end(coro_wait *, int)
    int coro_signal_descriptor(const sigset_t *)


cdef object run(int kind, int fd, int command, mode_t mode, bytes data, int unlock, path):
    cdef coro_wait *w = NULL
    cdef int error, result = -1
    cdef bint is_over = False
    cdef bytes after = None
    cdef char *copy = <char *>malloc(len(data) + 1)
    if copy != NULL:
        memcpy(copy, <char *>data, len(data) + 1)
    error = coro_wait_start(&w, kind, fd, command, unlock, mode, copy)
    if error:
        raise RuntimeError(f"can't start an OS thread that waits: {os.strerror(error)}")
    try:
        _blocking.wait_fd(w.told, False)
        is_over = True
    except BaseException:
        is_over = coro_wait_cancel(w)
        if is_over:
            coro_wait_undo(w)
        raise
    finally:
        if is_over:
            result, error = w.result, w.error
            after = w.data[:len(data)]
        coro_wait_end(w, is_over)
    if result < 0:
        raise OSError(error, os.strerror(error), *(() if path is None else (path,)))
    return after if kind == CORO_WAIT_FCNTL else result


def flock(int fd, int operation):
    """flock(2), which waits."""
    run(CORO_WAIT_FLOCK, fd, operation, 0, b"", 0, None)


def record_lock(int fd, int command, bytes lock, int unlock):
    """fcntl(2) with F_SETLKW or F_OFD_SETLKW and a struct flock; ``unlock``: that of its kind which does not wait.
    Returns the struct."""
    if len(lock) < <Py_ssize_t>sizeof(flock_struct):
        raise ValueError(f"expected a struct flock of {sizeof(flock_struct)} bytes, not {len(lock)} bytes")
    return run(CORO_WAIT_FCNTL, fd, command, 0, lock, unlock, None)


def open_path(int folder, bytes path, int flags, int mode, shown):
    """openat(2), which waits until a FIFO has its other end, or a line its carrier; ``shown``: the path as errors name
    it. Returns the descriptor."""
    return run(CORO_WAIT_OPEN, folder, flags, <mode_t>mode, path, 0, shown)


def lock_of(int kind, int whence, long long start, long long length):
    """A struct flock as fcntl(2) takes it. OverflowError for numbers that do not fit."""
    cdef flock_struct lock
    memset(&lock, 0, sizeof(lock))
    lock.l_type = <short>kind
    lock.l_whence = <short>whence
    lock.l_start = start
    lock.l_len = length
    return (<char *>&lock)[:sizeof(lock)]


def signal_descriptor(signals):
    """A descriptor that is readable while one of these signals is pending. OSError if the system has none."""
    cdef sigset_t wanted
    cdef int fd
    sigemptyset(&wanted)
    for number in signals:
        sigaddset(&wanted, number)
    fd = coro_signal_descriptor(&wanted)
    if fd < 0:
        raise OSError(errno, os.strerror(errno))
    return fd
