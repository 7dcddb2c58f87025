# The version of the C-level interface (every .pxd of coro-core together). A module that cimports from coro-core calls
# `require_abi()` once at import: a mismatch means it was compiled against another coro-core than the one installed.
# The number and the digest below go together; `python3 tools/abi.py --update` writes both.
# layout: 706270ada60dcaa4
# cython: language_level=3

cdef enum:
    CORO_ABI = 19


cdef inline int require_abi() except -1:
    from coro._runtime.scheduler import abi_version
    if abi_version() != CORO_ABI:
        raise ImportError(f"this module was compiled against version {CORO_ABI} of coro-core's C interface, but the "
                          f"installed coro-core has version {abi_version()}; rebuild the module against it")
    return 0
