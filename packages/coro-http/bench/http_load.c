/* The load for the HTTP suites: N kept-alive connections with one GET under way on each, in C so that the server under
   test is the bottleneck and not this program.

   usage: http_load HOST PORT CONNECTIONS SIZE REQUESTS
   It connects, sends a GET for /SIZE over each connection, learns from the answer how long answers are (they all are,
   but for digits of the date), prints "ready", waits for a line on stdin, makes exactly REQUESTS exchanges, and prints
   one line of JSON: wall and CPU seconds. Cost: one buffer for all connections. */
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
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 1024
#define ROOM (1 << 20)

typedef struct {
    int fd;
    uint32_t unread;
} exchange;

static char input[ROOM + 1], request[256];
static size_t request_len;
static uint32_t answer_len;         /* 0 until the first answer came */
static long wanted, begun, over;
static int ep;

static void give_up(const char *what) {
    fprintf(stderr, "http_load: %s\n", what);
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void ask(exchange *x) {
    if (begun == wanted)
        return;
    begun++;
    x->unread = answer_len;
    if (send(x->fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len)
        give_up("a request did not fit into the socket's buffer");
}

/* The first answer, with its length by its head. */
static void learn(int fd) {
    size_t have = 0;
    for (;;) {
        ssize_t n = recv(fd, input + have, ROOM - have, 0);
        char *end, *field;
        if (n <= 0)
            give_up("no answer");
        have += (size_t)n;
        input[have] = 0;
        end = strstr(input, "\r\n\r\n");
        if (end == NULL)
            continue;
        if (strncmp(input, "HTTP/1.1 200", 12) != 0)
            give_up(input);
        field = strcasestr(input, "\r\ncontent-length:");
        if (field == NULL || field > end)
            give_up("an answer without content-length");
        answer_len = (uint32_t)(end - input) + 4 + (uint32_t)atoi(field + 17);
        while (have < answer_len) {
            n = recv(fd, input, ROOM, 0);
            if (n <= 0)
                give_up("half an answer");
            have += (size_t)n;
        }
        return;
    }
}

static void take(exchange *x) {
    while (x->unread) {
        ssize_t n = recv(x->fd, input, ROOM, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || (uint32_t)n > x->unread)
            give_up(n <= 0 ? "the server closed a connection with an answer owing" : "an answer is too long");
        if (x->unread == answer_len && strncmp(input, "HTTP/1.1 200", 12) != 0)
            give_up("an answer that is not 200");
        x->unread -= (uint32_t)n;
        if (x->unread == 0) {
            over++;
            ask(x);
            return;     /* the next answer is a new edge */
        }
    }
}

static void run(exchange *all, int count, long requests) {
    struct epoll_event events[EVENTS];
    wanted = requests;
    begun = over = 0;
    for (int i = 0; i < count && begun < wanted; i++)
        ask(&all[i]);
    while (over < wanted) {
        int n = epoll_wait(ep, events, EVENTS, 30000);
        if (n == 0)
            give_up("no answer for 30 s");
        for (int i = 0; i < n; i++)
            take(events[i].data.ptr);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rlimit files;
    int one = 1;
    char line[16];

    if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        give_up("usage: http_load IPV4-ADDRESS PORT CONNECTIONS SIZE REQUESTS");
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    int count = atoi(argv[3]);
    long requests = atol(argv[5]);
    request_len = (size_t)snprintf(request, sizeof request,
        "GET /%s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: http_load\r\nAccept: */*\r\n\r\n", argv[4]);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    exchange *all = calloc((size_t)count, sizeof *all);
    ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; i++) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.ptr = &all[i]};
        all[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (all[i].fd < 0)
            give_up(strerror(errno));
        /* Some servers are told their port, and listen only when they have started. */
        for (int left = 3000; connect(all[i].fd, (struct sockaddr *)&address, sizeof address); left--) {
            if (errno != ECONNREFUSED || i > 0 || left == 0)
                give_up(strerror(errno));
            usleep(10000);
        }
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (i == 0) {
            send(all[i].fd, request, request_len, MSG_NOSIGNAL);
            learn(all[i].fd);
        }
        fcntl(all[i].fd, F_SETFL, fcntl(all[i].fd, F_GETFL) | O_NONBLOCK);
        epoll_ctl(ep, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    run(all, count, count);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(all, count, requests);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = seconds(CLOCK_MONOTONIC) - wall;
    printf("{\"requests\": %ld, \"wall\": %.9f, \"client_cpu\": %.9f}\n", requests, wall, cpu);
    return 0;
}
