# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Looks through a pickle (or JSON text) before anything is made of it: no sockets, no clock, no threads.

A pickle is a program for a small stack machine. This module runs the same program over small records instead of
objects, and refuses whatever the pickler of protocol 5 does not write for plain values: so what passes can be given
to the interpreter's own ``pickle.loads``, which is fast, and cannot find a name to import. If a class occurs, the
caller is told, and loads with an allow-list. What is refused, and why:

* all opcodes of older protocols: GLOBAL, INST, OBJ, the extension registry, persistent ids, PUT with a number of the
  peer's choice (a memo of gigabytes), DUP, POP;
* a length beyond the end (BYTEARRAY8 allocates what it announces before it reads);
* changing what is not on top of the stack anew: APPENDS on something from the memo builds structures of any depth
  unseen. BUILD, NEWOBJ and NEWOBJ_EX: what a class makes may have existed before (members of an Enum), and a state may
  have any name; an object is made by a call and by nothing else. A class anywhere but as what is called;
* structures deeper than max_depth (hash, comparison and repr of a deep tuple end the process). Cycles go through
  lists, dicts and objects only, and the memo tells how deep a value is when it is referred to, so no path around them
  hides depth;
* a key whose hash needs more than KEY_WORK steps: ``t = (t, t)`` fifty times over is a hundred bytes, and 2**50 steps;
* more objects than max_memory bytes hold: an empty set is one byte here and 216 in memory;
* more steps than the message may cost, below.

A step is a value, a comparison, or 64 bytes that are copied, compared or hashed. A message may cost STEPS_PER_BYTE for
each of its bytes and SPARE_STEPS more, at most MAX_STEPS. Comparisons are what a sender can make expensive, because the
hashes of numbers and of tuples of them can be chosen, and so can those that only share a probe chain. So keys that are
no texts go through a model of the interpreter's own tables (Objects/dictobject.c, Objects/setobject.c), and each slot
that is looked at is a step. Hashes of str and bytes cannot be chosen; a keyed hash stands for them. A key whose hash is
not known here (a large frozenset, an object) counts as if it met every key before it.

Tuples and frozensets are hashed only if one is a key: then the message is looked through a second time.

Longer than most files: the machine, its records and the model of the tables share one budget of steps.

Cost: 3 to 8 ns an opcode, forty bytes a value on the stack; a key that is no text about 10 ns and 28 bytes, until its
container is complete. Rejected: an Unpickler of our own (loads is as fast as it gets),
looking only for forbidden opcodes (says nothing about hashes and depth).
"""

import secrets

from libc.math cimport frexp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from coro.rpc.exceptions import DecodeError

__all__ = ["check", "check_message_pack", "check_text", "last_steps"]

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t rpc_mix(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t rpc_mix(uint64_t, uint64_t) nogil

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
    FROZENSET = 9

cdef enum:
    FROM_MEMO = 1
    KEY_WORK = 10000
    NO_MEMO = 0xffffffff
    STEPS_PER_BYTE = 8
    SPARE_STEPS = 500000
    MAX_STEPS = 20000000
    MANY_ITEMS = 64         # of a frozenset whose hash is computed
    FEW_KEYS = 8            # as many are compared with one another sooner than a table is made
    OBJECT_STEPS = 16       # a comparison of objects may be Python code

cdef uint64_t MERSENNE = 0x1fffffffffffffff     # 2**61 - 1: hashes of numbers are remainders of it
cdef uint64_t SECRET_A = secrets.randbits(64) | 1
cdef uint64_t SECRET_B = secrets.randbits(64) | 1
cdef uint64_t NONE_HASH = <uint64_t>(<int64_t>hash(None))
cdef uint64_t checked_steps = 0


cdef struct table:
    uint32_t *slots         # numbers of keys, from 1
    uint64_t *hashes
    uint64_t *tags
    Py_ssize_t mask, used, room
    bint is_set


cdef struct record:
    uint8_t kind
    uint8_t flags
    uint16_t depth
    uint32_t work           # steps its hash may take, as long as they matter
    uint32_t memo           # its place there, or NO_MEMO; in the memo, its place on the stack while it is there
    uint32_t at             # where its opcode stands
    uint32_t keys           # of a container: how many have come
    table *keyed            # of a container, while it is filled: the model of its table, or NULL
    uint64_t hash           # of a tuple or frozenset, in a look through that needs it; else 0
    uint64_t tag            # stands for the value: equal values have equal ones; 0: not known


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
    Py_ssize_t buffers, buffers_used
    uint64_t steps, max_steps
    bint has_classes, exact, wants_exact, loose_class
    uint32_t op_at
    const char *why


cdef inline uint64_t le(const uint8_t *p, int n) noexcept nogil:
    cdef uint64_t v = 0
    cdef int i
    for i in range(n):
        v |= <uint64_t>p[i] << (8 * i)
    return v


# ---- the model of the interpreter's tables

cdef void drop_table(table *t) noexcept nogil:
    if t != NULL:
        free(t.slots)
        free(t.hashes)
        free(t.tags)
        free(t)


cdef table *new_table(bint is_set) noexcept nogil:
    cdef table *t = <table *>calloc(1, sizeof(table))
    if t == NULL:
        return NULL
    t.mask = 7
    t.is_set = is_set
    t.slots = <uint32_t *>calloc(8, sizeof(uint32_t))
    if t.slots == NULL:
        free(t)
        return NULL
    return t


cdef inline uint64_t place(table *t, uint64_t hash, uint64_t tag, uint32_t number, bint *known) noexcept nogil:
    """Put a key where it belongs; returns how many slots were looked at."""
    cdef uint64_t perturb = hash, mask = <uint64_t>t.mask, steps = 0
    cdef uint64_t i = hash & mask, j
    cdef int probes
    while True:
        probes = 9 if t.is_set and i + 9 <= mask else 0
        j = i
        while True:
            steps += 1
            if t.slots[j] == 0:
                t.slots[j] = number
                return steps
            if tag and t.tags[t.slots[j] - 1] == tag:
                known[0] = True
                return steps
            if probes == 0:
                break
            probes -= 1
            j += 1
        perturb >>= 5
        i = (i * 5 + perturb + 1) & mask


cdef int64_t insert(table *t, uint64_t hash, uint64_t tag) noexcept nogil:
    """A key comes: how many steps that takes. -1: no memory."""
    cdef bint known = False
    cdef uint64_t steps
    cdef Py_ssize_t size, i
    cdef uint32_t *slots
    cdef void *new
    if t.used == t.room:
        size = t.room * 2 if t.room else 16
        new = realloc(t.hashes, size * sizeof(uint64_t))
        if new == NULL:
            return -1
        t.hashes = <uint64_t *>new
        new = realloc(t.tags, size * sizeof(uint64_t))
        if new == NULL:
            return -1
        t.tags = <uint64_t *>new
        t.room = size
    t.hashes[t.used] = hash
    t.tags[t.used] = tag
    steps = place(t, hash, tag, <uint32_t>(t.used + 1), &known)
    if known:
        return steps
    t.used += 1
    if t.is_set:
        if t.used * 5 < t.mask * 3:
            return steps
        size = 8
        while size <= (t.used * 2 if t.used > 50000 else t.used * 4):
            size *= 2
    else:
        if t.used < (t.mask + 1) * 2 // 3:
            return steps
        size = 8
        while size < t.used * 3:
            size *= 2
    slots = <uint32_t *>calloc(size, sizeof(uint32_t))
    if slots == NULL:
        return -1
    free(t.slots)
    t.slots = slots
    t.mask = size - 1
    for i in range(t.used):
        steps += place(t, t.hashes[i], 0, <uint32_t>(i + 1), &known)
    return steps


cdef inline uint64_t int_tag(uint64_t magnitude, bint negative) noexcept nogil:
    return rpc_mix(magnitude ^ SECRET_A, SECRET_B + negative) | 1


cdef inline uint64_t int_hash(uint64_t magnitude, bint negative) noexcept nogil:
    cdef uint64_t h = (magnitude & MERSENNE) + (magnitude >> 61)
    if h >= MERSENNE:
        h -= MERSENNE
    if negative:
        h = 0 - h
        if h == <uint64_t>-1:
            h = <uint64_t>-2
    return h


cdef void of_int64(int64_t v, uint64_t *hash, uint64_t *tag) noexcept nogil:
    cdef uint64_t magnitude = <uint64_t>v if v >= 0 else 0 - <uint64_t>v
    hash[0] = int_hash(magnitude, v < 0)
    tag[0] = int_tag(magnitude, v < 0)


cdef bint of_double(double v, uint64_t *hash, uint64_t *tag) noexcept nogil:
    """As _Py_HashDouble. False for what is not a number: its hash is its address."""
    cdef int e
    cdef uint64_t x = 0, y
    cdef double m
    cdef uint64_t bits
    cdef bint negative = v < 0
    if v != v:
        return False
    if v - v != 0:
        hash[0] = 314159 if v > 0 else <uint64_t>-314159
        tag[0] = int_tag(314159, negative) ^ SECRET_B | 1
        return True
    if v == <double><int64_t>v and -9e18 < v < 9e18:
        of_int64(<int64_t>v, hash, tag)
        return True
    m = frexp(-v if negative else v, &e)
    while m:
        x = ((x << 28) & MERSENNE) | x >> 33
        m *= 268435456.0
        e -= 28
        y = <uint64_t>m
        m -= <double>y
        x += y
        if x >= MERSENNE:
            x -= MERSENNE
    e = e % 61 if e >= 0 else 60 - ((-1 - e) % 61)
    x = ((x << e) & MERSENNE) | x >> (61 - e)
    if negative:
        x = 0 - x
        if x == <uint64_t>-1:
            x = <uint64_t>-2
    hash[0] = x
    memcpy(&bits, &v, 8)
    tag[0] = rpc_mix(bits ^ SECRET_B, SECRET_A) | 1
    return True


cdef void of_bytes(const uint8_t *p, uint64_t n, uint64_t kind, uint64_t *hash, uint64_t *tag) noexcept nogil:
    """Text and bytes: a keyed hash of our own in place of the interpreter's."""
    cdef uint64_t h = rpc_mix(n ^ SECRET_A, SECRET_B ^ kind), word
    while n:
        word = 0
        memcpy(&word, p, 8 if n >= 8 else n)
        h = rpc_mix(h ^ word, SECRET_A)
        h ^= h >> 29
        h *= SECRET_B
        p += 8 if n >= 8 else n
        n -= 8 if n >= 8 else n
    hash[0] = h
    tag[0] = rpc_mix(h, SECRET_A) | 1


cdef void of_long(const uint8_t *p, uint64_t n, uint64_t *hash, uint64_t *tag) noexcept nogil:
    """Little-endian, of two's complement."""
    cdef bint negative = n > 0 and p[n - 1] & 0x80
    cdef uint8_t flip = 0xff if negative else 0
    cdef uint64_t x = 0, small = 0, h, ignored
    cdef uint64_t i
    while n and p[n - 1] == flip and (n == 1 and not negative or n > 1 and (p[n - 2] & 0x80) == (flip & 0x80)):
        n -= 1
    i = n
    while i:
        i -= 1
        x = ((x << 8) & MERSENNE) | x >> 53
        x += p[i] ^ flip
        if x >= MERSENNE:
            x -= MERSENNE
        small = small << 8 | (p[i] ^ flip)
    if negative:
        x += 1
        if x >= MERSENNE:
            x -= MERSENNE
        x = 0 - x
        if x == <uint64_t>-1:
            x = <uint64_t>-2
    hash[0] = x
    if n <= 8 and not (negative and small == <uint64_t>-1):
        tag[0] = int_tag(small + 1 if negative else small, negative)
    elif n == 9 and p[8] == flip and not (negative and small == <uint64_t>-1):
        tag[0] = int_tag(small + 1 if negative else small, negative)
    else:
        of_bytes(p, n, 3 + negative, &ignored, &h)
        tag[0] = h


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
    r.at = m.op_at
    r.keys = 0
    r.keyed = NULL
    r.hash = r.tag = 0
    return 0


cdef inline Py_ssize_t floor_(machine *m) noexcept nogil:
    """Below this nothing may be taken from the stack."""
    return m.marks[m.marks_count - 1] if m.marks_count else 0


cdef inline void consume(machine *m, record *r, int *depth, uint64_t *work) noexcept nogil:
    """It becomes part of something, and leaves the stack. The memo keeps it as it is now."""
    if r.depth + 1 > depth[0]:
        depth[0] = r.depth + 1
    work[0] += r.work
    if r.kind == CLASS:
        m.loose_class = True
    if r.keyed != NULL:
        drop_table(r.keyed)
        r.keyed = NULL
    if r.memo != NO_MEMO:
        m.memo[r.memo] = r[0]
        m.memo[r.memo].memo = NO_MEMO


cdef uint64_t size_of(machine *m, record *r) noexcept nogil:
    """Bytes of a text, of bytes, or of a long integer."""
    cdef uint8_t op = m.start[r.at]
    if op == 0x8c or op == c'C' or op == 0x8a:
        return m.start[r.at + 1]
    if op == c'X' or op == c'B' or op == 0x8b:
        return le(m.start + r.at + 1, 4)
    if op == 0x8d or op == 0x8e:
        return le(m.start + r.at + 1, 8)
    return 0


cdef bint hash_of(machine *m, record *r, uint64_t *hash, uint64_t *tag) noexcept nogil:
    """The interpreter's hash of a value, as far as it can be known."""
    cdef const uint8_t *p = m.start + r.at
    cdef uint8_t op = p[0]
    cdef uint64_t bits
    cdef double v
    cdef int i
    if r.kind == TUPLE:
        if op == c')':
            hash[0] = 5740354900026072187ULL    # of ()
            tag[0] = SECRET_B
            return True
        hash[0] = r.hash
        tag[0] = r.tag
        return r.tag != 0
    if r.kind == FROZENSET:
        hash[0] = r.hash
        tag[0] = r.tag
        return r.tag != 0
    if r.kind != PLAIN and r.kind != TEXT:
        return False
    if op == c'K':
        of_int64(p[1], hash, tag)
    elif op == c'M':
        of_int64(<int64_t>le(p + 1, 2), hash, tag)
    elif op == c'J':
        of_int64(<int32_t>le(p + 1, 4), hash, tag)
    elif op == 0x88 or op == 0x89:
        of_int64(op == 0x88, hash, tag)
    elif op == c'N':
        hash[0] = NONE_HASH
        tag[0] = SECRET_A ^ 2 | 1
    elif op == c'G':
        bits = 0
        for i in range(8):
            bits = bits << 8 | p[1 + i]
        memcpy(&v, &bits, 8)
        return of_double(v, hash, tag)
    elif op == 0x8a:
        of_long(p + 2, p[1], hash, tag)
    elif op == 0x8b:
        of_long(p + 5, le(p + 1, 4), hash, tag)
    elif op == 0x8c or op == c'C':
        of_bytes(p + 2, p[1], r.kind, hash, tag)
    elif op == c'X' or op == c'B':
        of_bytes(p + 5, le(p + 1, 4), r.kind, hash, tag)
    elif op == 0x8d or op == 0x8e:
        of_bytes(p + 9, le(p + 1, 8), r.kind, hash, tag)
    else:
        return False
    return True


cdef void hash_set(machine *m, Py_ssize_t first, uint64_t *hash, uint64_t *tag) noexcept nogil:
    """Of a frozenset of the values from `first` on (Objects/setobject.c, frozenset_hash()): the order does not matter,
    and what is there twice counts once. More than MANY_ITEMS, or one whose hash is not known: tag 0."""
    cdef uint64_t hashes[MANY_ITEMS]
    cdef uint64_t tags[MANY_ITEMS]
    cdef uint64_t h = 0, t = 0, acc = 0, sum_ = SECRET_A
    cdef Py_ssize_t i, j, n = 0
    cdef bint known
    if m.count - first > MANY_ITEMS:
        return
    for i in range(first, m.count):
        if not hash_of(m, m.stack + i, &h, &t):
            return
        known = False
        for j in range(n):
            known = known or tags[j] == t
        if not known:
            hashes[n] = h
            tags[n] = t
            n += 1
    m.steps += n * n >> 3
    for i in range(n):
        h = hashes[i]
        acc ^= ((h ^ 89869747ULL) ^ (h << 16)) * 3644798167ULL
        sum_ += rpc_mix(tags[i] ^ SECRET_A, SECRET_B)
    acc ^= <uint64_t>(n + 1) * 1927868237ULL
    acc ^= (acc >> 11) ^ (acc >> 25)
    acc = acc * 69069ULL + 907133923ULL
    hash[0] = 590923713ULL if acc == <uint64_t>-1 else acc
    tag[0] = rpc_mix(sum_ ^ <uint64_t>n, SECRET_B) | 1


cdef inline bint is_text(machine *m, record *r) noexcept nogil:
    cdef uint8_t op = m.start[r.at]
    return r.kind == TEXT or r.kind == PLAIN and (op == c'C' or op == c'B' or op == 0x8e)


cdef inline int take(machine *m, uint64_t steps) noexcept nogil:
    m.steps += steps
    if m.steps > m.max_steps:
        return fail(m, b"keys that collide, or other work of more steps than a message of this size may cost,")
    return 0


cdef int add_keys(machine *m, record *target, Py_ssize_t first, int stride, bint is_set) noexcept nogil:
    """Every stride-th value from `first` on is a key of `target`."""
    cdef Py_ssize_t i, n = 0
    cdef record *r
    cdef bint texts = True
    cdef uint64_t hash = 0, tag = 0, weight
    cdef int64_t took
    n = (m.count - first + stride - 1) // stride
    for i in range(n):
        r = m.stack + first + i * stride
        if r.work > KEY_WORK:
            return fail(m, b"a key whose hash takes too long")
        if is_text(m, r):
            # A text that was sent before may be compared as a whole each time that it is referred to.
            if r.flags & FROM_MEMO and take(m, size_of(m, r) >> 6) < 0:
                return -1
        else:
            texts = False
            if take(m, r.work + (size_of(m, r) >> 6)) < 0:
                return -1
    if target.keyed == NULL:
        if texts or target.keys == 0 and n <= FEW_KEYS:
            target.keys += <uint32_t>n
            if texts:
                return take(m, n)
            for i in range(n):
                r = m.stack + first + i * stride
                if take(m, n * (r.work + (OBJECT_STEPS if r.kind == OBJECT else 0) + (size_of(m, r) >> 6))) < 0:
                    return -1
            return 0
        target.keyed = new_table(is_set)
        if target.keyed == NULL:
            return fail(m, b"no memory")
        # What came before were texts, whose hashes nobody chooses, and FEW_KEYS others at most.
        if take(m, target.keys) < 0:
            return -1
        for i in range(target.keys):
            if insert(target.keyed, rpc_mix(SECRET_B ^ <uint64_t>i, SECRET_A), 0) < 0:
                return fail(m, b"no memory")
    for i in range(n):
        r = m.stack + first + i * stride
        if (r.kind == TUPLE or r.kind == FROZENSET) and not m.exact:
            m.wants_exact = True
            return fail(m, b"tuples as keys")
        weight = r.work + (size_of(m, r) >> 6)
        target.keys += 1
        if not hash_of(m, r, &hash, &tag):
            # As if it met every key before it.
            if r.kind == OBJECT:
                weight += OBJECT_STEPS
            if take(m, target.keys * weight) < 0:
                return -1
            hash = rpc_mix(SECRET_A ^ target.keys, SECRET_B)
            tag = 0
        took = insert(target.keyed, hash, tag)
        if took < 0:
            return fail(m, b"no memory")
        if take(m, <uint64_t>took * weight) < 0:
            return -1
    return 0


cdef int make_tuple(machine *m, Py_ssize_t n) noexcept nogil:
    """Of the upper n values."""
    cdef int depth = 1
    cdef uint64_t work = 1, acc = 2870177450012600261ULL, tag = SECRET_A, h, one
    cdef Py_ssize_t i
    if m.count - floor_(m) < n:
        return fail(m, b"a value that is not there")
    for i in range(m.count - n, m.count):
        if m.exact:                             # Objects/tupleobject.c, tuple_hash()
            if not hash_of(m, m.stack + i, &h, &one):
                tag = 0
            elif tag:
                acc += h * 14029467366897019727ULL
                acc = acc << 31 | acc >> 33
                acc *= 11400714785074694791ULL
                tag = rpc_mix(tag ^ one, SECRET_B) | 1
        consume(m, m.stack + i, &depth, &work)
    m.count -= n
    if push(m, TUPLE, depth, work, 48 + 8 * n) < 0:
        return -1
    if m.exact and tag:
        acc += <uint64_t>n ^ (2870177450012600261ULL ^ 3527539ULL)
        m.stack[m.count - 1].hash = 1546275796 if acc == <uint64_t>-1 else acc
        m.stack[m.count - 1].tag = rpc_mix(tag ^ <uint64_t>n, SECRET_A) | 1
    return 0


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
    if kind != LIST and add_keys(m, target, first, 1 if kind == SET else 2, kind == SET) < 0:
        return -1
    depth = target.depth
    for i in range(first, m.count):
        r = m.stack + i
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
    m.steps += n >> 6
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
    if callee.memo != NO_MEMO:
        m.memo[callee.memo] = callee[0]
        m.memo[callee.memo].memo = NO_MEMO
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
    m.stack[m.count - 1].at = r.at
    m.stack[m.count - 1].hash = r.hash
    m.stack[m.count - 1].tag = r.tag
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


cdef int step(machine *m, uint8_t op) noexcept nogil:
    cdef Py_ssize_t first
    cdef int depth = 1
    cdef uint64_t work = 1
    cdef uint64_t n
    cdef Py_ssize_t i
    cdef record container
    cdef uint64_t hash, tag
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
        return 0
    if op == 0x8f:                              # EMPTY_SET
        return push(m, SET, 1, 1, 216)
    if op == 0x91:                              # FROZENSET
        first = pop_mark(m)
        if first < 0:
            return -1
        container.keys = 0
        container.keyed = NULL
        i = add_keys(m, &container, first, 1, True)
        drop_table(container.keyed)
        if i < 0:
            return -1
        hash = tag = 0
        if m.exact:
            hash_set(m, first, &hash, &tag)
        for i in range(first, m.count):
            consume(m, m.stack + i, &depth, &work)
        n = m.count - first
        m.count = first
        if push(m, FROZENSET, depth, work, 216 + 48 * n) < 0:
            return -1
        m.stack[m.count - 1].hash = hash
        m.stack[m.count - 1].tag = tag
        return 0
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
    if op == 0x81 or op == 0x92 or op == c'b':  # NEWOBJ, NEWOBJ_EX, BUILD
        return fail(m, b"an object that is made or changed by NEWOBJ or BUILD: encode it with its class registered,")
    return fail(m, b"an opcode that the pickler of protocol 5 does not write for plain values")


cdef int run(machine *m) noexcept nogil:
    """-1: refused, see `why`."""
    cdef uint8_t op
    if m.end - m.p < 2 or m.p[0] != 0x80 or m.p[1] > 5:
        return fail(m, b"no pickle of protocol 5 or less")
    m.p += 2
    while m.p < m.end:
        op = m.p[0]
        m.op_at = <uint32_t>(m.p - m.start)
        m.p += 1
        m.steps += 1
        if op == c'.':
            if m.p != m.end:
                return fail(m, b"something behind the end")
            if m.count != 1 or m.marks_count:
                return fail(m, b"another number of values than one")
            if m.loose_class or m.stack[0].kind == CLASS:
                return fail(m, b"a class as a value")
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
    cdef Py_ssize_t i
    global checked_steps
    m.exact = False
    while True:
        m.start = m.p = <const uint8_t *>p
        m.end = m.p + n
        m.stack = m.memo = NULL
        m.marks = NULL
        m.count = m.room = m.memo_count = m.memo_room = m.marks_count = m.marks_room = 0
        m.memory = m.steps = 0
        m.max_memory = max_memory
        m.max_steps = min(<uint64_t>n * STEPS_PER_BYTE + SPARE_STEPS, <uint64_t>MAX_STEPS)
        m.max_depth = min(max_depth, 1000)
        m.buffers = buffers
        m.buffers_used = 0
        m.has_classes = m.wants_exact = m.loose_class = False
        m.why = NULL
        r = run(&m)
        for i in range(m.count):
            drop_table(m.stack[i].keyed)
        free(m.stack)
        free(m.memo)
        free(m.marks)
        if not m.wants_exact:
            break
        m.exact = True
    checked_steps = m.steps
    if r < 0:
        raise DecodeError(f"expected a pickle of plain values, got {(<bytes>m.why).decode()} at byte "
                          f"{m.p - m.start} of {n}")
    return m.has_classes


cdef int check_json(const char *p, Py_ssize_t n, int max_depth, uint64_t max_memory) except -1:
    """Depth and number of values. Whether it is JSON, the decoder says."""
    cdef Py_ssize_t i = 0
    global checked_steps
    cdef int depth = 0
    cdef uint64_t memory = n
    cdef char c
    checked_steps = n           # keys are texts, and each is sent as a whole: no byte costs more than a step
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


cdef bint hash_packed(const uint8_t *p, const uint8_t *payload, uint64_t n, uint64_t *hash,
                      uint64_t *tag) noexcept nogil:
    """Of a MessagePack key: p is its first byte, payload what stands behind that and the length."""
    cdef uint8_t c = p[0]
    cdef uint64_t v = 0, i
    cdef float single
    cdef double wide
    if c <= 0x7f or c >= 0xe0:
        of_int64(<int8_t>c, hash, tag)
    elif c == 0xc0:
        hash[0] = NONE_HASH
        tag[0] = SECRET_A ^ 2 | 1
    elif c == 0xc2 or c == 0xc3:
        of_int64(c == 0xc3, hash, tag)
    elif 0xa0 <= c <= 0xbf or 0xd9 <= c <= 0xdb:
        of_bytes(payload, n, TEXT, hash, tag)
    elif 0xc4 <= c <= 0xc6:
        of_bytes(payload, n, PLAIN, hash, tag)
    elif 0xca <= c <= 0xd3:
        for i in range(n):
            v = v << 8 | payload[i]
        if c == 0xca:
            i = v
            memcpy(&single, &i, 4)      # little-endian processors, as those that the runtime is made for
            return of_double(single, hash, tag)
        if c == 0xcb:
            memcpy(&wide, &v, 8)
            return of_double(wide, hash, tag)
        if c <= 0xcf:
            hash[0] = int_hash(v, False)
            tag[0] = int_tag(v, False)
        else:
            of_int64(<int8_t>v if n == 1 else <int16_t>v if n == 2 else <int32_t>v if n == 4 else <int64_t>v, hash,
                     tag)
    else:
        return False
    return True


def check_message_pack(data, max_depth=100, max_memory=268435456):
    """The same for MessagePack (its specification, "Formats")."""
    cdef bytes whole = bytes(data)
    cdef const uint8_t *p = <const uint8_t *><const char *>whole
    cdef const uint8_t *end = p + len(whole)
    cdef const uint8_t *begin
    cdef uint64_t memory = 0, limit = max_memory
    cdef uint64_t left[1024]
    cdef uint64_t pairs[1024]           # of a map; 0: an array
    cdef table *tables[1024]
    cdef int depth = 0, most = min(max_depth, 1000), width, used = 0
    cdef uint8_t c
    cdef uint64_t n, items, payload, steps = 0, hash = 0, tag = 0
    cdef uint64_t max_steps = min(<uint64_t>len(whole) * STEPS_PER_BYTE + SPARE_STEPS, <uint64_t>MAX_STEPS)
    cdef int64_t took
    cdef bint is_key
    global checked_steps
    left[0] = 1
    pairs[0] = 0
    tables[0] = NULL
    try:
        while p < end:
            while depth and left[depth] == 0:
                depth -= 1
            if left[depth] == 0:
                raise DecodeError("expected one MessagePack value, got something behind it")
            is_key = pairs[depth] > 0 and left[depth] & 1 == 0
            left[depth] -= 1
            begin = p
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
            steps += 1 + (payload >> 6)
            if is_key:
                if pairs[depth] <= FEW_KEYS:
                    steps += pairs[depth]
                else:
                    if tables[depth] == NULL:
                        tables[depth] = new_table(False)
                        if tables[depth] == NULL:
                            raise MemoryError()
                    if not hash_packed(begin, p, payload, &hash, &tag):
                        steps += OBJECT_STEPS * <uint64_t>(tables[depth].used + 1)
                        hash = rpc_mix(SECRET_A ^ <uint64_t>tables[depth].used, SECRET_B)
                        tag = 0
                    took = insert(tables[depth], hash, tag)
                    if took < 0:
                        raise MemoryError()
                    steps += <uint64_t>took
                if steps > max_steps:
                    raise DecodeError(f"expected MessagePack that costs at most {max_steps} steps, got keys that "
                                      "collide, or other work of more")
            p += payload
            memory += payload + 48 * items
            if memory > limit:
                raise DecodeError(f"expected MessagePack that takes at most {limit} bytes of memory, got more")
            if items:
                depth += 1
                if depth > most:
                    raise DecodeError(f"expected MessagePack nested at most {most} deep, got more")
                left[depth] = items
                pairs[depth] = items // 2 if 0x80 <= c <= 0x8f or c >= 0xde else 0
                if depth > used:
                    used = depth
                else:
                    drop_table(tables[depth])
                tables[depth] = NULL
        while depth and left[depth] == 0:
            depth -= 1
        if p < end or depth or left[0]:
            raise DecodeError("expected a whole MessagePack value, got part of one")
    finally:
        checked_steps = steps
        for i in range(used + 1):
            drop_table(tables[i])


def last_steps():
    """How many steps the message that was looked through last costs."""
    return checked_steps
