/* The load for handshakes: one connection after the other, each with a handshake of TLS 1.3, one byte back and forth,
   and a close. Link with: -lssl -lcrypto

   usage: tls_handshakes HOST PORT CONNECTIONS SIZE REQUESTS
   SIZE is 1 for full handshakes and 2 for resumed ones (the byte brings the tickets); CONNECTIONS is not used. It does
   ten, prints "ready", waits for a line on stdin, does REQUESTS, and prints one line of JSON as tls_load does. The
   server's processor time is read from outside, so it does not matter that one handshake waits for the other. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

static SSL_CTX *context;
static SSL_SESSION *session;
static struct sockaddr_in address = {.sin_family = AF_INET};
static int resume;

static void fail(const char *what) {
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void once(void) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte = 'x';
    SSL *tls = SSL_new(context);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL_set_fd(tls, fd);
    if (resume && session)
        SSL_set_session(tls, session);
    if (SSL_connect(tls) != 1)
        fail("SSL_connect");
    if (resume && session && !SSL_session_reused(tls)) {
        fprintf(stderr, "tls_handshakes: the server did not resume the session\n");
        exit(1);
    }
    if (SSL_write(tls, &byte, 1) != 1 || SSL_read(tls, &byte, 1) != 1)
        fail("the byte");
    if (resume) {
        SSL_SESSION_free(session);
        session = SSL_get1_session(tls);
    }
    SSL_shutdown(tls);
    SSL_free(tls);
    close(fd);
}

int main(int argc, char **argv) {
    char line[16];
    if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: tls_handshakes IPV4-ADDRESS PORT CONNECTIONS SIZE REQUESTS\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    resume = atoi(argv[4]) == 2;
    long requests = atol(argv[5]);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    for (int i = 0; i < 10; i++)
        once();
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    uint64_t wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < requests; i++)
        once();
    cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = nanoseconds(CLOCK_MONOTONIC) - wall;
    printf("{\"requests\": %ld, \"wall\": %.9f, \"client_cpu\": %.9f}\n", requests, (double)wall / 1e9,
           (double)cpu / 1e9);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 0;
    return 0;
}
