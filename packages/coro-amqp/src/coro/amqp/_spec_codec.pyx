# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
# cython: embedsignature.format=clinic
"""Every method of AMQP to bytes and back; the hot ones and the properties from C, too.

Made from amqp-rabbitmq-0.9.1.json (AMQP 0-9-1), whose SHA-256 is
48dd1bb5374de5db3a0d789899a8cc2fbbe7f9a3d4efc69c8daf79dfb0591303.
Do not change it by hand: `python -m tools.codegen PATH/amqp-rabbitmq-0.9.1.json` makes it again.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from coro.amqp._values cimport (
    Output,
    cursor,
    get_longstr,
    get_shortstr,
    get_table,
    get_text,
    get_u16,
    get_u32,
    get_u64,
    get_u8,
    need,
    put_longstr,
    put_shortstr,
    put_table,
    put_timestamp,
    put_u16,
    put_u32,
    put_u64,
    put_u8,
    read_u16,
    read_u32,
    read_u64,
    text,
    write_u16,
    write_u32,
    write_u64,
)

from coro.amqp.exceptions import EncodeError, ProtocolError


cdef int begin(cursor *c, const unsigned char[::1] data, Py_ssize_t pos, int depth) except -1:
    cdef Py_ssize_t n = data.shape[0]
    if pos < 0 or pos > n:
        raise ProtocolError(f"expected a position from 0 to {n}, got {pos}", 502)
    c.at = (&data[0] if n else <const unsigned char *>b"") + pos
    c.end = c.at + (n - pos)
    c.depth = depth
    return 0


def pack_connection_start(version_major, version_minor, server_properties, mechanisms, locales):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a000a)
    put_u8(o, version_major, "connection.start version-major")
    put_u8(o, version_minor, "connection.start version-minor")
    put_table(o, server_properties, "connection.start server-properties")
    put_longstr(o, mechanisms, "connection.start mechanisms")
    put_longstr(o, locales, "connection.start locales")
    return o.take()


def unpack_connection_start(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    version_major = get_u8(c)
    version_minor = get_u8(c)
    server_properties = get_table(c)
    mechanisms = get_longstr(c)
    locales = get_longstr(c)
    return (version_major, version_minor, server_properties, mechanisms, locales)


def pack_connection_start_ok(client_properties, mechanism, response, locale):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a000b)
    put_table(o, client_properties, "connection.start-ok client-properties")
    put_shortstr(o, mechanism, "connection.start-ok mechanism")
    put_longstr(o, response, "connection.start-ok response")
    put_shortstr(o, locale, "connection.start-ok locale")
    return o.take()


def unpack_connection_start_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    client_properties = get_table(c)
    mechanism = get_shortstr(c)
    response = get_longstr(c)
    locale = get_shortstr(c)
    return (client_properties, mechanism, response, locale)


def pack_connection_secure(challenge):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0014)
    put_longstr(o, challenge, "connection.secure challenge")
    return o.take()


def unpack_connection_secure(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    challenge = get_longstr(c)
    return (challenge,)


def pack_connection_secure_ok(response):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0015)
    put_longstr(o, response, "connection.secure-ok response")
    return o.take()


def unpack_connection_secure_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    response = get_longstr(c)
    return (response,)


def pack_connection_tune(channel_max, frame_max, heartbeat):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a001e)
    put_u16(o, channel_max, "connection.tune channel-max")
    put_u32(o, frame_max, "connection.tune frame-max")
    put_u16(o, heartbeat, "connection.tune heartbeat")
    return o.take()


def unpack_connection_tune(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    channel_max = get_u16(c)
    frame_max = get_u32(c)
    heartbeat = get_u16(c)
    return (channel_max, frame_max, heartbeat)


def pack_connection_tune_ok(channel_max, frame_max, heartbeat):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a001f)
    put_u16(o, channel_max, "connection.tune-ok channel-max")
    put_u32(o, frame_max, "connection.tune-ok frame-max")
    put_u16(o, heartbeat, "connection.tune-ok heartbeat")
    return o.take()


def unpack_connection_tune_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    channel_max = get_u16(c)
    frame_max = get_u32(c)
    heartbeat = get_u16(c)
    return (channel_max, frame_max, heartbeat)


def pack_connection_open(virtual_host, capabilities, insist):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0028)
    put_shortstr(o, virtual_host, "connection.open virtual-host")
    put_shortstr(o, capabilities, "connection.open capabilities")
    o.extend(1)[0] = (1 if insist else 0)
    return o.take()


def unpack_connection_open(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    virtual_host = get_shortstr(c)
    capabilities = get_shortstr(c)
    bits = get_u8(c)
    insist = (bits & 1) != 0
    return (virtual_host, capabilities, insist)


def pack_connection_open_ok(known_hosts):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0029)
    put_shortstr(o, known_hosts, "connection.open-ok known-hosts")
    return o.take()


def unpack_connection_open_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    known_hosts = get_shortstr(c)
    return (known_hosts,)


def pack_connection_close(reply_code, reply_text, class_id, method_id):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0032)
    put_u16(o, reply_code, "connection.close reply-code")
    put_shortstr(o, reply_text, "connection.close reply-text")
    put_u16(o, class_id, "connection.close class-id")
    put_u16(o, method_id, "connection.close method-id")
    return o.take()


def unpack_connection_close(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    reply_code = get_u16(c)
    reply_text = get_shortstr(c)
    class_id = get_u16(c)
    method_id = get_u16(c)
    return (reply_code, reply_text, class_id, method_id)


def pack_connection_close_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0033)
    return o.take()


def unpack_connection_close_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_connection_blocked(reason):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a003c)
    put_shortstr(o, reason, "connection.blocked reason")
    return o.take()


def unpack_connection_blocked(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    reason = get_shortstr(c)
    return (reason,)


def pack_connection_unblocked():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a003d)
    return o.take()


def unpack_connection_unblocked(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_connection_update_secret(new_secret, reason):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0046)
    put_longstr(o, new_secret, "connection.update-secret new-secret")
    put_shortstr(o, reason, "connection.update-secret reason")
    return o.take()


def unpack_connection_update_secret(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    new_secret = get_longstr(c)
    reason = get_shortstr(c)
    return (new_secret, reason)


def pack_connection_update_secret_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x000a0047)
    return o.take()


def unpack_connection_update_secret_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_channel_open(out_of_band):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0014000a)
    put_shortstr(o, out_of_band, "channel.open out-of-band")
    return o.take()


def unpack_channel_open(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    out_of_band = get_shortstr(c)
    return (out_of_band,)


def pack_channel_open_ok(channel_id):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0014000b)
    put_longstr(o, channel_id, "channel.open-ok channel-id")
    return o.take()


def unpack_channel_open_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    channel_id = get_longstr(c)
    return (channel_id,)


def pack_channel_flow(active):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00140014)
    o.extend(1)[0] = (1 if active else 0)
    return o.take()


def unpack_channel_flow(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    bits = get_u8(c)
    active = (bits & 1) != 0
    return (active,)


def pack_channel_flow_ok(active):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00140015)
    o.extend(1)[0] = (1 if active else 0)
    return o.take()


def unpack_channel_flow_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    bits = get_u8(c)
    active = (bits & 1) != 0
    return (active,)


def pack_channel_close(reply_code, reply_text, class_id, method_id):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00140028)
    put_u16(o, reply_code, "channel.close reply-code")
    put_shortstr(o, reply_text, "channel.close reply-text")
    put_u16(o, class_id, "channel.close class-id")
    put_u16(o, method_id, "channel.close method-id")
    return o.take()


def unpack_channel_close(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    reply_code = get_u16(c)
    reply_text = get_shortstr(c)
    class_id = get_u16(c)
    method_id = get_u16(c)
    return (reply_code, reply_text, class_id, method_id)


def pack_channel_close_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00140029)
    return o.take()


def unpack_channel_close_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_access_request(realm, exclusive, passive, active, write, read):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x001e000a)
    put_shortstr(o, realm, "access.request realm")
    o.extend(1)[0] = (
        (1 if exclusive else 0)
        | (2 if passive else 0)
        | (4 if active else 0)
        | (8 if write else 0)
        | (16 if read else 0)
    )
    return o.take()


def unpack_access_request(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    realm = get_shortstr(c)
    bits = get_u8(c)
    exclusive = (bits & 1) != 0
    passive = (bits & 2) != 0
    active = (bits & 4) != 0
    write = (bits & 8) != 0
    read = (bits & 16) != 0
    return (realm, exclusive, passive, active, write, read)


def pack_access_request_ok(ticket):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x001e000b)
    put_u16(o, ticket, "access.request-ok ticket")
    return o.take()


def unpack_access_request_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    return (ticket,)


def pack_exchange_declare(ticket, exchange, type, passive, durable, auto_delete, internal, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0028000a)
    put_u16(o, ticket, "exchange.declare ticket")
    put_shortstr(o, exchange, "exchange.declare exchange")
    put_shortstr(o, type, "exchange.declare type")
    o.extend(1)[0] = (
        (1 if passive else 0)
        | (2 if durable else 0)
        | (4 if auto_delete else 0)
        | (8 if internal else 0)
        | (16 if nowait else 0)
    )
    put_table(o, arguments, "exchange.declare arguments")
    return o.take()


def unpack_exchange_declare(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    exchange = get_shortstr(c)
    type = get_shortstr(c)
    bits = get_u8(c)
    passive = (bits & 1) != 0
    durable = (bits & 2) != 0
    auto_delete = (bits & 4) != 0
    internal = (bits & 8) != 0
    nowait = (bits & 16) != 0
    arguments = get_table(c)
    return (ticket, exchange, type, passive, durable, auto_delete, internal, nowait, arguments)


def pack_exchange_declare_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0028000b)
    return o.take()


def unpack_exchange_declare_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_exchange_delete(ticket, exchange, if_unused, nowait):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00280014)
    put_u16(o, ticket, "exchange.delete ticket")
    put_shortstr(o, exchange, "exchange.delete exchange")
    o.extend(1)[0] = (1 if if_unused else 0) | (2 if nowait else 0)
    return o.take()


def unpack_exchange_delete(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    exchange = get_shortstr(c)
    bits = get_u8(c)
    if_unused = (bits & 1) != 0
    nowait = (bits & 2) != 0
    return (ticket, exchange, if_unused, nowait)


def pack_exchange_delete_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00280015)
    return o.take()


def unpack_exchange_delete_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_exchange_bind(ticket, destination, source, routing_key, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0028001e)
    put_u16(o, ticket, "exchange.bind ticket")
    put_shortstr(o, destination, "exchange.bind destination")
    put_shortstr(o, source, "exchange.bind source")
    put_shortstr(o, routing_key, "exchange.bind routing-key")
    o.extend(1)[0] = (1 if nowait else 0)
    put_table(o, arguments, "exchange.bind arguments")
    return o.take()


def unpack_exchange_bind(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    destination = get_shortstr(c)
    source = get_shortstr(c)
    routing_key = get_shortstr(c)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    arguments = get_table(c)
    return (ticket, destination, source, routing_key, nowait, arguments)


def pack_exchange_bind_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0028001f)
    return o.take()


def unpack_exchange_bind_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_exchange_unbind(ticket, destination, source, routing_key, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00280028)
    put_u16(o, ticket, "exchange.unbind ticket")
    put_shortstr(o, destination, "exchange.unbind destination")
    put_shortstr(o, source, "exchange.unbind source")
    put_shortstr(o, routing_key, "exchange.unbind routing-key")
    o.extend(1)[0] = (1 if nowait else 0)
    put_table(o, arguments, "exchange.unbind arguments")
    return o.take()


def unpack_exchange_unbind(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    destination = get_shortstr(c)
    source = get_shortstr(c)
    routing_key = get_shortstr(c)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    arguments = get_table(c)
    return (ticket, destination, source, routing_key, nowait, arguments)


def pack_exchange_unbind_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00280033)
    return o.take()


def unpack_exchange_unbind_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_queue_declare(ticket, queue, passive, durable, exclusive, auto_delete, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0032000a)
    put_u16(o, ticket, "queue.declare ticket")
    put_shortstr(o, queue, "queue.declare queue")
    o.extend(1)[0] = (
        (1 if passive else 0)
        | (2 if durable else 0)
        | (4 if exclusive else 0)
        | (8 if auto_delete else 0)
        | (16 if nowait else 0)
    )
    put_table(o, arguments, "queue.declare arguments")
    return o.take()


def unpack_queue_declare(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    bits = get_u8(c)
    passive = (bits & 1) != 0
    durable = (bits & 2) != 0
    exclusive = (bits & 4) != 0
    auto_delete = (bits & 8) != 0
    nowait = (bits & 16) != 0
    arguments = get_table(c)
    return (ticket, queue, passive, durable, exclusive, auto_delete, nowait, arguments)


def pack_queue_declare_ok(queue, message_count, consumer_count):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0032000b)
    put_shortstr(o, queue, "queue.declare-ok queue")
    put_u32(o, message_count, "queue.declare-ok message-count")
    put_u32(o, consumer_count, "queue.declare-ok consumer-count")
    return o.take()


def unpack_queue_declare_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    queue = get_shortstr(c)
    message_count = get_u32(c)
    consumer_count = get_u32(c)
    return (queue, message_count, consumer_count)


def pack_queue_bind(ticket, queue, exchange, routing_key, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320014)
    put_u16(o, ticket, "queue.bind ticket")
    put_shortstr(o, queue, "queue.bind queue")
    put_shortstr(o, exchange, "queue.bind exchange")
    put_shortstr(o, routing_key, "queue.bind routing-key")
    o.extend(1)[0] = (1 if nowait else 0)
    put_table(o, arguments, "queue.bind arguments")
    return o.take()


def unpack_queue_bind(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    arguments = get_table(c)
    return (ticket, queue, exchange, routing_key, nowait, arguments)


def pack_queue_bind_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320015)
    return o.take()


def unpack_queue_bind_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_queue_purge(ticket, queue, nowait):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0032001e)
    put_u16(o, ticket, "queue.purge ticket")
    put_shortstr(o, queue, "queue.purge queue")
    o.extend(1)[0] = (1 if nowait else 0)
    return o.take()


def unpack_queue_purge(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    return (ticket, queue, nowait)


def pack_queue_purge_ok(message_count):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0032001f)
    put_u32(o, message_count, "queue.purge-ok message-count")
    return o.take()


def unpack_queue_purge_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    message_count = get_u32(c)
    return (message_count,)


def pack_queue_delete(ticket, queue, if_unused, if_empty, nowait):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320028)
    put_u16(o, ticket, "queue.delete ticket")
    put_shortstr(o, queue, "queue.delete queue")
    o.extend(1)[0] = (1 if if_unused else 0) | (2 if if_empty else 0) | (4 if nowait else 0)
    return o.take()


def unpack_queue_delete(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    bits = get_u8(c)
    if_unused = (bits & 1) != 0
    if_empty = (bits & 2) != 0
    nowait = (bits & 4) != 0
    return (ticket, queue, if_unused, if_empty, nowait)


def pack_queue_delete_ok(message_count):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320029)
    put_u32(o, message_count, "queue.delete-ok message-count")
    return o.take()


def unpack_queue_delete_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    message_count = get_u32(c)
    return (message_count,)


def pack_queue_unbind(ticket, queue, exchange, routing_key, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320032)
    put_u16(o, ticket, "queue.unbind ticket")
    put_shortstr(o, queue, "queue.unbind queue")
    put_shortstr(o, exchange, "queue.unbind exchange")
    put_shortstr(o, routing_key, "queue.unbind routing-key")
    put_table(o, arguments, "queue.unbind arguments")
    return o.take()


def unpack_queue_unbind(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    arguments = get_table(c)
    return (ticket, queue, exchange, routing_key, arguments)


def pack_queue_unbind_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x00320033)
    return o.take()


def unpack_queue_unbind_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_basic_qos(prefetch_size, prefetch_count, _global):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c000a)
    put_u32(o, prefetch_size, "basic.qos prefetch-size")
    put_u16(o, prefetch_count, "basic.qos prefetch-count")
    o.extend(1)[0] = (1 if _global else 0)
    return o.take()


def unpack_basic_qos(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    prefetch_size = get_u32(c)
    prefetch_count = get_u16(c)
    bits = get_u8(c)
    _global = (bits & 1) != 0
    return (prefetch_size, prefetch_count, _global)


def pack_basic_qos_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c000b)
    return o.take()


def unpack_basic_qos_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_basic_consume(ticket, queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0014)
    put_u16(o, ticket, "basic.consume ticket")
    put_shortstr(o, queue, "basic.consume queue")
    put_shortstr(o, consumer_tag, "basic.consume consumer-tag")
    o.extend(1)[0] = (1 if no_local else 0) | (2 if no_ack else 0) | (4 if exclusive else 0) | (8 if nowait else 0)
    put_table(o, arguments, "basic.consume arguments")
    return o.take()


def unpack_basic_consume(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    consumer_tag = get_shortstr(c)
    bits = get_u8(c)
    no_local = (bits & 1) != 0
    no_ack = (bits & 2) != 0
    exclusive = (bits & 4) != 0
    nowait = (bits & 8) != 0
    arguments = get_table(c)
    return (ticket, queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments)


def pack_basic_consume_ok(consumer_tag):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0015)
    put_shortstr(o, consumer_tag, "basic.consume-ok consumer-tag")
    return o.take()


def unpack_basic_consume_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    consumer_tag = get_shortstr(c)
    return (consumer_tag,)


def pack_basic_cancel(consumer_tag, nowait):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c001e)
    put_shortstr(o, consumer_tag, "basic.cancel consumer-tag")
    o.extend(1)[0] = (1 if nowait else 0)
    return o.take()


def unpack_basic_cancel(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    consumer_tag = get_shortstr(c)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    return (consumer_tag, nowait)


def pack_basic_cancel_ok(consumer_tag):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c001f)
    put_shortstr(o, consumer_tag, "basic.cancel-ok consumer-tag")
    return o.take()


def unpack_basic_cancel_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    consumer_tag = get_shortstr(c)
    return (consumer_tag,)


def pack_basic_publish(ticket, exchange, routing_key, mandatory, immediate):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0028)
    put_u16(o, ticket, "basic.publish ticket")
    put_shortstr(o, exchange, "basic.publish exchange")
    put_shortstr(o, routing_key, "basic.publish routing-key")
    o.extend(1)[0] = (1 if mandatory else 0) | (2 if immediate else 0)
    return o.take()


def unpack_basic_publish(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    bits = get_u8(c)
    mandatory = (bits & 1) != 0
    immediate = (bits & 2) != 0
    return (ticket, exchange, routing_key, mandatory, immediate)


def pack_basic_return(reply_code, reply_text, exchange, routing_key):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0032)
    put_u16(o, reply_code, "basic.return reply-code")
    put_shortstr(o, reply_text, "basic.return reply-text")
    put_shortstr(o, exchange, "basic.return exchange")
    put_shortstr(o, routing_key, "basic.return routing-key")
    return o.take()


def unpack_basic_return(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    reply_code = get_u16(c)
    reply_text = get_shortstr(c)
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    return (reply_code, reply_text, exchange, routing_key)


def pack_basic_deliver(consumer_tag, delivery_tag, redelivered, exchange, routing_key):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c003c)
    put_shortstr(o, consumer_tag, "basic.deliver consumer-tag")
    put_u64(o, delivery_tag, "basic.deliver delivery-tag")
    o.extend(1)[0] = (1 if redelivered else 0)
    put_shortstr(o, exchange, "basic.deliver exchange")
    put_shortstr(o, routing_key, "basic.deliver routing-key")
    return o.take()


def unpack_basic_deliver(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    consumer_tag = get_shortstr(c)
    delivery_tag = get_u64(c)
    bits = get_u8(c)
    redelivered = (bits & 1) != 0
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    return (consumer_tag, delivery_tag, redelivered, exchange, routing_key)


def pack_basic_get(ticket, queue, no_ack):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0046)
    put_u16(o, ticket, "basic.get ticket")
    put_shortstr(o, queue, "basic.get queue")
    o.extend(1)[0] = (1 if no_ack else 0)
    return o.take()


def unpack_basic_get(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    ticket = get_u16(c)
    queue = get_shortstr(c)
    bits = get_u8(c)
    no_ack = (bits & 1) != 0
    return (ticket, queue, no_ack)


def pack_basic_get_ok(delivery_tag, redelivered, exchange, routing_key, message_count):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0047)
    put_u64(o, delivery_tag, "basic.get-ok delivery-tag")
    o.extend(1)[0] = (1 if redelivered else 0)
    put_shortstr(o, exchange, "basic.get-ok exchange")
    put_shortstr(o, routing_key, "basic.get-ok routing-key")
    put_u32(o, message_count, "basic.get-ok message-count")
    return o.take()


def unpack_basic_get_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    delivery_tag = get_u64(c)
    bits = get_u8(c)
    redelivered = (bits & 1) != 0
    exchange = get_shortstr(c)
    routing_key = get_shortstr(c)
    message_count = get_u32(c)
    return (delivery_tag, redelivered, exchange, routing_key, message_count)


def pack_basic_get_empty(cluster_id):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0048)
    put_shortstr(o, cluster_id, "basic.get-empty cluster-id")
    return o.take()


def unpack_basic_get_empty(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    cluster_id = get_shortstr(c)
    return (cluster_id,)


def pack_basic_ack(delivery_tag, multiple):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0050)
    put_u64(o, delivery_tag, "basic.ack delivery-tag")
    o.extend(1)[0] = (1 if multiple else 0)
    return o.take()


def unpack_basic_ack(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    delivery_tag = get_u64(c)
    bits = get_u8(c)
    multiple = (bits & 1) != 0
    return (delivery_tag, multiple)


def pack_basic_reject(delivery_tag, requeue):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c005a)
    put_u64(o, delivery_tag, "basic.reject delivery-tag")
    o.extend(1)[0] = (1 if requeue else 0)
    return o.take()


def unpack_basic_reject(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    delivery_tag = get_u64(c)
    bits = get_u8(c)
    requeue = (bits & 1) != 0
    return (delivery_tag, requeue)


def pack_basic_recover_async(requeue):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0064)
    o.extend(1)[0] = (1 if requeue else 0)
    return o.take()


def unpack_basic_recover_async(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    bits = get_u8(c)
    requeue = (bits & 1) != 0
    return (requeue,)


def pack_basic_recover(requeue):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c006e)
    o.extend(1)[0] = (1 if requeue else 0)
    return o.take()


def unpack_basic_recover(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    bits = get_u8(c)
    requeue = (bits & 1) != 0
    return (requeue,)


def pack_basic_recover_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c006f)
    return o.take()


def unpack_basic_recover_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_basic_nack(delivery_tag, multiple, requeue):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x003c0078)
    put_u64(o, delivery_tag, "basic.nack delivery-tag")
    o.extend(1)[0] = (1 if multiple else 0) | (2 if requeue else 0)
    return o.take()


def unpack_basic_nack(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    delivery_tag = get_u64(c)
    bits = get_u8(c)
    multiple = (bits & 1) != 0
    requeue = (bits & 2) != 0
    return (delivery_tag, multiple, requeue)


def pack_tx_select():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a000a)
    return o.take()


def unpack_tx_select(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_tx_select_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a000b)
    return o.take()


def unpack_tx_select_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_tx_commit():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a0014)
    return o.take()


def unpack_tx_commit(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_tx_commit_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a0015)
    return o.take()


def unpack_tx_commit_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_tx_rollback():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a001e)
    return o.take()


def unpack_tx_rollback(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_tx_rollback_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x005a001f)
    return o.take()


def unpack_tx_rollback_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


def pack_confirm_select(nowait):
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0055000a)
    o.extend(1)[0] = (1 if nowait else 0)
    return o.take()


def unpack_confirm_select(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    cdef uint8_t bits
    begin(c, data, pos, depth)
    bits = get_u8(c)
    nowait = (bits & 1) != 0
    return (nowait,)


def pack_confirm_select_ok():
    cdef Output o = Output.__new__(Output)
    write_u32(o.extend(4), 0x0055000b)
    return o.take()


def unpack_confirm_select_ok(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):
    cdef cursor at
    cdef cursor *c = &at
    begin(c, data, pos, depth)
    return ()


cdef int put_basic_publish(Output o, object exchange, object routing_key, bint mandatory, bint immediate) except -1:
    """basic.publish with its numbers."""
    write_u32(o.extend(4), 0x003c0028)
    write_u16(o.extend(2), 0)
    put_shortstr(o, exchange, "basic.publish exchange")
    put_shortstr(o, routing_key, "basic.publish routing-key")
    o.extend(1)[0] = (1 if mandatory else 0) | (2 if immediate else 0)
    return 0


cdef int get_basic_publish(cursor *c, basic_publish *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    into.ticket = get_u16(c)
    get_text(c, &into.exchange)
    get_text(c, &into.routing_key)
    bits = get_u8(c)
    into.mandatory = (bits & 1) != 0
    into.immediate = (bits & 2) != 0
    return 0


cdef int put_basic_return(
    Output o, uint16_t reply_code, object reply_text, object exchange, object routing_key
) except -1:
    """basic.return with its numbers."""
    write_u32(o.extend(4), 0x003c0032)
    write_u16(o.extend(2), reply_code)
    put_shortstr(o, reply_text, "basic.return reply-text")
    put_shortstr(o, exchange, "basic.return exchange")
    put_shortstr(o, routing_key, "basic.return routing-key")
    return 0


cdef int get_basic_return(cursor *c, basic_return *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    into.reply_code = get_u16(c)
    get_text(c, &into.reply_text)
    get_text(c, &into.exchange)
    get_text(c, &into.routing_key)
    return 0


cdef int put_basic_deliver(
    Output o, object consumer_tag, uint64_t delivery_tag, bint redelivered, object exchange, object routing_key
) except -1:
    """basic.deliver with its numbers."""
    write_u32(o.extend(4), 0x003c003c)
    put_shortstr(o, consumer_tag, "basic.deliver consumer-tag")
    write_u64(o.extend(8), delivery_tag)
    o.extend(1)[0] = (1 if redelivered else 0)
    put_shortstr(o, exchange, "basic.deliver exchange")
    put_shortstr(o, routing_key, "basic.deliver routing-key")
    return 0


cdef int get_basic_deliver(cursor *c, basic_deliver *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    get_text(c, &into.consumer_tag)
    into.delivery_tag = get_u64(c)
    bits = get_u8(c)
    into.redelivered = (bits & 1) != 0
    get_text(c, &into.exchange)
    get_text(c, &into.routing_key)
    return 0


cdef int put_basic_get_ok(
    Output o, uint64_t delivery_tag, bint redelivered, object exchange, object routing_key, uint32_t message_count
) except -1:
    """basic.get-ok with its numbers."""
    write_u32(o.extend(4), 0x003c0047)
    write_u64(o.extend(8), delivery_tag)
    o.extend(1)[0] = (1 if redelivered else 0)
    put_shortstr(o, exchange, "basic.get-ok exchange")
    put_shortstr(o, routing_key, "basic.get-ok routing-key")
    write_u32(o.extend(4), message_count)
    return 0


cdef int get_basic_get_ok(cursor *c, basic_get_ok *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    into.delivery_tag = get_u64(c)
    bits = get_u8(c)
    into.redelivered = (bits & 1) != 0
    get_text(c, &into.exchange)
    get_text(c, &into.routing_key)
    into.message_count = get_u32(c)
    return 0


cdef int put_basic_ack(Output o, uint64_t delivery_tag, bint multiple) except -1:
    """basic.ack with its numbers."""
    write_u32(o.extend(4), 0x003c0050)
    write_u64(o.extend(8), delivery_tag)
    o.extend(1)[0] = (1 if multiple else 0)
    return 0


cdef int get_basic_ack(cursor *c, basic_ack *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    into.delivery_tag = get_u64(c)
    bits = get_u8(c)
    into.multiple = (bits & 1) != 0
    return 0


cdef int put_basic_reject(Output o, uint64_t delivery_tag, bint requeue) except -1:
    """basic.reject with its numbers."""
    write_u32(o.extend(4), 0x003c005a)
    write_u64(o.extend(8), delivery_tag)
    o.extend(1)[0] = (1 if requeue else 0)
    return 0


cdef int get_basic_reject(cursor *c, basic_reject *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    into.delivery_tag = get_u64(c)
    bits = get_u8(c)
    into.requeue = (bits & 1) != 0
    return 0


cdef int put_basic_nack(Output o, uint64_t delivery_tag, bint multiple, bint requeue) except -1:
    """basic.nack with its numbers."""
    write_u32(o.extend(4), 0x003c0078)
    write_u64(o.extend(8), delivery_tag)
    o.extend(1)[0] = (1 if multiple else 0) | (2 if requeue else 0)
    return 0


cdef int get_basic_nack(cursor *c, basic_nack *into) except -1:
    """The arguments behind the numbers. Strings point into the frame."""
    cdef uint8_t bits
    into.delivery_tag = get_u64(c)
    bits = get_u8(c)
    into.multiple = (bits & 1) != 0
    into.requeue = (bits & 2) != 0
    return 0


# Name in either spelling -> place in the order of the flags.
cdef dict BASIC_INDEX = {
    "content-type": 0,
    "content_type": 0,
    "content-encoding": 1,
    "content_encoding": 1,
    "headers": 2,
    "delivery-mode": 3,
    "delivery_mode": 3,
    "priority": 4,
    "correlation-id": 5,
    "correlation_id": 5,
    "reply-to": 6,
    "reply_to": 6,
    "expiration": 7,
    "message-id": 8,
    "message_id": 8,
    "timestamp": 9,
    "type": 10,
    "user-id": 11,
    "user_id": 11,
    "app-id": 12,
    "app_id": 12,
    "cluster-id": 13,
    "cluster_id": 13,
}


cdef int put_basic_properties(Output o, object mapping) except -1:
    """Flags and values of what a mapping has; None is nothing. EncodeError for an unknown name."""
    cdef Py_ssize_t start = o.size
    cdef unsigned int flags = 0
    cdef int i
    cdef list values = [None] * 14
    o.extend(2)
    if not isinstance(mapping, dict):
        try:
            mapping = dict(mapping)
        except (TypeError, ValueError):
            kind = type(mapping).__name__
            raise EncodeError(f"properties: expected a dict, got {kind}") from None
    for key, value in (<dict>mapping).items():
        if value is None:
            continue
        place = BASIC_INDEX.get(key)
        if place is None:
            known = ", ".join(name for name in BASIC_INDEX if "_" not in name)
            raise EncodeError(f"properties: expected names among {known}, got {key!r}")
        i = place
        if flags & (0x8000 >> i):
            raise EncodeError(f"properties: {key!r} is given in both spellings; leave one out")
        flags |= 0x8000 >> i
        values[i] = value
    write_u16(o.data + start, flags)
    if flags & 0x8000:
        put_shortstr(o, values[0], "property content-type")
    if flags & 0x4000:
        put_shortstr(o, values[1], "property content-encoding")
    if flags & 0x2000:
        put_table(o, values[2], "property headers")
    if flags & 0x1000:
        put_u8(o, values[3], "property delivery-mode")
    if flags & 0x0800:
        put_u8(o, values[4], "property priority")
    if flags & 0x0400:
        put_shortstr(o, values[5], "property correlation-id")
    if flags & 0x0200:
        put_shortstr(o, values[6], "property reply-to")
    if flags & 0x0100:
        put_shortstr(o, values[7], "property expiration")
    if flags & 0x0080:
        put_shortstr(o, values[8], "property message-id")
    if flags & 0x0040:
        put_timestamp(o, values[9], "property timestamp")
    if flags & 0x0020:
        put_shortstr(o, values[10], "property type")
    if flags & 0x0010:
        put_shortstr(o, values[11], "property user-id")
    if flags & 0x0008:
        put_shortstr(o, values[12], "property app-id")
    if flags & 0x0004:
        put_shortstr(o, values[13], "property cluster-id")
    return 0


cdef dict get_basic_properties(cursor *c):
    """What the flags say is there, by name."""
    cdef unsigned int flags = get_u16(c)
    cdef dict found = {}
    if flags & 0x0003:
        raise ProtocolError(f"expected flags of properties that exist, got {flags:#06x}", 502)
    if flags & 0x8000:
        found["content-type"] = get_shortstr(c)
    if flags & 0x4000:
        found["content-encoding"] = get_shortstr(c)
    if flags & 0x2000:
        found["headers"] = get_table(c)
    if flags & 0x1000:
        found["delivery-mode"] = get_u8(c)
    if flags & 0x0800:
        found["priority"] = get_u8(c)
    if flags & 0x0400:
        found["correlation-id"] = get_shortstr(c)
    if flags & 0x0200:
        found["reply-to"] = get_shortstr(c)
    if flags & 0x0100:
        found["expiration"] = get_shortstr(c)
    if flags & 0x0080:
        found["message-id"] = get_shortstr(c)
    if flags & 0x0040:
        found["timestamp"] = get_u64(c)
    if flags & 0x0020:
        found["type"] = get_shortstr(c)
    if flags & 0x0010:
        found["user-id"] = get_shortstr(c)
    if flags & 0x0008:
        found["app-id"] = get_shortstr(c)
    if flags & 0x0004:
        found["cluster-id"] = get_shortstr(c)
    return found
