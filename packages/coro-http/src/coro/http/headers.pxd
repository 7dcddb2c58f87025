# The fields of a message: a source that hands them out, and the multi-map that programs see.

cdef class HeaderSource:
    cdef list pairs(self)                                           # [(name in lower case, value)], both str
    cdef object first(self, const char *lower, Py_ssize_t n)        # the first value of that name as str, or None


cdef class header_set:
    cdef HeaderSource source        # not None: nothing was changed, and nothing else is set
    cdef dict map                   # lower-case name -> list of values; None as long as `source` has all
    cdef dict filled(self)
    cdef int append(self, str lower, object value) except -1


cdef str field_name(object name)
cdef str field_value(object value)
