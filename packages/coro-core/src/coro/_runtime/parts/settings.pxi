# Settings: when slow threads are reported, how selfish sockets are, how many stack slots there are.

def set_latency_warning(factor):
    """Warn of threads that hold the CPU for more than ``factor`` times 0.2 seconds; 0 never warns. Returns the factor
    set before. TypeError unless it is an int, ValueError outside 0..300."""
    global latency_factor, latency_limit
    cdef int before = latency_factor
    if not isinstance(factor, int) or isinstance(factor, bool):
        raise TypeError(f"expected an int from 0 to 300, not {factor!r}")
    if not 0 <= factor <= 300:
        raise ValueError(f"expected a latency factor from 0 (no warnings) to 300 (a minute), not {factor}")
    latency_factor = factor
    latency_limit = coro_from_seconds(ticker, 0.2 * factor) if factor else CORO_TICKS_FOREVER
    return before


def set_selfishness(number):
    """Let a thread that is made from now on give others a turn when ``number`` socket operations in a row needed no
    waiting. Returns None. Raises TypeError if ``number`` is no int, ValueError if it is not from 1 to 32768."""
    global selfish_default
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"expected an int from 1 to 32768, not {number!r}")
    if not 1 <= number <= 32768:
        raise ValueError(f"expected an int from 1 to 32768, not {number}")
    selfish_default = number


def set_stack_slots(number, size=None):
    """Use ``number`` stack slots of ``size`` bytes each (default: as before; 4 MiB, 1 MiB on 32-bit machines).

    With a slot for each thread that is busy at the same time, no stack is copied; more threads share slots. Address
    space is taken for all slots, memory only as far as stacks reach. TypeError unless both are ints; StackSlotError
    after the first thread has run, or when that many slots of that size cannot be had."""
    global slots_wanted, slot_size_wanted
    if size is None:
        size = slot_size_wanted
    for value, what in ((number, "number of slots"), (size, "size of a slot in bytes")):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"expected an int for the {what}, not {value!r}")
    if any_ran:
        raise StackSlotError("stack slots are laid out before the first thread runs; call set_stack_slots() earlier")
    if not 1 <= number <= 65536:
        raise StackSlotError(f"expected 1 to 65536 stack slots, not {number}")
    if not CORO_SMALLEST_STACK <= size <= (1 << 30):
        raise StackSlotError(f"a stack slot needs at least {CORO_SMALLEST_STACK} bytes and at most {1 << 30}, "
                             f"not {size}")
    map_slots(number, size)
    slots_wanted = number
    slot_size_wanted = size


cdef int map_slots(int number, size_t size) except -1:
    global slots_ready
    cdef int failed = coro_slots_map(number, size)
    if failed:
        import os
        raise StackSlotError(f"the system has no address space for {number} stack slots of {size} bytes: "
                             f"{os.strerror(failed)}; ask for fewer or smaller ones")
    coro_interp_setup(size)
    slots_ready = True
    return 0


def get_stack_slots():
    """Number and size in bytes of the stack slots in use (or to be used)."""
    return slots_wanted, slot_size_wanted


def _slot_owners():
    """For tests: how many threads are bound to each slot now."""
    return [coro_slots[i].threads for i in range(coro_slot_count)]
