/* The limit for the suite of TLS: a single-threaded epoll echo server in C over OpenSSL. Link with: -lssl -lcrypto

   Idea: what one writes with OpenSSL and epoll: SSL_set_fd, read until it wants to read, write what came. The
   certificate is beside this file; its path is the second argument. Descriptors are edge-triggered and registered once.

   usage: tls_server ADDRESS CERTIFICATE      prints the port it listens on, then serves until killed.
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

#include <openssl/err.h>
#include <openssl/ssl.h>

#define EVENTS 1024
static char buffer[65536];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int waits(SSL *tls, int n, int *why) {
    *why = SSL_get_error(tls, n);
    return *why == SSL_ERROR_WANT_READ || *why == SSL_ERROR_WANT_WRITE;
}

static void send_all(SSL *tls, const char *data, int size) {
    while (size) {
        int why, n = SSL_write(tls, data, size);
        if (n > 0) {
            data += n;
            size -= n;
        } else if (waits(tls, n, &why)) {
            struct pollfd p = {.fd = SSL_get_fd(tls), .events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
            poll(&p, 1, -1);
        } else
            return; /* the next read reports the reset */
    }
}

static void serve(SSL *tls) {
    int why, n, fd = SSL_get_fd(tls);
    ERR_clear_error();
    for (;;) {
        if (!SSL_is_init_finished(tls)) {
            n = SSL_accept(tls);
            if (n == 1)
                continue;
        } else {
            n = SSL_read(tls, buffer, sizeof buffer);
            if (n > 0) {
                send_all(tls, buffer, n);
                continue;
            }
        }
        if (waits(tls, n, &why))
            return;
        if (why == SSL_ERROR_ZERO_RETURN)
            SSL_shutdown(tls);
        SSL_free(tls);
        close(fd);
        return;
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct epoll_event events[EVENTS];
    struct rlimit files;
    int one = 1;

    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    signal(SIGPIPE, SIG_IGN);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"bench", 5);
    if (argc != 3 || SSL_CTX_use_certificate_chain_file(context, argv[2]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, argv[2], SSL_FILETYPE_PEM) != 1) {
        fprintf(stderr, "usage: tls_server ADDRESS CERTIFICATE\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr) != 1) {
        fprintf(stderr, "tls_server: expected an IPv4 address, got %s\n", argc > 1 ? argv[1] : "");
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
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e))
        fail("epoll");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, events, EVENTS, -1);
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr != NULL) {
                serve(events[i].data.ptr);
                continue;
            }
            int fd;
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                SSL *tls = SSL_new(context);
                struct epoll_event c = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = tls};
                SSL_set_fd(tls, fd);
                SSL_set_accept_state(tls);
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &c))
                    fail("epoll_ctl");
            }
        }
    }
}
