/* The load for the connections suite: connect, one request, its echo, close; so many at a time; in C so that the server
   under test is the bottleneck and not this program.

   usage: connect_load HOST PORT AT-ONCE SIZE CONNECTIONS
   SIZE 0 is for servers of HTTP that close after each answer: the request is a GET, and what comes until the server
   closes has to be an answer with status 200.

   It makes AT-ONCE connections so that everything is warm, prints "ready", waits for a line on stdin (the runner
   reads the server's CPU clock meanwhile), makes exactly CONNECTIONS more, and prints one line of JSON: wall
   seconds, own CPU seconds. The client closes first, as clients do, so its port stays in TIME_WAIT; the connections
   come from several loopback addresses in turn so that there are ports enough.

   Cost: one buffer for all, 16 bytes a connection. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#define EVENTS 256
#define SOURCES 16

typedef struct {
    int fd;
    int asked;
    uint32_t unread;
} connection;

static struct sockaddr_in address = {.sin_family = AF_INET};
static const char get[] = "GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
static char *buffer;        /* the request, and behind it room for an answer */
static uint32_t size, room; /* of the request; of the answer, the whole one unless the server closes behind it */
static int until_close;
static long wanted, issued, finished;
static int ep;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start(connection *c) {
    struct sockaddr_in source = {.sin_family = AF_INET};
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    int one = 1;
    if (issued == wanted)
        return;
    issued++;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        fail("socket");
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(issued % SOURCES));
    if (setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one)
        || bind(c->fd, (struct sockaddr *)&source, sizeof source))
        fail("bind");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->asked = 0;
    c->unread = room;
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        fail("connect");
    if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e))
        fail("epoll_ctl");
}

static void go_on(connection *c, uint32_t events) {
    if (!c->asked && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        ssize_t n = send(c->fd, buffer, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)size)
            fail("send");
        c->asked = 1;
    }
    while (c->asked && c->unread) {
        ssize_t n = recv(c->fd, buffer + size, c->unread, 0);
        if (n < 0) {
            if (errno == EAGAIN)
                return;
            fail("recv");
        }
        if (n == 0 && until_close && c->unread < room)
            break;
        if (n == 0) {
            fprintf(stderr, "connect_load: the server closed a connection with %u bytes owing\n", c->unread);
            exit(1);
        }
        if (until_close && c->unread == room
            && (n < 12 || memcmp(buffer + size, "HTTP/1.", 7) || memcmp(buffer + size + 8, " 200", 4))) {
            fprintf(stderr, "connect_load: not an answer with status 200: %.*s\n", (int)n, buffer + size);
            exit(1);
        }
        c->unread -= (uint32_t)n;
    }
    if (c->asked) {
        close(c->fd);
        finished++;
        start(c);
    }
}

static void run(connection *connections, int count, long number) {
    struct epoll_event events[EVENTS];
    wanted = number;
    issued = finished = 0;
    for (int i = 0; i < count && issued < wanted; i++)
        start(&connections[i]);
    while (finished < wanted) {
        int n = epoll_wait(ep, events, EVENTS, 30000);
        if (n == 0) {
            fprintf(stderr, "connect_load: nothing for 30 s with %ld connections under way\n", issued - finished);
            exit(1);
        }
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < n; i++)
            go_on(events[i].data.ptr, events[i].events);
    }
}

int main(int argc, char **argv) {
    char line[16];
    if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: connect_load IPV4-ADDRESS PORT AT-ONCE SIZE CONNECTIONS\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    int count = atoi(argv[3]);
    size = (uint32_t)atoi(argv[4]);
    long number = atol(argv[5]);
    connection *connections = calloc((size_t)count, sizeof *connections);
    until_close = size == 0;
    room = until_close ? 65536 : size;
    if (until_close)
        size = sizeof get - 1;
    buffer = malloc((size_t)size + room);
    memset(buffer, 'x', (size_t)size + room);
    if (until_close)
        memcpy(buffer, get, size);
    ep = epoll_create1(EPOLL_CLOEXEC);
    run(connections, count, count);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(connections, count, number);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = seconds(CLOCK_MONOTONIC) - wall;
    printf("{\"requests\": %ld, \"wall\": %.9f, \"client_cpu\": %.9f}\n", number, wall, cpu);
    fflush(stdout);
    /* wait for the runner to read the server's clock before anything else happens */
    if (!fgets(line, sizeof line, stdin))
        return 0;
    return 0;
}
