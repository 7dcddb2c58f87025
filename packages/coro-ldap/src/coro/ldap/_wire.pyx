# cython: language_level=3, nonecheck=True, boundscheck=False, wraparound=False, freethreading_compatible=False
"""The hot paths of LDAP: cutting messages out of a stream, and entries of search results both ways.

    framer = Framer()
    for message_id, tag, payload in framer.receive(sock.recv(65536)):
        ...

A search of ten thousand entries is ten thousand messages of one kind; everything else is a handful.  So entries are
read and written here, in C on top of `asn1/_ber.h`, and the other messages in Python (protocol.py), which gets their
bytes.

    LDAPMessage ::= SEQUENCE { messageID INTEGER (0..maxInt), protocolOp CHOICE ..., controls [0] Controls OPTIONAL }
    SearchResultEntry ::= [APPLICATION 4] SEQUENCE { objectName LDAPDN, attributes PartialAttributeList }
    PartialAttribute ::= SEQUENCE { type AttributeDescription, vals SET OF value AttributeValue }
    (RFC 4511, 4.1.1, 4.1.7 and 4.5.2)

Cost: 60 ns for an attribute of one value, which are a list and a bytes object; names of attributes are shared by all
entries.  A piece of a message that is not whole is kept as it came; memory never follows an announced length.  Bytes
are copied once more only for messages that came in pieces.
"""

from coro.asn1.ber cimport (
    BER_CLASS,
    BER_OK,
    BER_SHORT,
    BER_STRUCTURED,
    ber_get_integer,
    ber_out,
    ber_put,
    ber_put_element,
    ber_put_header,
    ber_put_integer,
    ber_read,
    ber_tlv,
    ber_used,
    broken_header,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp

from coro.asn1.exceptions import DecodeError
from coro.ldap.exceptions import LocalError, ProtocolError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    SEQUENCE_ = 16
    SET_ = 17
    ENUMERATED_ = 10
    INTEGER_ = 2
    OCTETS = 4
    APPLICATION = 0x40
    CONTEXT = 0x80
    ENTRY = 4
    # RFC 4511, 4.1.1.1.
    LARGEST_ID = 0x7FFFFFFF

#: Bytes of a message that a `Framer` takes unless told otherwise.
MAX_MESSAGE = 1 << 20

cdef object NONE = ()


cdef class Entry:
    """Entry(dn, attributes=None, controls=())

    An entry of a directory: its name and its attributes.

    dn: text.  attributes: a dict of names to lists of bytes; it is not copied.  controls: those that came with it.

    `entry["cn"]` are the values of an attribute as bytes, `entry.text("cn")` is the first one as text.  The case of
    names does not matter; `attributes` has them as the server wrote them.
    """

    cdef readonly str dn
    cdef readonly dict attributes
    cdef readonly object controls
    cdef dict _folded
    cdef object __weakref__

    def __init__(self, dn, attributes=None, controls=()):
        self.dn = dn
        self.attributes = {} if attributes is None else attributes
        self.controls = controls

    cdef str _name(self, object name):
        """The name as it stands in the dict; None if it is not there."""
        if name in self.attributes:
            return name
        if self._folded is None or len(self._folded) != len(self.attributes):
            self._folded = {key.lower(): key for key in self.attributes}
        return self._folded.get(name.lower())

    def __getitem__(self, str name not None):
        """The values of an attribute, a list of bytes.  Raises KeyError if the entry has none that was read."""
        cdef str found = self._name(name)
        if found is None:
            raise KeyError(name)
        return self.attributes[found]

    def get(self, str name not None, default=None):
        """The values of an attribute, a list of bytes; `default` if there are none."""
        cdef str found = self._name(name)
        return default if found is None else self.attributes[found]

    def first(self, str name not None, default=None):
        """The first value of an attribute as bytes; `default` if there is none."""
        values = self.get(name)
        return values[0] if values else default

    def text(self, str name not None, default=None):
        """The first value of an attribute as text; `default` if there is none.  Raises UnicodeDecodeError if it is no
        UTF-8."""
        values = self.get(name)
        return values[0].decode("utf-8") if values else default

    def texts(self, str name not None):
        """The values of an attribute as a list of str, empty if there are none.  Raises UnicodeDecodeError."""
        return [value.decode("utf-8") for value in self.get(name, ())]

    def with_options(self, str name not None):
        """All descriptions of an attribute, such as cn and cn;lang-de, with their values (RFC 4512, 2.5)."""
        cdef str base = name.lower()
        return {key: values for key, values in self.attributes.items() if key.lower().partition(";")[0] == base}

    def __contains__(self, name):
        return isinstance(name, str) and self._name(name) is not None

    def __iter__(self):
        return iter(self.attributes)

    def __len__(self):
        return len(self.attributes)

    def keys(self):
        """The names of the attributes."""
        return self.attributes.keys()

    def values(self):
        """The lists of values."""
        return self.attributes.values()

    def items(self):
        """Pairs of a name and a list of values."""
        return self.attributes.items()

    def __eq__(self, other):
        if not isinstance(other, Entry):
            return NotImplemented
        return self.dn == (<Entry>other).dn and self.attributes == (<Entry>other).attributes

    __hash__ = None

    def __reduce__(self):
        return Entry, (self.dn, self.attributes, self.controls)

    def __repr__(self):
        return f"<Entry {self.dn!r} with {len(self.attributes)} attributes>"


cdef enum:
    # What objects cost beside the bytes of the message: an Entry with its dict, its name and its place in a list; an
    # attribute with its list and its share of the dict; a value.
    _ENTRY_WEIGHT = 320
    _ATTRIBUTE_WEIGHT = 192
    _VALUE_WEIGHT = 56
    # Bytes of a name that is remembered.
    _LONGEST_NAME = 128


cdef class Framer:
    """Framer(max_message=1048576, entries=True)

    Cuts messages out of a stream.

    max_message: bytes of a message at most.  entries: read entries of search results here.  After a ProtocolError the
    place of the next message is unknown: every later call raises it again.  weights: about how many bytes of memory the
    lists of entries of the last call take, one number for each; small values cost much more than they have bytes.
    """

    cdef readonly Py_ssize_t max_message
    cdef readonly list weights
    cdef Py_ssize_t _weight     # of the entry that is being read
    cdef bint _entries
    cdef list _parts
    cdef Py_ssize_t _have
    cdef Py_ssize_t _need
    cdef list _names
    cdef object _failed

    def __init__(self, max_message=MAX_MESSAGE, entries=True):
        if max_message < 64:
            raise LocalError(f"expected at least 64 bytes for a message, got {max_message}")
        self.max_message = max_message
        self._entries = entries
        self._parts = []
        self._names = []
        self.weights = []

    @property
    def buffered(self):
        """Bytes of a message that is not whole."""
        return self._have

    @property
    def failed(self):
        """The ProtocolError that the next call raises; None while all is well."""
        return self._failed

    def __repr__(self):
        return f"<Framer with {self._have} bytes of a message>"

    def receive(self, bytes data not None):
        """Take what has arrived, and return the messages that are whole: a list of (id, tag, payload).

        The payload is the whole message as bytes.  For entries of search results (tag 4) it is a list of `Entry`;
        entries of one search that follow each other are in one list.  Raises ProtocolError; messages before the bad one
        are returned first, and the error comes with the next call.
        """
        cdef list found = []
        self.weights = []
        if self._failed is not None:
            raise self._failed
        if self._have:
            self._parts.append(data)
            self._have += PyBytes_GET_SIZE(data)
            if self._have < self._need:
                return found
            data = b"".join(self._parts)
            self._parts = []
            self._have = 0
        try:
            self._cut(data, found)
        except DecodeError as exc:
            self._failed = ProtocolError(f"no LDAP message: {exc}")
            self._failed.__cause__ = exc
        except ProtocolError as exc:
            self._failed = exc
        if self._failed is not None and not found:
            raise self._failed
        return found

    def close(self):
        """Say that nothing more comes.  Raises ProtocolError if a message was begun."""
        if self._failed is not None:
            raise self._failed
        if self._have:
            raise ProtocolError(f"the stream ended within a message, of which {self._have} bytes had come")

    cdef int _keep(self, bytes data, Py_ssize_t at, Py_ssize_t need) except -1:
        cdef bytes rest = data[at:] if at else data
        self._parts = [rest]
        self._have = PyBytes_GET_SIZE(rest)
        self._need = need
        return 0

    cdef int _cut(self, bytes data, list found) except -1:
        cdef const uint8_t *base = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), at = 0, end, body, place
        cdef ber_tlv tlv
        cdef int code
        cdef int64_t number, last = -1
        cdef list batch = None
        while at < size:
            if base[at] != 0x30:
                raise ProtocolError(
                    f"expected the tag 30 of a message, got {base[at]:02x}; is the peer an LDAP server?"
                )
            code = ber_read(base + at, <size_t>(size - at), 0, &tlv)
            if code == BER_SHORT:
                # At most 6 bytes: the length is complete with the next one, or not.
                self._keep(data, at, size - at + 1)
                return 0
            if code != BER_OK:
                broken_header(code, at)
            if <Py_ssize_t>tlv.length + tlv.header > self.max_message:
                raise ProtocolError(
                    f"expected a message of at most {self.max_message} bytes, got one of {tlv.length + tlv.header}; "
                    "raise max_message if that is right"
                )
            end = at + tlv.header + <Py_ssize_t>tlv.length
            if end > size:
                self._keep(data, at, end - at)
                return 0
            body = at + tlv.header
            read(base, body, end, &tlv)
            if tlv.tag != INTEGER_ or tlv.flags or not 1 <= tlv.length <= 5:
                raise ProtocolError("expected the id of a message, an INTEGER from 0 to 2147483647 (RFC 4511, 4.1.1.1)")
            number = ber_get_integer(base + body + tlv.header, tlv.length)
            if not 0 <= number <= LARGEST_ID:
                raise ProtocolError(f"expected the id of a message from 0 to {LARGEST_ID}, got {number}")
            body += tlv.header + <Py_ssize_t>tlv.length
            read(base, body, end, &tlv)
            if tlv.flags & BER_CLASS != APPLICATION:
                raise ProtocolError(
                    f"expected an operation, whose class is application, got tag {tlv.tag} of another", number
                )
            if tlv.tag == ENTRY and self._entries:
                if not tlv.flags & BER_STRUCTURED:
                    raise ProtocolError("expected an entry, got a primitive element", number, ENTRY)
                self._weight = 0
                entry = self._entry(base, body + tlv.header, body + tlv.header + <Py_ssize_t>tlv.length)
                body += tlv.header + <Py_ssize_t>tlv.length
                if body < end:
                    (<Entry>entry).controls = PyBytes_FromStringAndSize(<char *>base + body, end - body)
                self._weight += end - at + _ENTRY_WEIGHT
                if number == last:
                    PyList_Append(batch, entry)
                    # An index of its own: here -1 is no place in a list.
                    place = PyList_GET_SIZE(self.weights) - 1
                    self.weights[place] = self._weight + <Py_ssize_t>self.weights[place]
                else:
                    batch = [entry]
                    PyList_Append(self.weights, self._weight)
                    last = number
                    PyList_Append(found, (number, ENTRY, batch))
            else:
                last = -1
                PyList_Append(
                    found, (number, tlv.tag, PyBytes_FromStringAndSize(<char *>base + at, end - at))
                )
            at = end
        return 0

    cdef Entry _entry(self, const uint8_t *base, Py_ssize_t at, Py_ssize_t end):
        cdef ber_tlv tlv, inner
        cdef Entry entry = Entry.__new__(Entry)
        cdef dict attributes = {}
        cdef list values, had
        cdef Py_ssize_t place = 0, close_, last, count
        cdef str name
        read(base, at, end, &tlv)
        if tlv.tag != OCTETS or tlv.flags:
            raise ProtocolError("expected the name of an entry, an OCTET STRING (RFC 4511, 4.5.2)")
        at += tlv.header
        entry.dn = PyUnicode_DecodeUTF8(<char *>base + at, tlv.length, "surrogateescape")
        at += tlv.length
        read(base, at, end, &tlv)
        if tlv.tag != SEQUENCE_ or tlv.flags != BER_STRUCTURED or at + tlv.header + <Py_ssize_t>tlv.length != end:
            raise ProtocolError("expected the attributes of an entry, a SEQUENCE that ends with it (RFC 4511, 4.5.2)")
        at += tlv.header
        while at < end:
            read(base, at, end, &tlv)
            if tlv.tag != SEQUENCE_ or tlv.flags != BER_STRUCTURED:
                raise ProtocolError("expected an attribute, a SEQUENCE (RFC 4511, 4.1.7)")
            at += tlv.header
            last = at + <Py_ssize_t>tlv.length
            read(base, at, last, &inner)
            if inner.tag != OCTETS or inner.flags:
                raise ProtocolError("expected the name of an attribute, an OCTET STRING (RFC 4511, 4.1.7)")
            at += inner.header
            name = self._shared_name(base + at, inner.length, place)
            place += 1
            at += inner.length
            read(base, at, last, &inner)
            if (
                inner.tag != SET_
                or inner.flags != BER_STRUCTURED
                or at + inner.header + <Py_ssize_t>inner.length != last
            ):
                raise ProtocolError("expected the values of an attribute, a SET that ends with it (RFC 4511, 4.1.7)")
            at += inner.header
            values = []
            count = 0
            while at < last:
                count += 1
                read(base, at, last, &inner)
                if inner.tag != OCTETS or inner.flags:
                    raise ProtocolError("expected a value, an OCTET STRING (RFC 4511, 4.1.7)")
                at += inner.header
                PyList_Append(values, PyBytes_FromStringAndSize(<char *>base + at, inner.length))
                at += inner.length
            self._weight += _ATTRIBUTE_WEIGHT + count * _VALUE_WEIGHT
            if name in attributes:
                # A server that names an attribute twice; nothing is lost.
                had = attributes[name]
                had.extend(values)
            else:
                attributes[name] = values
        entry.attributes = attributes
        entry.controls = NONE
        return entry

    cdef str _shared_name(self, const uint8_t *p, Py_ssize_t size, Py_ssize_t place):
        """The name of an attribute; entries of one search mostly have the same ones in the same order."""
        cdef Py_ssize_t known
        cdef const char *text
        cdef str name
        cdef list names = self._names
        if place < len(names):
            name = <str>names[place]
            text = PyUnicode_AsUTF8AndSize(name, &known)
            if known == size and memcmp(text, p, size) == 0:
                return name
        # Replaced, not escaped: no name of an attribute has such bytes, and each name has to have a UTF-8 form.
        name = PyUnicode_DecodeUTF8(<char *>p, size, "replace")
        if size > _LONGEST_NAME:
            # These are kept as long as the connection, so nobody may fill memory with them.
            return name
        if place < len(names):
            names[place] = name
        elif place < 256:
            names.append(name)
        return name


def plain_result(bytes data not None):
    """plain_result(data)

    (id, tag, code, matched name, diagnostic message) of a message with an LDAPResult (RFC 4511, 4.1.9) and nothing
    else: what nearly every answer is.  None for any other message, also for one that is wrong; the complete reader says
    what it is.
    """
    cdef const uint8_t *base = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), at
    cdef ber_tlv tlv
    cdef int tag
    cdef int64_t number, code
    cdef str matched, diagnostic
    if not element(base, 0, end, SEQUENCE_, BER_STRUCTURED, &tlv) or tlv.header + <Py_ssize_t>tlv.length != end:
        return None
    at = tlv.header
    if not element(base, at, end, INTEGER_, 0, &tlv) or not 1 <= tlv.length <= 5:
        return None
    number = ber_get_integer(base + at + tlv.header, tlv.length)
    at += tlv.header + <Py_ssize_t>tlv.length
    if not 0 <= number <= LARGEST_ID or at >= end or ber_read(base + at, <size_t>(end - at), 0, &tlv) != BER_OK:
        return None
    tag = tlv.tag
    if tlv.flags != APPLICATION | BER_STRUCTURED or at + tlv.header + <Py_ssize_t>tlv.length != end:
        return None
    at += tlv.header
    if not element(base, at, end, ENUMERATED_, 0, &tlv) or not 1 <= tlv.length <= 5:
        return None
    code = ber_get_integer(base + at + tlv.header, tlv.length)
    at += tlv.header + <Py_ssize_t>tlv.length
    if not 0 <= code <= LARGEST_ID or not element(base, at, end, OCTETS, 0, &tlv):
        return None
    at += tlv.header
    matched = PyUnicode_DecodeUTF8(<char *>base + at, tlv.length, "surrogateescape")
    at += <Py_ssize_t>tlv.length
    if not element(base, at, end, OCTETS, 0, &tlv) or at + tlv.header + <Py_ssize_t>tlv.length != end:
        return None
    diagnostic = PyUnicode_DecodeUTF8(<char *>base + at + tlv.header, tlv.length, "surrogateescape")
    return number, tag, code, matched, diagnostic


cdef inline bint element(
    const uint8_t *base, Py_ssize_t at, Py_ssize_t end, uint32_t tag, uint8_t flags, ber_tlv *tlv
) noexcept:
    """Whether an element of this tag is there, whole."""
    return (
        at < end
        and ber_read(base + at, <size_t>(end - at), 0, tlv) == BER_OK
        and tlv.tag == tag
        and tlv.flags == flags
        and <Py_ssize_t>tlv.length <= end - at - tlv.header
    )


cdef inline int read(const uint8_t *base, Py_ssize_t at, Py_ssize_t end, ber_tlv *tlv) except -1:
    """A header whose content has to end before `end`."""
    cdef int code = ber_read(base + at, <size_t>(end - at), 0, tlv)
    if code != BER_OK:
        broken_header(code, at)
    if <Py_ssize_t>tlv.length > end - at - tlv.header:
        raise ProtocolError(f"expected an element of at most {end - at - tlv.header} bytes, got one of {tlv.length}")
    return 0


# ---- writing


cdef int no_room() except -1:
    raise LocalError("expected a message below 2 GiB, or there is no memory for it")


cdef bytes octets(object value):
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected a value as bytes or str, not {type(value).__name__}: {value!r:.60}")


cdef int put_octets(ber_out *out, object value) except -1:
    cdef bytes data = octets(value)
    if ber_put_element(out, OCTETS, 0, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
        no_room()
    return 0


cdef int put_raw(ber_out *out, bytes data) except -1:
    if ber_put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
        no_room()
    return 0


cdef int put_header(ber_out *out, int tag, uint8_t flags, size_t before) except -1:
    if ber_put_header(out, tag, flags, ber_used(out) - before) < 0:
        no_room()
    return 0


cdef int put_attributes(ber_out *out, object attributes, bint types_only) except -1:
    cdef list pairs = list(attributes.items() if hasattr(attributes, "items") else attributes)
    cdef size_t all_ = ber_used(out), one, values
    for name, held in reversed(pairs):
        one = values = ber_used(out)
        if not types_only:
            if isinstance(held, (str, bytes)):
                raise TypeError(f"expected a list of values of {name!r:.60}, got {held!r:.60}; write [{held!r:.60}]")
            for value in reversed(held if isinstance(held, (list, tuple)) else list(held)):
                put_octets(out, value)
        put_header(out, SET_, BER_STRUCTURED, values)
        put_octets(out, name)
        put_header(out, SEQUENCE_, BER_STRUCTURED, one)
    put_header(out, SEQUENCE_, BER_STRUCTURED, all_)
    return 0


cdef int put_id(ber_out *out, object message_id) except -1:
    cdef long long number = message_id
    if not 0 <= number <= LARGEST_ID:
        raise LocalError(f"expected the id of a message from 0 to {LARGEST_ID}, got {number}")
    if ber_put_integer(out, INTEGER_, 0, number) < 0:
        no_room()
    return 0


cdef bytes finished(ber_out *out):
    return PyBytes_FromStringAndSize(<char *>out.base + out.at, <Py_ssize_t>ber_used(out))


def encode_attributes(attributes, types_only=False):
    """encode_attributes(attributes, types_only=False)

    An AttributeList (RFC 4511, 4.7): a SEQUENCE of names with their values.

    attributes: a mapping, or pairs, of names to lists of bytes or str.  types_only: without the values.
    """
    cdef ber_out out
    out.base = NULL
    out.at = out.size = 0
    try:
        put_attributes(&out, attributes, types_only)
        return finished(&out)
    finally:
        free(out.base)


def encode_entry(message_id, dn, attributes, types_only=False, controls=b""):
    """encode_entry(message_id, dn, attributes, types_only=False, controls=b"")

    A whole message with an entry of a search result (RFC 4511, 4.5.2).

    message_id: of the search.  dn: text or bytes.  attributes: a mapping, or pairs, of names to lists of bytes or str.
    types_only: without the values.  controls: encoded, as `encode_controls` gives them.
    """
    cdef ber_out out
    cdef size_t op
    out.base = NULL
    out.at = out.size = 0
    try:
        put_raw(&out, controls)
        op = ber_used(&out)
        put_attributes(&out, attributes, types_only)
        put_octets(&out, dn)
        put_header(&out, ENTRY, APPLICATION | BER_STRUCTURED, op)
        put_id(&out, message_id)
        put_header(&out, SEQUENCE_, BER_STRUCTURED, 0)
        return finished(&out)
    finally:
        free(out.base)


def encode_message(message_id, op, controls=b""):
    """encode_message(message_id, op, controls=b"")

    A whole message (RFC 4511, 4.1.1).

    message_id: 0 to 2147483647.  op: the encoded operation.  controls: encoded, as `encode_controls` gives them.
    Raises LocalError for another id.
    """
    cdef ber_out out
    out.base = NULL
    out.at = out.size = 0
    try:
        put_raw(&out, controls)
        put_raw(&out, op)
        put_id(&out, message_id)
        put_header(&out, SEQUENCE_, BER_STRUCTURED, 0)
        return finished(&out)
    finally:
        free(out.base)


def encode_simple_bind(version, name, password):
    """encode_simple_bind(version, name, password)

    A bind with a password (RFC 4511, 4.2).

    version: 1 to 127.  name, password: text or bytes.  Raises LocalError for another version.
    """
    cdef ber_out out
    cdef bytes secret = octets(password)
    cdef long long number = version
    if not 1 <= number <= 127:
        raise LocalError(f"expected a version from 1 to 127, got {number} (RFC 4511, 4.2)")
    out.base = NULL
    out.at = out.size = 0
    try:
        if ber_put_element(&out, 0, CONTEXT, PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret)) < 0:
            no_room()
        put_octets(&out, name)
        if ber_put_integer(&out, INTEGER_, 0, number) < 0:
            no_room()
        put_header(&out, 0, APPLICATION | BER_STRUCTURED, 0)
        return finished(&out)
    finally:
        free(out.base)
