# The C face of _gateway.pyx: what wsgi.pyx makes environs with.

from coro.http._connection cimport http_request
from coro.http.h1 cimport Head


cdef class Environs:
    cdef dict base              # what each environ has, with values for what each request has of its own
    cdef str root
    cdef dict known             # fields as they came -> the environ made of them
    cdef Py_hash_t[256] seen    # of fields that have come, and are not in `known`

    cdef dict with_fields(self, Head head)
    cdef dict known_or_new(self, Head head)
    cdef dict environ(self, http_request request, object address, object port, object body)
