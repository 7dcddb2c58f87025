# C-level face of the checks; explained in values.pyx.
# cython: language_level=3
from libc.stdint cimport uint64_t

cdef int check_pickle(const char *p, Py_ssize_t n, Py_ssize_t buffers, int max_depth, uint64_t max_memory) except -1
cdef int check_json(const char *p, Py_ssize_t n, int max_depth, uint64_t max_memory) except -1
