# What the socket layer needs of the C library and is not declared (or not declared fully) by Cython itself.
# Declarations only: nothing here is compiled on its own.  Sources: the manual pages of section 2 and 7 named
# beside each group.

from libc.stdint cimport uint16_t, uint32_t
from posix.types cimport mode_t, off_t


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE 1
    #endif
    #include <sys/types.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <sys/uio.h>
    #include <sys/ioctl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <arpa/inet.h>
    #include <net/if.h>
    #include <poll.h>
    #include <fcntl.h>
    #include <unistd.h>
    #include <stddef.h>
    #include <string.h>
    #include <errno.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0              /* macOS has SO_NOSIGPIPE instead */
    #endif
    #ifndef MSG_CMSG_CLOEXEC
    #define MSG_CMSG_CLOEXEC 0
    #endif
    #ifndef MSG_ERRQUEUE
    #define MSG_ERRQUEUE 0
    #endif
    #ifndef SO_DOMAIN
    #define SO_DOMAIN -1
    #endif
    #ifndef SO_PROTOCOL
    #define SO_PROTOCOL -1
    #endif
    #ifndef TCP_ULP
    #define TCP_ULP -1
    #endif

    static int coro_set_flags(int fd, int cloexec)
    {
        int f = fcntl(fd, F_GETFL);
        if (f < 0)
            return -1;
        if (!(f & O_NONBLOCK) && fcntl(fd, F_SETFL, f | O_NONBLOCK) < 0)
            return -1;
        if (cloexec && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return -1;
        return 0;
    }

    static void coro_close_keep_errno(int fd)
    {
        int e = errno;
        close(fd);
        errno = e;
    }

    /* Non-blocking and close-on-exec from the first instant where the system can do that. */
    static int coro_socket(int domain, int type, int protocol)
    {
    #ifdef SOCK_CLOEXEC
        return socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    #else
        int fd = socket(domain, type, protocol);
        if (fd >= 0 && coro_set_flags(fd, 1) < 0) {
            coro_close_keep_errno(fd);
            return -1;
        }
        return fd;
    #endif
    }

    static int coro_socketpair(int domain, int type, int protocol, int *a, int *b)
    {
        int sv[2], r;
    #ifdef SOCK_CLOEXEC
        r = socketpair(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol, sv);
    #else
        r = socketpair(domain, type, protocol, sv);
        if (r >= 0 && (coro_set_flags(sv[0], 1) < 0 || coro_set_flags(sv[1], 1) < 0)) {
            coro_close_keep_errno(sv[0]);
            coro_close_keep_errno(sv[1]);
            return -1;
        }
    #endif
        if (r < 0)
            return -1;
        *a = sv[0];
        *b = sv[1];
        return 0;
    }

    static int coro_accept(int fd, struct sockaddr *sa, socklen_t *len)
    {
    #if defined(__linux__) || defined(__FreeBSD__)
        return accept4(fd, sa, len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    #else
        int r = accept(fd, sa, len);
        if (r >= 0 && coro_set_flags(r, 1) < 0) {
            coro_close_keep_errno(r);
            return -1;
        }
        return r;
    #endif
    }

    /* poll(2) without waiting: 0, or the error's number. */
    static int coro_poll_now(struct pollfd *fds, Py_ssize_t n)
    {
        int r;
        do {
            r = poll(fds, (nfds_t)n, 0);
        } while (r < 0 && errno == EINTR);
        return r < 0 ? errno : 0;
    }

    /* What it says of one descriptor this instant; 0 for nothing. */
    static int coro_poll_one(int fd, short events)
    {
        struct pollfd p;
        p.fd = fd;
        p.events = events;
        p.revents = 0;
        return coro_poll_now(&p, 1) ? 0 : p.revents;
    }

    /* recvmmsg(2) and sendmmsg(2): several datagrams for one system call. Elsewhere a loop does the same; as in Linux
       an error after the first datagram ends it, and the next call reports it if it lasts. */
    #if defined(__linux__)
    typedef struct mmsghdr coro_mmsghdr;
    static int coro_recvmmsg(int fd, coro_mmsghdr *v, unsigned int n, int flags)
    {
        return recvmmsg(fd, v, n, flags, NULL);
    }
    static int coro_sendmmsg(int fd, coro_mmsghdr *v, unsigned int n, int flags)
    {
        return sendmmsg(fd, v, n, flags);
    }
    #else
    typedef struct {
        struct msghdr msg_hdr;
        unsigned int msg_len;
    } coro_mmsghdr;
    static int coro_recvmmsg(int fd, coro_mmsghdr *v, unsigned int n, int flags)
    {
        unsigned int i;
        for (i = 0; i < n; i++) {
            ssize_t r = recvmsg(fd, &v[i].msg_hdr, flags);
            if (r < 0)
                break;
            v[i].msg_len = (unsigned int)r;
        }
        return i ? (int)i : -1;
    }
    static int coro_sendmmsg(int fd, coro_mmsghdr *v, unsigned int n, int flags)
    {
        unsigned int i;
        for (i = 0; i < n; i++) {
            ssize_t r = sendmsg(fd, &v[i].msg_hdr, flags);
            if (r < 0)
                break;
            v[i].msg_len = (unsigned int)r;
        }
        return i ? (int)i : -1;
    }
    #endif

    static int coro_sun_path_size(void)
    {
        return (int)sizeof(((struct sockaddr_un *)0)->sun_path);
    }
    """
    # socket(2), unix(7), ip(7), ipv6(7)
    ctypedef unsigned int socklen_t
    ctypedef unsigned short sa_family_t
    cdef struct sockaddr:
        sa_family_t sa_family
    cdef struct sockaddr_storage:
        sa_family_t ss_family
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct sockaddr_in:
        sa_family_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    cdef struct in6_addr:
        unsigned char s6_addr[16]
    cdef struct sockaddr_in6:
        sa_family_t sin6_family
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    cdef struct sockaddr_un:
        sa_family_t sun_family
        char sun_path[1]
    int AF_UNSPEC, AF_INET, AF_INET6, AF_UNIX
    int SOCK_STREAM, SOCK_DGRAM
    int SOL_SOCKET, SO_ERROR, SO_LINGER, SO_REUSEADDR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL
    int IPPROTO_TCP, TCP_ULP, SCM_RIGHTS
    int MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC, MSG_ERRQUEUE
    int coro_socket(int, int, int)
    int coro_socketpair(int, int, int, int *, int *)
    int coro_accept(int, sockaddr *, socklen_t *)
    int coro_set_flags(int, int)
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN, POLLOUT, POLLPRI, POLLNVAL
    int coro_poll_now(pollfd *, Py_ssize_t) nogil
    int coro_poll_one(int, short) nogil
    int coro_sun_path_size()
    int bind(int, const sockaddr *, socklen_t)
    int listen(int, int)
    int c_connect "connect"(int, const sockaddr *, socklen_t)
    int c_shutdown "shutdown"(int, int)
    int c_getsockopt "getsockopt"(int, int, int, void *, socklen_t *)
    int c_setsockopt "setsockopt"(int, int, int, const void *, socklen_t)
    int c_getsockname "getsockname"(int, sockaddr *, socklen_t *)
    int c_getpeername "getpeername"(int, sockaddr *, socklen_t *)
    ssize_t c_recv "recv"(int, void *, size_t, int)
    ssize_t c_recvfrom "recvfrom"(int, void *, size_t, int, sockaddr *, socklen_t *)
    ssize_t c_send "send"(int, const void *, size_t, int)
    ssize_t c_sendto "sendto"(int, const void *, size_t, int, const sockaddr *, socklen_t)

    # sendmsg(2), cmsg(3)
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    cdef struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    cdef struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    ctypedef struct coro_mmsghdr:       # struct mmsghdr
        msghdr msg_hdr
        unsigned int msg_len
    int coro_recvmmsg(int, coro_mmsghdr *, unsigned int, int)
    int coro_sendmmsg(int, coro_mmsghdr *, unsigned int, int)
    ssize_t c_sendmsg "sendmsg"(int, const msghdr *, int)
    ssize_t c_recvmsg "recvmsg"(int, msghdr *, int)
    size_t CMSG_SPACE(size_t)
    size_t CMSG_LEN(size_t)
    cmsghdr *CMSG_FIRSTHDR(msghdr *)
    cmsghdr *CMSG_NXTHDR(msghdr *, cmsghdr *)
    unsigned char *CMSG_DATA(cmsghdr *)

    # read(2), writev(2), pread(2), fcntl(2)
    ssize_t c_read "read"(int, void *, size_t)
    ssize_t c_write "write"(int, const void *, size_t)
    ssize_t c_writev "writev"(int, const iovec *, int)
    ssize_t c_pread "pread"(int, void *, size_t, off_t)
    int c_close "close"(int)
    int c_fcntl "fcntl"(int, int, ...)
    int F_DUPFD_CLOEXEC

    # inet_pton(3), if_nametoindex(3)
    int inet_pton(int, const char *, void *)
    const char *inet_ntop(int, const void *, char *, socklen_t)
    unsigned int if_nametoindex(const char *)
    uint16_t htons(uint16_t)
    uint16_t ntohs(uint16_t)
    uint32_t htonl(uint32_t)
    uint32_t ntohl(uint32_t)
    size_t SUN_PATH_OFFSET "offsetof(struct sockaddr_un, sun_path)"


cdef extern from *:
    """
    #if defined(__linux__)
    #include <sys/sendfile.h>
    static ssize_t coro_sendfile(int out, int in, off_t offset, int use_offset, size_t count)
    {
        return sendfile(out, in, use_offset ? &offset : NULL, count);
    }
    #else
    /* The BSD forms differ from each other; reading and writing does the same work there. */
    static ssize_t coro_sendfile(int out, int in, off_t offset, int use_offset, size_t count)
    {
        (void)out; (void)in; (void)offset; (void)use_offset; (void)count;
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    ssize_t coro_sendfile(int, int, off_t, int, size_t)
