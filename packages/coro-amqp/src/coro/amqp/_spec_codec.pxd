# Made from amqp-rabbitmq-0.9.1.json (AMQP 0-9-1), whose SHA-256 is
# 48dd1bb5374de5db3a0d789899a8cc2fbbe7f9a3d4efc69c8daf79dfb0591303.
# Do not change it by hand: `python -m tools.codegen PATH/amqp-rabbitmq-0.9.1.json` makes it again.
# cython: language_level=3
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from coro.amqp._values cimport Output, cursor, text


cdef struct basic_publish:
    uint16_t ticket
    text exchange
    text routing_key
    bint mandatory
    bint immediate

cdef struct basic_return:
    uint16_t reply_code
    text reply_text
    text exchange
    text routing_key

cdef struct basic_deliver:
    text consumer_tag
    uint64_t delivery_tag
    bint redelivered
    text exchange
    text routing_key

cdef struct basic_get_ok:
    uint64_t delivery_tag
    bint redelivered
    text exchange
    text routing_key
    uint32_t message_count

cdef struct basic_ack:
    uint64_t delivery_tag
    bint multiple

cdef struct basic_reject:
    uint64_t delivery_tag
    bint requeue

cdef struct basic_nack:
    uint64_t delivery_tag
    bint multiple
    bint requeue


cdef int put_basic_publish(Output o, object exchange, object routing_key, bint mandatory, bint immediate) except -1
cdef int get_basic_publish(cursor *c, basic_publish *into) except -1

cdef int put_basic_return(
    Output o, uint16_t reply_code, object reply_text, object exchange, object routing_key
) except -1
cdef int get_basic_return(cursor *c, basic_return *into) except -1

cdef int put_basic_deliver(
    Output o, object consumer_tag, uint64_t delivery_tag, bint redelivered, object exchange, object routing_key
) except -1
cdef int get_basic_deliver(cursor *c, basic_deliver *into) except -1

cdef int put_basic_get_ok(
    Output o, uint64_t delivery_tag, bint redelivered, object exchange, object routing_key, uint32_t message_count
) except -1
cdef int get_basic_get_ok(cursor *c, basic_get_ok *into) except -1

cdef int put_basic_ack(Output o, uint64_t delivery_tag, bint multiple) except -1
cdef int get_basic_ack(cursor *c, basic_ack *into) except -1

cdef int put_basic_reject(Output o, uint64_t delivery_tag, bint requeue) except -1
cdef int get_basic_reject(cursor *c, basic_reject *into) except -1

cdef int put_basic_nack(Output o, uint64_t delivery_tag, bint multiple, bint requeue) except -1
cdef int get_basic_nack(cursor *c, basic_nack *into) except -1

cdef int put_basic_properties(Output o, object mapping) except -1
cdef dict get_basic_properties(cursor *c)
