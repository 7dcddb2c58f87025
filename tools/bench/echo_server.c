/* The physical limit for the echo suite: a single-threaded epoll echo server in C.

   Idea: do per request what no server can avoid, one recv and one send, plus its share of an epoll_wait that
   returns many connections at once. Descriptors are edge-triggered and registered once; a read shorter than the
   buffer means a stream socket is drained (epoll(7), question 9), so the recv that could only say EAGAIN is saved.

   usage: echo_server ADDRESS      prints the port it listens on, then serves until killed.
   Cost: one 64 KiB buffer for all connections; a connection that does not take its echo at once waits in poll(2),
   which is good enough for a measuring instrument with request-response clients. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 1024
static char buffer[65536];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, 0);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, -1);
        } else
            return; /* the next recv reports the reset */
    }
}

static void serve(int fd) {
    for (;;) {
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n > 0) {
            send_all(fd, buffer, (size_t)n);
            if ((size_t)n < sizeof buffer)
                return;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            close(fd);
            return;
        }
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct epoll_event events[EVENTS];
    struct rlimit files;
    int one = 1;

    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr) != 1) {
        fprintf(stderr, "echo_server: expected an IPv4 address, got %s\n", argc > 1 ? argv[1] : "");
        return 2;
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0)
        fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096))
        fail("bind/listen");
    if (getsockname(listener, (struct sockaddr *)&address, &length))
        fail("getsockname");
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e))
        fail("epoll");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, events, EVENTS, -1);
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve(events[i].data.fd);
                continue;
            }
            int fd;
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                struct epoll_event c = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &c))
                    fail("epoll_ctl");
            }
        }
    }
}
