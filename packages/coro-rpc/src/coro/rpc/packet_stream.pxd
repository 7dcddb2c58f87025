# C-level face of the connection; explained in packet_stream.pyx. For _calls.pyx.
# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from coro.capi cimport TimerTarget, coro, sock
from coro.rpc._wire.frames cimport FrameReader

cdef enum:                  # Call.state
    WAITING = 0
    REPLIED = 1
    FAILED = 2
    LOST = 3
    TIMED_OUT = 4
    CANCELLED = 5

cdef enum:                  # PacketStream.state
    OPEN = 0
    CLOSING = 1
    CLOSED = 2

cdef enum:                  # the first byte of a FAIL
    CODE_BUSY = 1
    CODE_NO_METHOD = 2
    CODE_BAD_ARGUMENTS = 3
    CODE_EXCEPTION = 4
    CODE_DEADLINE = 5
    CODE_CANCELLED = 6
    CODE_GOING_AWAY = 7
    CODE_NOT_AUTHENTICATED = 8
    CODE_NOT_PERMITTED = 9
    CODE_BAD_ENCODING = 10
    CODE_TOO_BIG = 11


cdef class Call(TimerTarget):
    cdef PacketStream stream
    cdef readonly uint64_t id
    cdef coro thread
    cdef coro caller
    cdef int state
    cdef object payload
    cdef list segments
    cdef object what
    cdef object seconds
    cdef bint inherited
    cdef int64_t started
    cdef object on_end
    cdef object __weakref__

    cdef int limit(self, object seconds) except -1
    cdef int finish(self, int state, object payload) except -1
    cdef int abandon(self, int state) except -1
    cdef int await_end(self, coro me) except -1
    cdef object outcome(self)
    cdef int take_item(self, object payload) except -1
    cdef int take_credit(self, int64_t n) except -1


cdef class Incoming(TimerTarget):
    cdef PacketStream stream
    cdef readonly uint64_t id
    cdef object payload
    cdef list segments
    cdef Py_ssize_t size
    cdef object method
    cdef object details
    cdef coro thread
    cdef bint one_way, done, begun
    cdef readonly bint cancelled, expired
    cdef int64_t started, deadline
    cdef int64_t credit
    cdef coro credit_waiter
    cdef object upload

    cdef int stop(self) except -1


cdef class PacketStream:
    cdef readonly object stream
    cdef sock direct
    cdef FrameReader frames
    cdef readonly str name
    cdef coro reader, writer
    cdef int state
    cdef object cause
    cdef object error_class
    cdef str error_text
    cdef bint takes_pieces
    cdef bint started, writer_idle, peer_going, ready, said_done
    cdef unsigned long generation
    cdef dict pending
    cdef dict serving
    cdef uint64_t next_id, next_push
    # what is to be sent
    cdef char *out
    cdef char *sending
    cdef Py_ssize_t out_n, out_room, sending_room
    cdef list bulks
    cdef dict bulk_of
    cdef Py_ssize_t queued, max_queued, in_flight_bytes
    cdef list room_waiters
    cdef list end_waiters
    cdef bint pong_wanted
    cdef uint64_t pong_id
    cdef bytes pong_payload
    cdef int64_t send_began
    # limits
    cdef Py_ssize_t max_packet, chunk
    cdef uint32_t window
    cdef Py_ssize_t max_outstanding, max_running, max_held
    cdef object timeout
    cdef int64_t keepalive, keepalive_timeout, idle_timeout, write_timeout
    # pushes
    cdef int64_t push_credit
    cdef Py_ssize_t push_used, push_held
    cdef list pushes
    cdef Py_ssize_t pushes_head
    cdef coro pusher
    cdef object handler, push_handler
    cdef bint tell_errors
    # the incoming side
    cdef Py_ssize_t held
    # watching
    cdef object watch
    cdef int64_t heard, active, pinged_at
    cdef bint pinged, suspect
    cdef dict pings
    cdef uint64_t next_ping
    cdef object on_close
    # counters
    cdef uint64_t n_sent_packets, n_sent_bytes, n_received_bytes, n_late, n_unknown, n_writes, n_reads
    cdef uint64_t n_calls, n_served, n_failed, n_cancelled, n_timeouts, n_busy, n_pushes, n_dropped_pushes
    cdef uint64_t histogram[32]
    cdef object __weakref__

    cdef int check_usable(self) except -1
    cdef object make_error(self)
    cdef int reserve(self, Py_ssize_t n) except -1
    cdef int wake_writer(self) except -1
    cdef int put(self, int kind, uint64_t number, const char *a, Py_ssize_t an, const char *b, Py_ssize_t bn) except -1
    cdef int put_bytes(self, int kind, uint64_t number, bytes payload) except -1
    cdef int put_pieces(self, int kind, uint64_t number, list pieces, Py_ssize_t total) except -1
    cdef int put_credit(self, int kind, uint64_t number, Py_ssize_t n) except -1
    cdef int fail(self, uint64_t number, int code, object text) except -1
    cdef int check_size(self, Py_ssize_t n) except -1
    cdef bint is_full(self) noexcept
    cdef int wait_for_room(self, coro me, Call call) except -1
    cdef int wake_room(self) except -1
    cdef int wait_ready(self, coro me, Call call) except -1
    cdef int wait_to_push(self, coro me) except -1
    cdef uint64_t new_id(self) except 0
    cdef int begin_call(self, Call call, coro me) except -1
    cdef int dispatch(self, int kind, uint64_t number, object payload) except -1
    cdef int lost(self, object error_class, str text, object cause) except -1
    cdef int kick(self, object exc) except -1
    cdef int on_request(self, uint64_t number, bytes payload) except -1
    cdef int on_push(self, uint64_t number, bytes payload) except -1
    cdef int on_item_up(self, uint64_t number, bytes payload) except -1
    cdef int on_end_up(self, uint64_t number, bytes payload) except -1
    cdef int on_greeted(self) except -1
    cdef int admit(self, Incoming inc) except -1
    cdef int start_serving(self, Incoming inc) except -1
    cdef int serve(self, Incoming inc) except -1
    cdef int served(self, Incoming inc) except -1
    cdef int return_push_credit(self, Py_ssize_t n) except -1
    cdef object failure(self, Call call)
