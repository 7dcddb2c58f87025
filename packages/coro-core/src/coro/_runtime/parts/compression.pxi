# Compressing the saved stacks of threads that ask for it. compression.py does the work; without memory a copy just
# stays as it is.

cdef int load_packer() except -1:
    global packer, unpacker
    if packer is None:
        from coro._runtime import compression
        packer, unpacker = compression.pack, compression.unpack
    return 0


cdef int pack(coro t) except -1:
    """Compress the copy of an evacuated thread; a copy that does not shrink stays as it is."""
    cdef size_t head = <size_t>t.stack.links * 2 * sizeof(void *)
    cdef bytes packed
    cdef char *copy
    cdef Py_ssize_t size
    if t.stack.packed or t.stack.size < SMALLEST_COMPRESSED:
        return 0
    packed = packer((<char *>t.stack.copy)[:head + t.stack.size])
    size = len(packed)
    if <size_t>size >= head + t.stack.size:
        return 0
    copy = <char *>PyMem_RawMalloc(size)
    if copy == NULL:
        return 0
    memcpy(copy, <char *>packed, size)
    PyMem_RawFree(t.stack.copy)
    t.stack.copy = copy
    t.stack.capacity = <uint32_t>size
    t.stack.packed = <uint32_t>size
    return 0


cdef int unpack(coro t) except -1:
    """Expand it again; -1 with MemoryError set when there is no memory."""
    cdef size_t total = <size_t>t.stack.links * 2 * sizeof(void *) + t.stack.size
    cdef bytes plain = unpacker((<char *>t.stack.copy)[:t.stack.packed], total)
    cdef char *copy
    if <size_t>len(plain) != total:
        raise SystemError(f"a compressed stack expands to {len(plain)} bytes instead of {total}")
    copy = <char *>PyMem_RawMalloc(total)
    if copy == NULL:
        raise MemoryError("no memory to expand a compressed stack")
    memcpy(copy, <char *>plain, total)
    PyMem_RawFree(t.stack.copy)
    t.stack.copy = copy
    t.stack.capacity = <uint32_t>total
    t.stack.packed = 0
    return 0


def compress(thread):
    """Compress the saved stack of a suspended thread now; returns its size before and after in bytes.

    The stack is copied out of its slot first if need be. TypeError when it is not a thread, ScheduleError when it is
    the running one or has not run, DeadCoroutine when it has ended."""
    cdef coro t
    check_os_thread()
    if type(thread) is not coro:
        raise TypeError(f"expected a thread (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    t = <coro>thread
    if t.link.flags & DEAD:
        raise DeadCoroutine(t)
    if not t.link.flags & STARTED or running == <PyObject *>t:
        raise ScheduleError(t)
    load_packer()
    if t.stack.slot.owner == <void *>&t.stack and coro_slots_evacuate(t.stack.slot) < 0:
        raise MemoryError("no memory to copy the stack of the thread")
    before = t.stack.packed if t.stack.packed else t.stack.size
    pack(t)
    return before, (t.stack.packed if t.stack.packed else t.stack.size)
