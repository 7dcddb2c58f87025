# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Looks through a pickle (or JSON text) before anything is made of it: no sockets, no clock, no threads.

A pickle is a program for a small stack machine. This module runs the same program over records of twelve bytes instead
of objects, and refuses whatever the pickler of protocol 5 does not write for plain values: so what passes can be given
to the interpreter's own ``pickle.loads``, which is fast, and cannot find a name to import. If a class occurs, the
caller is told, and loads with an allow-list. What is refused, and why:

* all opcodes of older protocols: GLOBAL, INST, OBJ, the extension registry, persistent ids, PUT with a number of the
  peer's choice (a memo of gigabytes), DUP, POP;
* a length beyond the end (BYTEARRAY8 allocates what it announces before it reads);
* changing what is not on top of the stack anew: BUILD on a class would set attributes of the class, APPENDS on
  something from the memo builds structures of any depth unseen;
* structures deeper than max_depth (hash, comparison and repr of a deep tuple end the process). Cycles go through
  lists, dicts and objects only, and the memo tells how deep a value is when it is referred to, so no path around them
  hides depth;
* a key whose hash needs more than KEY_WORK steps: ``t = (t, t)`` fifty times over is a hundred bytes, and 2**50 steps;
* many integers of more than 64 bits as keys: those have a hash that can be chosen;
* more objects than max_memory bytes hold: an empty set is one byte here and 216 in memory.

Cost: 3 to 8 ns an opcode, twelve bytes a value. Rejected: an Unpickler of our own (loads is as fast as it gets),
looking only for forbidden opcodes (says nothing about hashes and depth).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from coro.rpc.exceptions import DecodeError

__all__ = ["check", "check_message_pack", "check_text"]

cdef enum:                  # what a record stands for
    PLAIN = 0
    TEXT = 1
    TUPLE = 2
    LIST = 3
    DICT = 4
    SET = 5
    OBJECT = 6
    CLASS = 7
    BUFFER = 8
    HUGE = 9                # an integer of more than 64 bits

cdef enum:
    FROM_MEMO = 1
    KEY_WORK = 10000
    HUGE_KEYS = 1000
    NO_MEMO = 0xffffffff


cdef struct record:
    uint8_t kind
    uint8_t flags
    uint16_t depth
    uint32_t work           # steps its hash may take, as long as they matter
    uint32_t memo           # its place there, or NO_MEMO; in the memo, its place on the stack while it is there


cdef struct machine:
    const uint8_t *start
    const uint8_t *p
    const uint8_t *end
    record *stack
    Py_ssize_t count, room
    record *memo
    Py_ssize_t memo_count, memo_room
    uint32_t *marks
    Py_ssize_t marks_count, marks_room
    uint64_t memory, max_memory
    int max_depth
    Py_ssize_t buffers, buffers_used, huge_keys
    bint has_classes
    const char *why


cdef inline uint64_t le(const uint8_t *p, int n) noexcept nogil:
    cdef uint64_t v = 0
    cdef int i
    for i in range(n):
        v |= <uint64_t>p[i] << (8 * i)
    return v


cdef int fail(machine *m, const char *why) noexcept nogil:
    m.why = why
    return -1


cdef inline int charge(machine *m, uint64_t n) noexcept nogil:
    m.memory += n
    if m.memory > m.max_memory:
        return fail(m, b"more objects than max_memory allows")
    return 0


cdef int grow_stack(machine *m) noexcept nogil:
    cdef Py_ssize_t room = m.room * 2 if m.room else 64
    cdef record *new = <record *>realloc(m.stack, room * sizeof(record))
    if new == NULL:
        return fail(m, b"no memory")
    m.stack = new
    m.room = room
    return 0


cdef inline int push(machine *m, uint8_t kind, int depth, uint64_t work, uint64_t cost) noexcept nogil:
    cdef record *r
    if charge(m, cost) < 0:
        return -1
    if depth > m.max_depth:
        return fail(m, b"values nested deeper than max_depth")
    if m.count == m.room and grow_stack(m) < 0:
        return -1
    r = m.stack + m.count
    m.count += 1
    r.kind = kind
    r.flags = 0
    r.depth = <uint16_t>depth
    r.work = <uint32_t>(work if work < KEY_WORK + 1 else KEY_WORK + 1)
    r.memo = NO_MEMO
    return 0


cdef inline Py_ssize_t floor_(machine *m) noexcept nogil:
    """Below this nothing may be taken from the stack."""
    return m.marks[m.marks_count - 1] if m.marks_count else 0


cdef inline void consume(machine *m, record *r, int *depth, uint64_t *work) noexcept nogil:
    """It becomes part of something, and leaves the stack. The memo keeps it as it is now."""
    if r.depth + 1 > depth[0]:
        depth[0] = r.depth + 1
    work[0] += r.work
    if r.memo != NO_MEMO:
        m.memo[r.memo] = r[0]
        m.memo[r.memo].memo = NO_MEMO


cdef int make_tuple(machine *m, Py_ssize_t n) noexcept nogil:
    """Of the upper n values."""
    cdef int depth = 1
    cdef uint64_t work = 1
    cdef Py_ssize_t i
    if m.count - floor_(m) < n:
        return fail(m, b"a value that is not there")
    for i in range(m.count - n, m.count):
        consume(m, m.stack + i, &depth, &work)
    m.count -= n
    return push(m, TUPLE, depth, work, 48 + 8 * n)


cdef int add_items(machine *m, Py_ssize_t first, uint8_t kind) noexcept nogil:
    """The values from `first` on go into the container below them."""
    cdef record *target
    cdef record *r
    cdef int depth
    cdef uint64_t ignored = 0
    cdef Py_ssize_t i, n = m.count - first
    if first < 1 or first - 1 < floor_(m):
        return fail(m, b"a value that is not there")
    target = m.stack + first - 1
    if target.kind != kind or target.flags & FROM_MEMO:
        return fail(m, b"items for something that is no new list, dict or set")
    if kind == DICT and n & 1:
        return fail(m, b"a key without a value")
    depth = target.depth
    for i in range(first, m.count):
        r = m.stack + i
        if kind == SET or kind == DICT and not (i - first) & 1:
            if r.work > KEY_WORK:
                return fail(m, b"a key whose hash takes too long")
            if r.kind == HUGE:
                m.huge_keys += 1
                if m.huge_keys > HUGE_KEYS:
                    return fail(m, b"too many keys that are integers of more than 64 bits")
        consume(m, r, &depth, &ignored)
    target = m.stack + first - 1
    if depth > m.max_depth:
        return fail(m, b"values nested deeper than max_depth")
    target.depth = <uint16_t>depth
    if charge(m, n * (16 if kind == LIST else 48)) < 0:
        return -1
    m.count = first
    return 0


cdef Py_ssize_t pop_mark(machine *m) noexcept nogil:
    if m.marks_count == 0:
        return fail(m, b"a mark that is not there")
    m.marks_count -= 1
    return m.marks[m.marks_count]


cdef int data(machine *m, int width, uint8_t kind, uint64_t overhead) noexcept nogil:
    """A value with its length before it."""
    cdef uint64_t n
    if m.end - m.p < width:
        return fail(m, b"a length beyond the end")
    n = le(m.p, width)
    m.p += width
    if n > <uint64_t>(m.end - m.p):
        return fail(m, b"a length beyond the end")
    m.p += n
    return push(m, kind, 1, 1, overhead + n)


cdef int small(machine *m, Py_ssize_t width) noexcept nogil:
    if m.end - m.p < width:
        return fail(m, b"a value beyond the end")
    m.p += width
    return push(m, PLAIN, 1, 1, 32)


cdef int call(machine *m, int n_args) noexcept nogil:
    """A class (or registered function) and its arguments become an object."""
    cdef record *callee
    cdef int depth = 1
    cdef uint64_t work = 1
    cdef int i
    if m.count - floor_(m) < n_args + 1:
        return fail(m, b"a value that is not there")
    callee = m.stack + m.count - n_args - 1
    if callee.kind != CLASS or m.stack[m.count - n_args].kind != TUPLE:
        return fail(m, b"a call of something that is no class")
    if n_args == 2 and m.stack[m.count - 1].kind != DICT:
        return fail(m, b"a call of something that is no class")
    consume(m, callee, &depth, &work)
    depth = 1
    work = 1
    for i in range(n_args):
        consume(m, m.stack + m.count - 1 - i, &depth, &work)
    m.count -= n_args + 1
    return push(m, OBJECT, depth, work, 64)


cdef int memoize(machine *m) noexcept nogil:
    cdef Py_ssize_t room
    cdef record *new
    if m.count - floor_(m) < 1 or m.stack[m.count - 1].memo != NO_MEMO:
        return fail(m, b"a value that is not there")
    if charge(m, 24) < 0:
        return -1
    if m.memo_count == m.memo_room:
        room = m.memo_room * 2 if m.memo_room else 64
        new = <record *>realloc(m.memo, room * sizeof(record))
        if new == NULL:
            return fail(m, b"no memory")
        m.memo = new
        m.memo_room = room
    m.memo[m.memo_count] = m.stack[m.count - 1]
    m.memo[m.memo_count].memo = <uint32_t>(m.count - 1)
    m.stack[m.count - 1].memo = <uint32_t>m.memo_count
    m.memo_count += 1
    return 0


cdef int recall(machine *m, int width) noexcept nogil:
    cdef uint64_t i
    cdef record r
    if m.end - m.p < width:
        return fail(m, b"a value beyond the end")
    i = le(m.p, width)
    m.p += width
    if i >= <uint64_t>m.memo_count:
        return fail(m, b"a reference to what has not come")
    r = m.memo[i]
    if r.memo != NO_MEMO:
        r = m.stack[r.memo]
    if push(m, r.kind, r.depth, r.work, 16) < 0:
        return -1
    m.stack[m.count - 1].flags = FROM_MEMO
    return 0


cdef int mark(machine *m) noexcept nogil:
    cdef Py_ssize_t room
    cdef uint32_t *new
    if m.marks_count >= 2 * m.max_depth + 2:
        return fail(m, b"values nested deeper than max_depth")
    if m.marks_count == m.marks_room:
        room = m.marks_room * 2 if m.marks_room else 64
        new = <uint32_t *>realloc(m.marks, room * sizeof(uint32_t))
        if new == NULL:
            return fail(m, b"no memory")
        m.marks = new
        m.marks_room = room
    m.marks[m.marks_count] = <uint32_t>m.count
    m.marks_count += 1
    return 0


cdef int build(machine *m) noexcept nogil:
    cdef record *target
    cdef int depth
    cdef uint64_t work
    if m.count - floor_(m) < 2:
        return fail(m, b"a value that is not there")
    target = m.stack + m.count - 2
    if target.kind != OBJECT or target.flags & FROM_MEMO:
        return fail(m, b"a state for something that is no new object")
    depth = target.depth
    work = target.work
    consume(m, m.stack + m.count - 1, &depth, &work)
    if depth > m.max_depth:
        return fail(m, b"values nested deeper than max_depth")
    target.depth = <uint16_t>depth
    target.work = <uint32_t>(work if work < KEY_WORK + 1 else KEY_WORK + 1)
    m.count -= 1
    return charge(m, 64)


cdef int step(machine *m, uint8_t op) noexcept nogil:
    cdef Py_ssize_t first
    cdef int depth = 1
    cdef uint64_t work = 1
    cdef uint64_t n
    cdef Py_ssize_t i
    if op == 0x8c:                              # SHORT_BINUNICODE
        return data(m, 1, TEXT, 64)
    if op == 0x94:                              # MEMOIZE
        return memoize(m)
    if op == c'K':                              # BININT1
        return small(m, 1)
    if op == c'M':                              # BININT2
        return small(m, 2)
    if op == c'J':                              # BININT
        return small(m, 4)
    if op == c'N' or op == 0x88 or op == 0x89:  # NONE, NEWTRUE, NEWFALSE
        return push(m, PLAIN, 1, 1, 16)
    if op == c'G':                              # BINFLOAT
        return small(m, 8)
    if op == c'C':                              # SHORT_BINBYTES
        return data(m, 1, PLAIN, 40)
    if op == 0x85:
        return make_tuple(m, 1)
    if op == 0x86:
        return make_tuple(m, 2)
    if op == 0x87:
        return make_tuple(m, 3)
    if op == c')':                              # EMPTY_TUPLE
        return push(m, TUPLE, 1, 1, 16)
    if op == c'(':                              # MARK
        return mark(m)
    if op == c't':                              # TUPLE
        first = pop_mark(m)
        if first < 0:
            return -1
        return make_tuple(m, m.count - first)
    if op == c']':                              # EMPTY_LIST
        return push(m, LIST, 1, 1, 64)
    if op == c'}':                              # EMPTY_DICT
        return push(m, DICT, 1, 1, 120)
    if op == c'e' or op == c'u' or op == 0x90:  # APPENDS, SETITEMS, ADDITEMS
        first = pop_mark(m)
        if first < 0:
            return -1
        return add_items(m, first, LIST if op == c'e' else DICT if op == c'u' else SET)
    if op == c'a':                              # APPEND
        return add_items(m, m.count - 1, LIST)
    if op == c's':                              # SETITEM
        return add_items(m, m.count - 2, DICT)
    if op == c'h':                              # BINGET
        return recall(m, 1)
    if op == c'j':                              # LONG_BINGET
        return recall(m, 4)
    if op == c'X':                              # BINUNICODE
        return data(m, 4, TEXT, 64)
    if op == 0x8d:                              # BINUNICODE8
        return data(m, 8, TEXT, 64)
    if op == c'B':                              # BINBYTES
        return data(m, 4, PLAIN, 40)
    if op == 0x8e:                              # BINBYTES8
        return data(m, 8, PLAIN, 40)
    if op == 0x96:                              # BYTEARRAY8
        return data(m, 8, BUFFER, 64)
    if op == 0x8a or op == 0x8b:                # LONG1, LONG4
        first = m.count
        if m.p < m.end:
            n = le(m.p, 1) if op == 0x8a else le(m.p, 4) if m.end - m.p >= 4 else 0
        if op == 0x8b and n > 0x7fffffff:
            return fail(m, b"a negative length")
        if data(m, 1 if op == 0x8a else 4, PLAIN, 32) < 0:
            return -1
        if n > 9:                               # nine: 64 bits and a sign
            m.stack[first].kind = HUGE
        return 0
    if op == 0x8f:                              # EMPTY_SET
        return push(m, SET, 1, 1, 216)
    if op == 0x91:                              # FROZENSET
        first = pop_mark(m)
        if first < 0:
            return -1
        for i in range(first, m.count):
            if m.stack[i].work > KEY_WORK:
                return fail(m, b"a key whose hash takes too long")
            consume(m, m.stack + i, &depth, &work)
        n = m.count - first
        m.count = first
        return push(m, PLAIN, depth, work, 216 + 48 * n)
    if op == 0x95:                              # FRAME
        if m.end - m.p < 8 or le(m.p, 8) > <uint64_t>(m.end - m.p - 8):
            return fail(m, b"a length beyond the end")
        m.p += 8
        return 0
    if op == 0x97:                              # NEXT_BUFFER
        if m.buffers_used == m.buffers:
            return fail(m, b"a buffer that was not sent")
        m.buffers_used += 1
        return push(m, BUFFER, 1, 1, 64)
    if op == 0x98:                              # READONLY_BUFFER
        if m.count - floor_(m) < 1 or m.stack[m.count - 1].kind != BUFFER or m.stack[m.count - 1].flags:
            return fail(m, b"a buffer that is none")
        m.stack[m.count - 1].kind = PLAIN
        return 0
    if op == 0x93:                              # STACK_GLOBAL
        if m.count - floor_(m) < 2 or m.stack[m.count - 1].kind != TEXT or m.stack[m.count - 2].kind != TEXT:
            return fail(m, b"the name of a class that is none")
        consume(m, m.stack + m.count - 1, &depth, &work)
        consume(m, m.stack + m.count - 2, &depth, &work)
        m.count -= 2
        m.has_classes = True
        return push(m, CLASS, 1, 1, 16)
    if op == c'R':                              # REDUCE
        return call(m, 1)
    if op == 0x81:                              # NEWOBJ
        return call(m, 1)
    if op == 0x92:                              # NEWOBJ_EX
        return call(m, 2)
    if op == c'b':                              # BUILD
        return build(m)
    return fail(m, b"an opcode that the pickler of protocol 5 does not write for plain values")


cdef int run(machine *m) noexcept nogil:
    """-1: refused, see `why`."""
    cdef uint8_t op
    if m.end - m.p < 2 or m.p[0] != 0x80 or m.p[1] > 5:
        return fail(m, b"no pickle of protocol 5 or less")
    m.p += 2
    while m.p < m.end:
        op = m.p[0]
        m.p += 1
        if op == c'.':
            if m.p != m.end:
                return fail(m, b"something behind the end")
            if m.count != 1 or m.marks_count:
                return fail(m, b"another number of values than one")
            if m.buffers_used != m.buffers:
                return fail(m, b"buffers that nothing refers to")
            return 0
        if step(m, op) < 0:
            return -1
    return fail(m, b"no end")


cdef int check_pickle(const char *p, Py_ssize_t n, Py_ssize_t buffers, int max_depth, uint64_t max_memory) except -1:
    """1: it needs classes; 0: nothing but plain values. Raises DecodeError."""
    cdef machine m
    cdef int r
    m.start = m.p = <const uint8_t *>p
    m.end = m.p + n
    m.stack = m.memo = NULL
    m.marks = NULL
    m.count = m.room = m.memo_count = m.memo_room = m.marks_count = m.marks_room = 0
    m.memory = 0
    m.max_memory = max_memory
    m.max_depth = min(max_depth, 1000)
    m.buffers = buffers
    m.buffers_used = m.huge_keys = 0
    m.has_classes = False
    m.why = NULL
    r = run(&m)
    free(m.stack)
    free(m.memo)
    free(m.marks)
    if r < 0:
        raise DecodeError(f"expected a pickle of plain values, got {(<bytes>m.why).decode()} at byte "
                          f"{m.p - m.start} of {n}")
    return m.has_classes


cdef int check_json(const char *p, Py_ssize_t n, int max_depth, uint64_t max_memory) except -1:
    """Depth and number of values. Whether it is JSON, the decoder says."""
    cdef Py_ssize_t i = 0
    cdef int depth = 0
    cdef uint64_t memory = n
    cdef char c
    while i < n:
        c = p[i]
        i += 1
        if c == c'"':
            while i < n and p[i] != c'"':
                i += 2 if p[i] == c'\\' else 1
            i += 1
            memory += 64
        elif c == c'[' or c == c'{':
            depth += 1
            memory += 120
            if depth > max_depth:
                raise DecodeError(f"expected JSON nested at most {max_depth} deep, got more")
        elif c == c']' or c == c'}':
            depth -= 1
        elif c == c',':
            memory += 40
        if memory > max_memory:
            raise DecodeError(f"expected JSON that takes at most {max_memory} bytes of memory, got more")
    return 0


def check(data, buffers=0, max_depth=100, max_memory=268435456):
    """Whether a pickle may be loaded. buffers: how many out-of-band buffers came with it. max_depth: of nested values.
    max_memory: bytes that the objects may take, roughly. Returns whether it needs classes: then they have to be looked
    up in an allow-list. Raises DecodeError for everything else."""
    cdef bytes whole = bytes(data)
    return bool(check_pickle(whole, len(whole), buffers, max_depth, max_memory))


def check_text(data, max_depth=100, max_memory=268435456):
    """The same for JSON text; returns None."""
    cdef bytes whole = bytes(data)
    check_json(whole, len(whole), max_depth, max_memory)


def check_message_pack(data, max_depth=100, max_memory=268435456):
    """The same for MessagePack (its specification, "Formats")."""
    cdef bytes whole = bytes(data)
    cdef const uint8_t *p = <const uint8_t *><const char *>whole
    cdef const uint8_t *end = p + len(whole)
    cdef uint64_t memory = 0, limit = max_memory
    cdef uint64_t left[1024]
    cdef int depth = 0, most = min(max_depth, 1000), width
    cdef uint8_t c
    cdef uint64_t n, items, payload
    left[0] = 1
    while p < end:
        while depth and left[depth] == 0:
            depth -= 1
        if left[depth] == 0:
            raise DecodeError("expected one MessagePack value, got something behind it")
        left[depth] -= 1
        c = p[0]
        p += 1
        items = payload = 0
        width = 0
        memory += 64
        if c <= 0x7f or c >= 0xe0 or 0xc0 <= c <= 0xc3:
            pass
        elif c <= 0x8f:
            items = 2 * (c & 15)
        elif c <= 0x9f:
            items = c & 15
        elif c <= 0xbf:
            payload = c & 31
        elif c <= 0xc9 or 0xd9 <= c <= 0xdb:            # bin, ext, str: lengths of 1, 2, 4 bytes
            width = 1 << ((c - 0xc4) % 3 if c <= 0xc9 else c - 0xd9)
            if end - p < width:
                break
            n = 0
            for i in range(width):
                n = n << 8 | p[i]
            p += width
            payload = n + (1 if 0xc7 <= c <= 0xc9 else 0)
        elif c <= 0xd3:                                 # numbers
            payload = 4 if c == 0xca else 8 if c == 0xcb else 1 << ((c - 0xcc) % 4)
        elif c <= 0xd8:                                 # fixext
            payload = (1 << (c - 0xd4)) + 1
        else:                                           # arrays and maps
            width = 2 if c == 0xdc or c == 0xde else 4
            if end - p < width:
                break
            n = 0
            for i in range(width):
                n = n << 8 | p[i]
            p += width
            items = n * 2 if c >= 0xde else n
        if payload > <uint64_t>(end - p) or items > <uint64_t>(end - p):
            raise DecodeError("expected MessagePack, got a length beyond the end")
        p += payload
        memory += payload + 48 * items
        if memory > limit:
            raise DecodeError(f"expected MessagePack that takes at most {limit} bytes of memory, got more")
        if items:
            depth += 1
            if depth > most:
                raise DecodeError(f"expected MessagePack nested at most {most} deep, got more")
            left[depth] = items
    while depth and left[depth] == 0:
        depth -= 1
    if p < end or depth or left[0]:
        raise DecodeError("expected a whole MessagePack value, got part of one")
