# cython: language_level=3
"""What WSGI and ASGI want to know of a request, made straight from its bytes.

A name such as `accept-encoding` is turned into `HTTP_ACCEPT_ENCODING`, or into lower case, once, and then looked up.
What a client made up is not kept: only names up to 32 bytes, and 512 of them.

Cost: about 60 ns a header.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport uint32_t
from libc.string cimport memchr

from coro.http._connection cimport http_request
from coro.http.h1 cimport HEAD_CHUNKED, Head, h1_span

from urllib.parse import unquote_to_bytes

from coro.capi cimport require_abi

require_abi()

DEF MOST_NAMES = 512
DEF LONGEST_NAME = 32

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


def environ(http_request request not None, dict base not None, str root):
    """The environ of WSGI (PEP 3333) for a request: ``base`` and what is the request's own, but for ``wsgi.input``.
    ``root`` is taken from the beginning of the path, if it stands there."""
    cdef Head head = request.head
    cdef h1_span *s = head.spans()
    cdef uint32_t i
    cdef dict result = base.copy()
    cdef bytes name
    cdef const char *target = head.text + request.path_at
    cdef Py_ssize_t path = request.path_len, all = request.rest_len
    result["REQUEST_METHOD"] = PyUnicode_DecodeLatin1(head.text, head.method_len, NULL)
    whole = decoded(target, path)
    info = PyUnicode_DecodeLatin1(target, path, NULL) if whole is None else whole.decode("latin-1")
    if root and info.startswith(root) and info[len(root):len(root) + 1] in ("", "/"):
        info = info[len(root):]
    result["PATH_INFO"] = info
    result["QUERY_STRING"] = "" if path >= all else PyUnicode_DecodeLatin1(target + path + 1, all - path - 1, NULL)
    uri = PyUnicode_DecodeLatin1(head.text + head.target_at, head.target_len, NULL)
    result["REQUEST_URI"] = result["RAW_URI"] = uri
    result["SERVER_PROTOCOL"] = "HTTP/1.1" if head.minor else "HTTP/1.0"
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
