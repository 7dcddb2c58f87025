# Socket addresses between Python and the kernel: part of _net/sock.pyx (included there; a module of its own
# would only add a call across a module wall per datagram).
#
#   INET    (host, port)                       host '' or None: any address; '<broadcast>'
#   INET6   (host, port[, flowinfo[, scope]])  '%zone' behind the host is looked up with if_nametoindex(3);
#                                              returned as 4-tuples, as the standard library does
#   UNIX    str, bytes or os.PathLike; b'\0name' is the abstract name space of Linux (unix(7)).
#           Returned as str (surrogateescape), as bytes for abstract names, '' for an unnamed socket.
#
# Hosts are literals here; names are resolved before, by connect() alone.


cdef extern from *:
    """
    /* inet_ntop(3) prints with snprintf, which is a tenth of the user time of accepting a connection. */
    static PyObject *coro_ipv4_str(const void *address)
    {
        const unsigned char *byte = address;
        char text[16], *p = text;
        PyObject *s;
        int i, v;
        for (i = 0; i < 4; i++) {
            v = byte[i];
            if (i)
                *p++ = '.';
            if (v >= 100) {
                *p++ = (char)('0' + v / 100);
                v %= 100;
                *p++ = (char)('0' + v / 10);
            } else if (v >= 10)
                *p++ = (char)('0' + v / 10);
            *p++ = (char)('0' + v % 10);
        }
        s = PyUnicode_New(p - text, 127);
        if (s)
            memcpy(PyUnicode_1BYTE_DATA(s), text, (size_t)(p - text));
        return s;
    }
    """
    str coro_ipv4_str(const void *)


cdef inline int _port(object value) except -1:
    cdef object number
    try:
        number = _index(value)
    except TypeError:
        raise TypeError(f"a port is an int from 0 to 65535, not {type(value).__name__}: {value!r}") from None
    if not 0 <= number <= 65535:
        raise OverflowError(f"a port is an int from 0 to 65535, not {number}")
    return number


cdef str _host(object value):
    # '' stands for "any address"
    if value is None:
        return ""
    if type(value) is str:
        host = value
    elif isinstance(value, str):
        host = str(value)
    elif isinstance(value, (bytes, bytearray)):
        try:
            host = bytes(value).decode("ascii")
        except UnicodeDecodeError:
            raise ValueError(f"a host given as bytes must be ASCII, not {value!r}") from None
    else:
        raise TypeError(f"a host is a str (or None for any address), not {type(value).__name__}: {value!r}")
    if "\0" in host:
        raise ValueError(f"a host cannot contain a NUL character: {host!r}")
    return host


cdef int _check_tuple(object address, int domain) except -1:
    cdef Py_ssize_t n
    if not isinstance(address, tuple):
        from coro._net.spelling import spelled
        raise TypeError(f"an address of this socket is a tuple (host, port), "
                        f"not {type(address).__name__}: {address!r}{spelled(address)}")
    n = len(address)
    if n != 2 and (domain == AF_INET or not 2 <= n <= 4):
        want = "(host, port)" if domain == AF_INET else "(host, port[, flowinfo[, scope_id]])"
        raise TypeError(f"an address of this socket is {want}, not a tuple of {n} items: {address!r}")
    return 0


cdef bint _is_literal(int domain, str host) except -1:
    """Is `host` an address, not a name, for a socket of this domain?  The other family's literal raises."""
    cdef unsigned char raw[16]
    cdef str bare
    if not host or (domain == AF_INET and host == "<broadcast>"):
        return True
    bare = host
    if "%" in host:
        bare = host.partition("%")[0]
    try:
        text = bare.encode("ascii")
    except UnicodeEncodeError:
        return False
    four = inet_pton(AF_INET, text, raw) == 1
    six = not four and inet_pton(AF_INET6, text, raw) == 1
    if domain == AF_INET:
        if six:
            raise ValueError(f"an IPv4 socket cannot use the IPv6 address {host!r}: make it with AF.INET6")
        return four and bare is host
    if four:
        raise ValueError(f"an IPv6 socket cannot use the IPv4 address {host!r}: write it as '::ffff:{host}'")
    return six


cdef bytes _unix_path(object address):
    if isinstance(address, (bytearray, memoryview)):
        path = bytes(address)
    else:
        try:
            path = _fsencode(address)
        except TypeError:
            raise TypeError("the address of a UNIX socket is a path (str, bytes or os.PathLike), "
                            f"not {type(address).__name__}: {address!r}") from None
    return path


cdef socklen_t _parse(int domain, object address, sockaddr_storage *out) except 0:
    """Fill `out`, return its length.  ValueError for a name: nothing is resolved here."""
    cdef sockaddr_in *in4 = <sockaddr_in *>out
    cdef sockaddr_in6 *in6 = <sockaddr_in6 *>out
    cdef sockaddr_un *un = <sockaddr_un *>out
    cdef Py_ssize_t n, room
    cdef const char *p
    memset(out, 0, sizeof(sockaddr_storage))
    if domain == AF_INET:
        _check_tuple(address, domain)
        host = _host(address[0])
        port = _port(address[1])
        in4.sin_family = AF_INET
        in4.sin_port = htons(port)
        if host == "<broadcast>":
            in4.sin_addr.s_addr = 0xffffffff
        elif host:
            if not _is_literal(domain, host) or inet_pton(AF_INET, host.encode("ascii"), &in4.sin_addr) != 1:
                raise ValueError(f"{host!r} is not a numeric IPv4 address; only connect() resolves names")
        return sizeof(sockaddr_in)
    if domain == AF_INET6:
        _check_tuple(address, domain)
        host = _host(address[0])
        port = _port(address[1])
        in6.sin6_family = AF_INET6
        in6.sin6_port = htons(port)
        if len(address) > 2:
            flow = _index(address[2])
            if not 0 <= flow <= 0xfffff:
                raise OverflowError(f"flowinfo is an int from 0 to 0xfffff, not {flow}")
            in6.sin6_flowinfo = htonl(flow)
        if len(address) > 3:
            scope = _index(address[3])
            if not 0 <= scope <= 0xffffffff:
                raise OverflowError(f"a scope id is an int from 0 to 4294967295, not {scope}")
            in6.sin6_scope_id = scope
        if host:
            if not _is_literal(domain, host):
                raise ValueError(f"{host!r} is not a numeric IPv6 address; only connect() resolves names")
            bare, percent, zone = host.partition("%")
            inet_pton(AF_INET6, bare.encode("ascii"), &in6.sin6_addr)
            if percent:
                in6.sin6_scope_id = _zone(zone, host)
        return sizeof(sockaddr_in6)
    if domain == AF_UNIX:
        path = _unix_path(address)
        n = len(path)
        room = coro_sun_path_size()
        un.sun_family = AF_UNIX
        p = path
        if n and p[0] == 0:
            if n > room:
                raise ValueError(f"an abstract UNIX name has at most {room} bytes with its NUL, not {n}")
            memcpy(un.sun_path, p, n)
            return SUN_PATH_OFFSET + n
        if n > room - 2:
            raise ValueError(f"the path of a UNIX socket has at most {room - 2} bytes, not {n}: "
                             "use a shorter one, or a relative one")
        if b"\0" in path:
            raise ValueError(f"the path of a UNIX socket cannot contain a NUL byte: {path!r}")
        memcpy(un.sun_path, p, n)
        # no path at all asks Linux for an abstract name of its own choice (unix(7), "autobind")
        return SUN_PATH_OFFSET + (n + 1 if n else 0)
    raise ValueError(f"a descriptor of domain {domain} has no addresses (AF.INET, AF.INET6 and AF.UNIX have)")


cdef uint32_t _zone(str zone, str host) except? 0:
    cdef unsigned int index
    if zone.isdigit() and zone.isascii() and len(zone) <= 10 and int(zone) <= 0xffffffff:
        return int(zone)
    index = if_nametoindex(_fsencode(zone)) if zone and len(zone) < 64 and "\0" not in zone else 0
    if index == 0:
        raise ValueError(f"there is no network interface {zone!r} (in the address {host!r})")
    return index


cdef object _format(const sockaddr_storage *sa, socklen_t length):
    """The Python form of what the kernel returned; None where there is no address or we know no form."""
    cdef const sockaddr_in *in4 = <const sockaddr_in *>sa
    cdef const sockaddr_in6 *in6 = <const sockaddr_in6 *>sa
    cdef const sockaddr_un *un = <const sockaddr_un *>sa
    cdef char text[64]
    cdef Py_ssize_t n
    if length < sizeof(sa_family_t):
        return None
    if length > sizeof(sockaddr_storage):
        length = sizeof(sockaddr_storage)       # the kernel says how long it would have been
    if sa.ss_family == AF_INET and length >= sizeof(sockaddr_in):
        return (coro_ipv4_str(&in4.sin_addr), <int>ntohs(in4.sin_port))
    if sa.ss_family == AF_INET6 and length >= sizeof(sockaddr_in6):
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text))
        return (PyUnicode_FromString(text), <int>ntohs(in6.sin6_port), <unsigned int>ntohl(in6.sin6_flowinfo),
                <unsigned int>in6.sin6_scope_id)
    if sa.ss_family == AF_UNIX:
        n = <Py_ssize_t>length - <Py_ssize_t>SUN_PATH_OFFSET
        if n <= 0:
            return ""
        if un.sun_path[0] == 0:
            return PyBytes_FromStringAndSize(un.sun_path, n) if _LINUX else ""
        return PyUnicode_DecodeFSDefaultAndSize(un.sun_path, strnlen(un.sun_path, n))
    return None
