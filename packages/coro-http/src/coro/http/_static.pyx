# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Answers with whole files that were asked for before: `static.Files` remembers what it has sent.

An answer that is remembered is a path on the disk, what fstat(2) said of the file there, and the lines of a head. Asked
for again without a condition, a range or anything else that could change the answer, the file is opened, and if it is
still the one that the lines describe, they are sent with its bytes. It costs the system calls that any server has to
make (open, fstat, send, sendfile, close) and nothing in Python.

What is opened cannot be outside of the folder: the path was found without following a symbolic link, and openat2(2)
refuses to follow one that has come since. Where there is no openat2, nothing is remembered.

Cost: about a kilobyte a file, for at most MOST files. Rejected: descriptors that are kept open, which would save a
microsecond of twenty, hold deleted files, and take descriptors that others need.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t

from coro.capi cimport require_abi
from coro.http._connection cimport http_request
from coro.http.h1 cimport Head, h1_out, h1_span, output, put_field, taken

require_abi()

__all__ = ["Remembered"]

DEF MOST = 1024                 # files
DEF LONGEST = 512               # bytes of a path in a request

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <string.h>
    #include <strings.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    typedef struct {
        uint64_t dev, ino;
        int64_t size, mtime_ns;
    } coro_file_state;
    #if defined(__linux__) && defined(SYS_openat2)
    /* The file at a path without any symbolic link, and its state; -1: not so. */
    static int coro_open_state(const char *path, coro_file_state *state) {
        struct { uint64_t flags, mode, resolve; } how;      /* struct open_how of <linux/openat2.h> */
        struct stat found;
        int fd;
        memset(&how, 0, sizeof(how));
        how.flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW;
        how.resolve = 0x04 | 0x02;                          /* RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS */
        fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
        if (fd < 0) {
            return -1;
        }
        if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) {
            close(fd);
            return -1;
        }
        state->dev = found.st_dev;
        state->ino = found.st_ino;
        state->size = found.st_size;
        state->mtime_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
        return fd;
    }
    #else
    static int coro_open_state(const char *path, coro_file_state *state) {
        (void)path;
        (void)state;
        return -1;
    }
    #endif
    /* Whether a field changes what is answered with a file: Range, If-..., and where there are codings Accept-Encoding.
    */
    static int coro_field_matters(const char *name, uint32_t n, int codings) {
        return (n > 3 && strncasecmp(name, "if-", 3) == 0) || (n == 5 && strncasecmp(name, "range", 5) == 0)
            || (codings && n == 15 && strncasecmp(name, "accept-encoding", 15) == 0);
    }
    """
    ctypedef struct file_state "coro_file_state":
        uint64_t dev, ino
        int64_t size, mtime_ns
    int open_state "coro_open_state"(const char *path, file_state *state) nogil
    bint field_matters "coro_field_matters"(const char *name, uint32_t n, bint codings) nogil
    int close(int fd) nogil
    int memcmp(const void *, const void *, size_t) nogil


cdef class _File:
    cdef bytes path             # on the disk
    cdef bytes lines            # of the head, without those that the server adds
    cdef file_state state


cdef class Remembered:
    """Remembered(codings=False)\n--\n\n\
    The files that a `static.Files` has answered with, by the path of the request. ``codings``: whether what a client
    accepts makes a difference."""

    cdef dict files
    cdef bint codings

    def __cinit__(self, bint codings=False):
        self.files = {}
        self.codings = codings

    def __len__(self):
        return len(self.files)

    cdef bint is_plain(self, http_request request) except -1:
        """Whether the request asks for the file as it is."""
        cdef Head head = request.head
        cdef h1_span *s
        cdef uint32_t i
        if request.path_len > LONGEST or head.method_len != 3 or memcmp(head.text, b"GET", 3) != 0:
            return False
        s = head.spans()
        for i in range(head.count):
            if field_matters(head.text + s[i].name, s[i].name_len, self.codings):
                return False
        return True

    def answer(self, http_request request not None):
        """Answer with what is remembered for this request; False if there is nothing."""
        cdef file_state state
        cdef _File file
        cdef int fd
        if not self.files or not self.is_plain(request):
            return False
        found = self.files.get(PyBytes_FromStringAndSize(request.head.text + request.path_at, request.path_len))
        if found is None:
            return False
        file = <_File>found
        fd = open_state(PyBytes_AS_STRING(file.path), &state)
        if fd < 0:
            return False
        try:
            if memcmp(&state, &file.state, sizeof(state)) != 0:
                return False
            return request.respond_prepared(file.lines, fd, state.size)
        finally:
            close(fd)

    def remember(self, http_request request not None, bytes path not None, info, list fields not None):
        """This request is answered with the file at ``path``, whose status is ``info``, and these fields."""
        cdef _File file = _File.__new__(_File)
        cdef h1_out *o
        cdef int64_t size = info.st_size
        if size == 0 or not self.is_plain(request):
            return
        file.path = path
        file.state.dev = info.st_dev
        file.state.ino = info.st_ino
        file.state.size = size
        file.state.mtime_ns = info.st_mtime_ns
        o = output()
        for name, value in fields:
            put_field(o, name, value)
        put_field(o, "content-length", size)
        file.lines = taken(o)
        if len(self.files) >= MOST:
            self.files.clear()
        self.files[PyBytes_FromStringAndSize(request.head.text + request.path_at, request.path_len)] = file
