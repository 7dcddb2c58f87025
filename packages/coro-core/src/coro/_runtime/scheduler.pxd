# C-level interface of the scheduler: what pollers, sockets, locks and other packages may use. Objects and functions
# are explained in _runtime/scheduler.pyx. Whoever cimports from here should call `require_abi()` of coro._runtime.abi
# at import.
# cython: language_level=3
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from cpython.object cimport PyObject


cdef extern from "_switch/slots.h" nogil:
    ctypedef struct coro_interp:
        PyObject *context
    ctypedef struct coro_slot:
        char *base
        char *top
        void *owner
        uint32_t threads
    ctypedef struct coro_stack:
        void *sp
        coro_slot *slot
        char *copy
        uint32_t size
        uint32_t capacity
        uint32_t packed
        uint16_t links
        uint16_t flags
        void *root
        const void *key
        coro_interp interp

cdef extern from "_runtime/timers.h" nogil:
    ctypedef struct coro_timer:
        size_t place
        void *owner


cdef extern from "_runtime/run_queue.h" nogil:
    ctypedef struct coro_link:
        coro_link *next
        coro_link *prev
        PyObject *thread
        uint32_t flags
        uint32_t attention
    int SCHEDULED "CORO_SCHEDULED"
    int IN_SLICE "CORO_IN_SLICE"


# What a suspended thread waits for (reports, deadlock detection).
cdef enum:
    WAIT_YIELD = 0
    WAIT_SLEEP = 1
    WAIT_READ = 2
    WAIT_WRITE = 3
    WAIT_EVENT = 4
    WAIT_JOIN = 5
    WAIT_OBJECT = 6
    WAIT_SLICE = 7
    WAIT_OFFLOAD = 8
    WAIT_SELECT = 9


cdef enum:              # in coro.link.flags, besides CORO_SCHEDULED and CORO_IN_SLICE of run_queue.h
    STARTED = 1
    DEAD = 2
    DAEMON = 16
    REGISTERED = 32
    DELIVER = 64        # scheduled in order to raise an interruption
    WAKE_ERROR = 128    # wake_value is an exception to raise
    FAILED = 256        # outcome is an exception
    REFUSED = 512       # would not end when it had to: never resumed
    THREAD_LOST = 1024  # dead in this process because another one forked it
    HELPER = 2048       # a daemon of ours whose waits for the kernel wake nobody
    FORGOTTEN = 4096    # nobody can ask for its outcome, which is being released: not to be found any more


# What the profiler is told, in main: who begins and ends a slice, and that the kernel is waited for. The tick is given
# when a slice begins, that of the scheduler's last look, and returned when one ends: it has perhaps just looked.
cdef enum:
    PROFILE_SLICE_BEGINS = 0
    PROFILE_SLICE_ENDS = 1
    PROFILE_WAIT_BEGINS = 2
    PROFILE_WAIT_ENDS = 3

ctypedef int64_t (*profile_hook)(int what, PyObject *thread, int64_t now) noexcept


cdef class coro:
    # what every switch touches comes first
    cdef coro_link link         # flags and attention are in there
    cdef int kind
    cdef int ident
    cdef int no_switch_depth
    cdef int selfish_left
    cdef object wake_value
    cdef object what
    cdef coro_stack stack
    cdef coro_timer timer
    cdef uint64_t number
    cdef int shield_level
    cdef int refusals
    cdef int selfish_most
    cdef object function
    cdef object args
    cdef object kwargs
    cdef object label
    cdef object context
    cdef object outcome
    cdef object extra
    cdef object __weakref__


cdef class TimerTarget:
    cdef coro_timer timer
    cdef int fire(self) except -1


cdef class Poller:
    cdef int poll(self, int64_t timeout_ns) except -1
    cdef int interrupt(self) noexcept nogil
    cdef int shut(self) except -1
    cdef int after_fork(self) noexcept
    cdef int handlers_registered(self)
    cdef int drop_handlers(self) except -1
    cdef object statistics_dict(self)


cdef coro running_thread()
cdef PyObject *running_borrowed() except NULL      # the same without a reference: the loop keeps a running thread alive
cdef object whoever()
cdef coro current_or_none()
cdef object suspend(coro me, int kind, object what)
cdef object suspend_outside(coro me, int kind, object what, bint os_thread)
cdef object suspend_fd(coro me, int kind, int fd)
cdef bint wake(coro t, object value) noexcept
cdef bint wake_error(coro t, object exc) noexcept
cdef void park(coro me) noexcept
cdef void begin_io(coro me, int kind, int fd) noexcept
cdef bint end_io(coro me) noexcept
cdef int raise_due(coro me) except -1
cdef int give_way(coro me) except -1
cdef int begin_slice(coro me) except -1
cdef int end_slice(coro me) except -1
cdef int selfish(coro me) noexcept
cdef bint others_run() noexcept
cdef bint is_foreign() noexcept
cdef void count_io(int delta) noexcept
cdef bint looks_with_gil() noexcept
cdef int *sleep_note() noexcept
cdef const int64_t *slice_beginning() noexcept
cdef coro spawn_internal(object fun, tuple args, bint daemon)
cdef Poller poller()
cdef int timer_add(TimerTarget t, int64_t when_ticks) except -1
cdef void timer_cancel(TimerTarget t) noexcept
cdef int64_t deadline_after(object delta) except -1
cdef bint is_past(int64_t when) noexcept
cdef int check_timeout(object seconds) except -1
cdef coro may_wait(object seconds, str call)
cdef object begin_limit(coro me, object seconds)
cdef int end_limit(object limit, object seconds, str call, object exc) except -1
cdef int set_alarm(coro me, int64_t when) except -1
cdef void cancel_alarm(coro me) noexcept
cdef int add_joiner(coro t, object me) except -1
cdef int remove_joiner(coro t, object me) except -1
cdef list locals_of(coro t)
cdef void set_profiler(profile_hook hook, void *tracer) noexcept
