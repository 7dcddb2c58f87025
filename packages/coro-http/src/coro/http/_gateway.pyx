# cython: language_level=3, nonecheck=True
"""What WSGI and ASGI want to know of a request, made straight from its bytes.

A name such as `accept-encoding` is turned into `HTTP_ACCEPT_ENCODING`, or into lower case, once, and then looked up.
What a client made up is not kept: only names up to 32 bytes, and 512 of them. All fields of a request together are kept
as an environ of WSGI if they come again, up to 64 times a kilobyte.

Cost: about 60 ns a header; under WSGI half a microsecond for all headers that have come before as they are.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp

from coro.http._connection cimport http_request
from coro.http.h1 cimport HEAD_CHUNKED, Head, h1_span

from urllib.parse import unquote_to_bytes

from coro.capi cimport require_abi

require_abi()

DEF MOST_NAMES = 512
DEF LONGEST_NAME = 32
DEF MOST_FIELDS = 64
DEF LONGEST_FIELDS = 1024
DEF SEEN = 256

cdef dict wsgi_names = {}       # name as received -> key of the environ, None for one that is left out
cdef dict lower_names = {}

# Names whose meaning is taken by another key, or that a program must not see: with an underscore a name could stand for
# another one (CVE-2015-0219, Django), and Proxy would look like a variable of the environment (CVE-2016-5385).
cdef frozenset LEFT_OUT = frozenset({"PROXY"})


cdef object wsgi_name(bytes name):
    cdef object key
    text = name.decode("latin-1").upper()
    if "_" in text or text in LEFT_OUT:
        key = None
    elif text == "CONTENT-TYPE":
        key = "CONTENT_TYPE"
    elif text == "CONTENT-LENGTH":
        key = "CONTENT_LENGTH"
    else:
        key = "HTTP_" + text.replace("-", "_")
    if len(wsgi_names) < MOST_NAMES and len(name) <= LONGEST_NAME:
        wsgi_names[name] = key
    return key


cdef bytes lower_name(bytes name):
    cdef bytes lower = name.lower()
    if len(lower_names) < MOST_NAMES and len(name) <= LONGEST_NAME:
        lower_names[name] = lower
    return lower


cdef object decoded(const char *p, Py_ssize_t n):
    """A path, percent-decoded."""
    if memchr(p, 37, n) == NULL:
        return None
    return unquote_to_bytes(PyBytes_FromStringAndSize(p, n))


cdef class Environs:
    """The environs of WSGI (PEP 3333) for the requests to one address of a server.

    ``base`` is what is the same for all of them; ``root`` is taken from the beginning of paths, if it stands there.

    An environ is a copy of one that has most of it. Clients, and proxies even more, send the same fields again and
    again. Fields that have come twice are kept, as bytes, with the environ made of them, so that the next request with
    the same bytes costs a copy and no look at any of its fields. Only short ones are kept, and not many.
    """

    def __init__(self, dict base not None, str root not None):
        self.root = root
        # Where each request has a value of its own there is one already, so that copies have the room for it; these
        # are what most have.
        self.base = {
            **base, "REQUEST_METHOD": "GET", "PATH_INFO": "", "QUERY_STRING": "", "REQUEST_URI": "", "RAW_URI": "",
            "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "", "REMOTE_PORT": "", "wsgi.input": None,
        }
        self.known = {}

    cdef dict with_fields(self, Head head):
        """A new environ with the fields of a request."""
        cdef h1_span *s = head.spans()
        cdef uint32_t i
        cdef dict result = self.base.copy()
        cdef bytes name
        for i in range(head.count):
            name = PyBytes_FromStringAndSize(head.text + s[i].name, s[i].name_len)
            key = wsgi_names.get(name, name)
            if key is name:
                key = wsgi_name(name)
            if key is None:
                continue
            value = PyUnicode_DecodeLatin1(head.text + s[i].value, s[i].value_len, NULL)
            if key in result:
                result[key] = result[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
            else:
                result[key] = value
        if head.flags & HEAD_CHUNKED:
            result.pop("CONTENT_LENGTH", None)
        return result

    cdef dict known_or_new(self, Head head):
        cdef h1_span *s = head.spans()
        cdef Py_ssize_t at, n
        cdef Py_hash_t h
        cdef bytes fields
        cdef dict made
        if head.count == 0:
            return self.base.copy()
        at = s[0].name
        n = head.text_len - at
        if n > LONGEST_FIELDS:
            return self.with_fields(head)
        fields = PyBytes_FromStringAndSize(head.text + at, n)
        found = self.known.get(fields)
        if found is not None:
            return (<dict>found).copy()
        made = self.with_fields(head)
        h = hash(fields)
        if self.seen[h & (SEEN - 1)] != h:
            self.seen[h & (SEEN - 1)] = h
            return made
        if len(self.known) >= MOST_FIELDS:
            self.known.clear()
        self.known[fields] = made
        return made.copy()

    cdef dict environ(self, http_request request, object address, object port, object body):
        """The environ of a request from ``address`` and ``port`` (None: it has none); ``body`` is its wsgi.input."""
        cdef Head head = request.head
        cdef dict result = self.known_or_new(head)
        cdef const char *target = head.text + request.path_at
        cdef Py_ssize_t path = request.path_len, all = request.rest_len
        if head.method_len != 3 or memcmp(head.text, b"GET", 3) != 0:
            result["REQUEST_METHOD"] = PyUnicode_DecodeLatin1(head.text, head.method_len, NULL)
        if not head.minor:
            result["SERVER_PROTOCOL"] = "HTTP/1.0"
        uri = PyUnicode_DecodeLatin1(head.text + head.target_at, head.target_len, NULL)
        result["REQUEST_URI"] = result["RAW_URI"] = uri
        whole = decoded(target, path)
        if whole is not None:
            info = whole.decode("latin-1")
        elif path == head.target_len:
            info = uri
        else:
            info = PyUnicode_DecodeLatin1(target, path, NULL)
        if self.root and info.startswith(self.root) and info[len(self.root):len(self.root) + 1] in ("", "/"):
            info = info[len(self.root):]
        result["PATH_INFO"] = info
        if path < all:
            result["QUERY_STRING"] = PyUnicode_DecodeLatin1(target + path + 1, all - path - 1, NULL)
        result["REMOTE_ADDR"] = address
        if port is None:
            del result["REMOTE_PORT"]
        else:
            result["REMOTE_PORT"] = port
        result["wsgi.input"] = body
        return result


def scope_headers(http_request request not None):
    """The headers of a request as ASGI wants them: ``[(name in lower case, value)]``, both bytes."""
    cdef Head head = request.head
    cdef h1_span *s = head.spans()
    cdef uint32_t i
    cdef list result = []
    cdef bytes name, lower
    for i in range(head.count):
        name = PyBytes_FromStringAndSize(head.text + s[i].name, s[i].name_len)
        lower = lower_names.get(name)
        if lower is None:
            lower = lower_name(name)
        result.append((lower, PyBytes_FromStringAndSize(head.text + s[i].value, s[i].value_len)))
    return result


def scope_path(http_request request not None):
    """The path as ASGI wants it: decoded as UTF-8, and as it came."""
    cdef Head head = request.head
    cdef const char *target = head.text + request.path_at
    raw = PyBytes_FromStringAndSize(target, request.path_len)
    whole = decoded(target, request.path_len)
    return (raw if whole is None else whole).decode("utf-8", "replace"), raw
