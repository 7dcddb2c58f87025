/* What a program in C pays for a message: the yardstick of the AMQP benchmarks, over librabbitmq.
 *
 *     amqp_load HOST PORT publish|confirm|consume COUNT SIZE
 *
 * Prints one line of JSON: count, processor seconds, wall seconds. "publish" goes to an exchange without queues, so the
 * broker has as little to do as possible; "confirm" keeps at most 100 messages without confirmation; "consume"
 * acknowledges each message, with a prefetch limit of 100.
 */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/tcp_socket.h>
#else /* before 0.12 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "amqp_load: %s failed\n", what);
        exit(1);
    }
}

static void publish(amqp_connection_state_t c, const char *exchange, amqp_bytes_t key, amqp_bytes_t body)
{
    check(amqp_basic_publish(c, 1, amqp_cstring_bytes(exchange), key, 0, 0, NULL, body) == AMQP_STATUS_OK, "publish");
}

/* Take confirmations until at most `most` messages are open. */
static unsigned long confirmed(amqp_connection_state_t c, unsigned long sent, unsigned long done, unsigned long most)
{
    while (sent - done > most) {
        amqp_frame_t frame;
        check(amqp_simple_wait_frame(c, &frame) == AMQP_STATUS_OK, "waiting for a confirmation");
        if (frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD) {
            amqp_basic_ack_t *ack = frame.payload.method.decoded;
            done = ack->multiple ? ack->delivery_tag : done + 1;
        }
        amqp_maybe_release_buffers(c);
    }
    return done;
}

int main(int argc, char **argv)
{
    check(argc == 6, "reading the arguments: HOST PORT MODE COUNT SIZE");
    const char *mode = argv[3];
    unsigned long count = strtoul(argv[4], NULL, 10), size = strtoul(argv[5], NULL, 10), sent, done = 0;
    char *text = calloc(1, size + 1);
    memset(text, 'x', size);
    amqp_bytes_t body = { size, text };
    amqp_connection_state_t c = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(c);
    check(amqp_socket_open(socket, argv[1], atoi(argv[2])) == 0, "connecting");
    amqp_rpc_reply_t reply = amqp_login(c, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    check(reply.reply_type == AMQP_RESPONSE_NORMAL, "login");
    amqp_channel_open(c, 1);
    amqp_queue_declare_ok_t *declared = amqp_queue_declare(c, 1, amqp_empty_bytes, 0, 0, 1, 1, amqp_empty_table);
    check(declared != NULL, "declaring a queue");
    amqp_bytes_t queue = amqp_bytes_malloc_dup(declared->queue);
    double cpu, wall;
    if (!strcmp(mode, "consume")) {
        for (sent = 0; sent < count; sent++)
            publish(c, "", queue, body);
        while (amqp_queue_declare(c, 1, queue, 1, 0, 1, 1, amqp_empty_table)->message_count < count)
            nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
        cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
        amqp_basic_qos(c, 1, 0, 100, 0);
        amqp_basic_consume(c, 1, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
        for (done = 0; done < count; done++) {
            amqp_envelope_t envelope;
            amqp_maybe_release_buffers(c);
            reply = amqp_consume_message(c, &envelope, NULL, 0);
            check(reply.reply_type == AMQP_RESPONSE_NORMAL, "consuming");
            check(amqp_basic_ack(c, 1, envelope.delivery_tag, 0) == 0, "acknowledging");
            amqp_destroy_envelope(&envelope);
        }
    } else {
        int confirm = !strcmp(mode, "confirm");
        check(confirm || !strcmp(mode, "publish"), "reading the mode");
        if (confirm)
            amqp_confirm_select(c, 1);
        cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
        for (sent = 0; sent < count; sent++) {
            publish(c, "amq.fanout", queue, body);
            if (confirm)
                done = confirmed(c, sent + 1, done, 99);
        }
        if (confirm)
            confirmed(c, sent, done, 0);
        /* an answer means that everything before it has been read */
        amqp_queue_declare(c, 1, queue, 1, 0, 1, 1, amqp_empty_table);
    }
    printf("{\"count\": %lu, \"cpu\": %.9f, \"wall\": %.9f}\n", count, now(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           now(CLOCK_MONOTONIC) - wall);
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    return 0;
}
