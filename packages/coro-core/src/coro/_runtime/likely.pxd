# Which way a branch goes, said to the C compiler: what rarely happens is laid out behind the function, so that what
# every request runs through is one piece of code. After each sleep that code has to come from the caches again, line by
# line. Cython defines the two macros in every file it writes. Use them only where it is certain: on errors, ends,
# reports.
# cython: language_level=3

cdef extern from *:
    bint likely(bint) noexcept nogil
    bint unlikely(bint) noexcept nogil
