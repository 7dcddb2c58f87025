/* The load for the suite of TLS: N connections of TLS 1.3, each with one request under way, in C so that the server
   under test is the bottleneck and not this program. As tools/bench/echo_load.c, whose words and figures it keeps.
   Link with: -lssl -lcrypto

   usage: tls_load HOST PORT CONNECTIONS SIZE REQUESTS
   It connects, does the handshakes, sends one request over each connection so that everything is warm, prints "ready",
   waits for a line on stdin (the runner reads the server's CPU clock meanwhile), makes exactly REQUESTS exchanges, and
   prints one line of JSON: wall seconds, own CPU seconds, latency percentiles in microseconds. Exactly that many: the
   server's CPU time divided by REQUESTS is the figure that is wanted.

   Cost: one buffer for all connections (the echoed bytes are counted, and their first and last byte compared), 24 bytes
   a connection; two clock reads through the vDSO per request for the latencies. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#define EVENTS 1024
#define PER_SOURCE 20000      /* connections from one source address: the kernel has some 28 000 ports to give */
#define STEPS 16              /* histogram steps in each power of two of nanoseconds */
#define BUCKETS (64 * STEPS)

typedef struct {
    int fd;
    SSL *tls;
    uint32_t unsent, unread;
    uint64_t began;
} connection;

static connection *connections;
static char *buffer;
static uint32_t size;
static long wanted, issued, finished;
static uint64_t histogram[BUCKETS];
static int ep;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void remember(uint64_t ns) {
    if (ns < STEPS)
        ns = STEPS;
    int power = 63 - __builtin_clzll(ns);
    histogram[power * STEPS + (int)((ns >> (power - 4)) & (STEPS - 1))]++;
}

static double percentile(double share) {
    uint64_t seen = 0, goal = (uint64_t)(share * (double)finished);
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > goal || (seen && seen == (uint64_t)finished))
            return (double)((uint64_t)(STEPS + i % STEPS) << (i / STEPS - 4)) / 1e3;
    }
    return 0;
}

/* Must it be tried again later? Everything else ends the program. */
static int again(connection *c, int n) {
    int why = SSL_get_error(c->tls, n);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return 1;
    fprintf(stderr, "tls_load: a connection failed with %u bytes owing\n", c->unread);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void push(connection *c) {
    while (c->unsent) {
        int n = SSL_write(c->tls, buffer, (int)c->unsent);
        if (n <= 0) {
            if (again(c, n))
                return;
        }
        c->unsent -= (uint32_t)n;
    }
}

static void start(connection *c) {
    if (issued == wanted)
        return;
    issued++;
    c->unsent = c->unread = size;
    c->began = nanoseconds(CLOCK_MONOTONIC);
    push(c);
}

static void pull(connection *c) {
    while (c->unread) {
        int n = SSL_read(c->tls, buffer + size, (int)c->unread);
        if (n <= 0 && again(c, n))
            return;
        if (buffer[size] != 'x' || buffer[size + n - 1] != 'x') {
            fprintf(stderr, "tls_load: the echo differs from what was sent\n");
            exit(1);
        }
        c->unread -= (uint32_t)n;
        if (c->unread == 0) {
            finished++;
            remember(nanoseconds(CLOCK_MONOTONIC) - c->began);
            start(c);
            return; /* the next echo cannot be here yet: its arrival is a new edge */
        }
    }
}

static void run(long requests, int count) {
    struct epoll_event events[EVENTS];
    memset(histogram, 0, sizeof histogram);
    wanted = requests;
    issued = finished = 0;
    for (int i = 0; i < count && issued < wanted; i++)
        start(&connections[i]);
    while (finished < wanted) {
        int n = epoll_wait(ep, events, EVENTS, 30000);
        if (n == 0) {
            fprintf(stderr, "tls_load: no echo for 30 s with %ld requests under way\n", issued - finished);
            exit(1);
        }
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;
            if (c->unsent)
                push(c);
            pull(c);
        }
    }
}

int main(int argc, char **argv) {
    struct rlimit files;
    struct sockaddr_in address = {.sin_family = AF_INET};
    int one = 1;
    char line[16];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: tls_load IPV4-ADDRESS PORT CONNECTIONS SIZE REQUESTS\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    int count = atoi(argv[3]);
    size = (uint32_t)atoi(argv[4]);
    long requests = atol(argv[5]);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    connections = calloc((size_t)count, sizeof *connections);
    buffer = malloc(2 * (size_t)size);
    memset(buffer, 'x', 2 * (size_t)size);
    ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; i++) {
        connection *c = &connections[i];
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd < 0)
            fail("socket");
        if (count > PER_SOURCE) {
            struct sockaddr_in source = {.sin_family = AF_INET};
            source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(i / PER_SOURCE));
            if (setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one)
                || bind(c->fd, (struct sockaddr *)&source, sizeof source))
                fail("bind");
        }
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
            fail("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->tls = SSL_new(context);
        SSL_set_fd(c->tls, c->fd);
        if (SSL_connect(c->tls) != 1) {
            ERR_print_errors_fp(stderr);
            fail("SSL_connect");
        }
        if (fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK) || epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e))
            fail("epoll_ctl");
    }
    run(count, count);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    uint64_t wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    run(requests, count);
    cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = nanoseconds(CLOCK_MONOTONIC) - wall;
    printf("{\"requests\": %ld, \"wall\": %.9f, \"client_cpu\": %.9f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           requests, (double)wall / 1e9, (double)cpu / 1e9, percentile(0.5), percentile(0.99), percentile(1.0));
    fflush(stdout);
    /* wait for the runner to read the server's clock before the connections close */
    if (!fgets(line, sizeof line, stdin))
        return 0;
    return 0;
}
