# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The fields of a message: `header_set`, a multi-map whose names are case-insensitive.

A set that belongs to a received message is a view of the bytes that came: `get`, `in` and `test` search them in place,
and only what is asked for becomes an object. The map is made when somebody wants all of it, or changes it. Names are
kept in lower case, values as text in ISO 8859-1, which maps each byte to one character and back (RFC 9110 5.5).

Cost: an object of 40 bytes for a received message; a dictionary and a list per name once it was filled.
"""

from coro.http.exceptions import LocalError

__all__ = ["header_set"]

# Fields whose value is a list or may be one: several lines mean the same as one with commas (RFC 9110 5.3).
# Set-Cookie is none, and Cookie lines are joined with semicolons (RFC 6265 5.4, RFC 9113 8.2.3).
_SINGLE = frozenset((
    "age", "authorization", "content-length", "content-location", "content-type", "date", "etag", "expires", "from",
    "host", "if-modified-since", "if-range", "if-unmodified-since", "last-modified", "location", "max-forwards",
    "origin", "proxy-authorization", "range", "referer", "retry-after", "server", "set-cookie", "user-agent",
))


cdef str field_name(object name):
    """A field's name in lower case."""
    if type(name) is str:
        return (<str>name).lower()
    if isinstance(name, (bytes, bytearray, memoryview)):
        return bytes(name).decode("latin-1").lower()
    if isinstance(name, str):
        return str(name).lower()
    raise LocalError(f"expected the name of a header as str or bytes, not {type(name).__name__}: {name!r}")


cdef str field_value(object value):
    if type(value) is str:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("latin-1")
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    raise LocalError(f"expected the value of a header as str, bytes or int, not {type(value).__name__}: {value!r}")


cdef class HeaderSource:
    """What a header_set reads from as long as nobody changes it."""

    cdef list pairs(self):
        return []

    cdef object first(self, const char *lower, Py_ssize_t n):
        return None


cdef class header_set:
    """header_set(lines=())\n--\n\n\
    The fields of a message: names without regard to case, values in the order in which they came.

    ``lines``: lines of the form ``"Name: value"``, pairs ``(name, value)``, or a mapping of names to a value or a list
    of values. ``hs[name]`` is the list of values or None; ``hs[name] = value`` adds one. ValueError for a line without
    a colon; ``LocalError`` for a name or value of another type than str, bytes or int.
    """

    def __init__(self, lines=()):
        self.map = {}
        self.source = None
        self.update(lines)

    cdef dict filled(self):
        cdef HeaderSource source
        if self.map is None:
            source = self.source
            self.map = {}
            if source is not None:
                for name, value in source.pairs():
                    self.append(name, value)
            self.source = None
        return self.map

    cdef int append(self, str lower, object value) except -1:
        cdef dict map = self.map
        cdef object there = map.get(lower)
        if there is None:
            map[lower] = [value]
        else:
            (<list>there).append(value)
        return 0

    def update(self, lines):
        """Add lines, pairs or the items of a mapping, as the constructor takes them."""
        self.filled()
        if isinstance(lines, header_set):
            lines = lines.items()
        elif hasattr(lines, "items"):
            for name, value in list(lines.items()):
                if isinstance(value, (list, tuple)):
                    for one in value:
                        self[name] = one
                else:
                    self[name] = value
            return
        for line in lines:
            if isinstance(line, (str, bytes)):
                self.crack(line)
            else:
                name, value = line
                self[name] = value

    def crack(self, line):
        """Add the line ``"Name: value"`` (str or bytes). ValueError without a colon."""
        if isinstance(line, bytes):
            line = line.decode("latin-1")
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"expected a header line with a colon, not {line!r}")
        self[name] = value.strip(" \t\r\n")

    def from_keywords(self, dict keywords):
        """Add ``{"content_type": "text/plain"}`` with dashes for underscores; returns the set itself."""
        for name, value in keywords.items():
            self[name.replace("_", "-")] = value
        return self

    def __getitem__(self, name):
        there = self.filled().get(field_name(name))
        return there if there is None else list(there)

    def __setitem__(self, name, value):
        self.filled()
        self.append(field_name(name), field_value(value))

    def __delitem__(self, name):
        del self.filled()[field_name(name)]

    def __contains__(self, name):
        return self.get(name) is not None

    def __len__(self):
        """The number of different names."""
        return len(self.filled())

    def __iter__(self):
        """The names, in lower case."""
        return iter(list(self.filled()))

    def __eq__(self, other):
        if isinstance(other, header_set):
            return self.filled() == (<header_set>other).filled()
        return NotImplemented

    def has_key(self, name):
        """Whether there is a value of that name."""
        return name in self

    def keys(self):
        """The names, in lower case."""
        return list(self.filled())

    def items(self):
        """``[(name, value)]``: a pair for each line; those of one name stand together."""
        return [(name, value) for name, values in self.filled().items() for value in values]

    def get(self, name, default=None):
        """The first value of that name, or ``default``."""
        cdef bytes lower
        cdef object there
        if self.source is not None:
            lower = field_name(name).encode("latin-1", "replace")
            there = self.source.first(lower, len(lower))
            return default if there is None else there
        there = self.filled().get(field_name(name))
        return default if there is None else (<list>there)[0]

    def get_one(self, name):
        """The value of that name, None if there is none. The values of several lines are joined by commas, where the
        standard lets a sender split the value (RFC 9110 5.3), Cookie by semicolons; ValueError for other names."""
        cdef str lower = field_name(name)
        there = self.filled().get(lower)
        if there is None:
            return None
        if len(there) == 1:
            return there[0]
        if lower in _SINGLE:
            raise ValueError(f"expected one header {lower!r}, and there are {len(there)}")
        return ("; " if lower == "cookie" else ", ").join(there)

    def get_all(self, name):
        """All values of that name; an empty list if there is none."""
        return list(self.filled().get(field_name(name), ()))

    def set_one(self, name, value):
        """Replace all values of that name by this one."""
        self.filled()[field_name(name)] = [field_value(value)]

    def setdefault(self, name, value):
        """Add the value unless there is one of that name; returns the first."""
        there = self.get(name)
        if there is not None:
            return there
        self[name] = value
        return field_value(value)

    def remove(self, name):
        """Remove all values of that name, if there are any."""
        self.filled().pop(field_name(name), None)

    def test(self, name, value):
        """Whether there is exactly this value of that name."""
        return value in self.filled().get(field_name(name), ())

    def copy(self):
        """Another set with the same values."""
        cdef header_set other = header_set.__new__(header_set)
        if self.source is not None:
            other.source = self.source
        else:
            other.map = {name: list(values) for name, values in self.filled().items()}
        return other

    def __str__(self):
        return "".join([f"{name}: {value}\r\n" for name, value in self.items()])

    def __repr__(self):
        return f"<header_set of {len(self.filled())} names: {', '.join(self.filled())}>"
