/* What both pollers ask the system about children and files, in POSIX terms: waitid(2), fstat(2).
 *
 * A child is only looked at, never reaped: that is for whoever waits for it.  Cost: one system call each. */

#ifndef CORO_CHILDREN_H
#define CORO_CHILDREN_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* 1 and the wait status when the child has ended, 0 while it runs, -errno. */
static int coro_child_ended(int pid, int *status) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return -errno;
    if (info.si_pid == 0) return 0;
    *status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8
            : info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
    return 1;
}

/* The same for a kernel that announces the end of a process a moment before it can be collected.  The moment has a
 * limit: the number may have become that of another child, which runs. */
static int coro_child_ends(int pid, int *status) {
    struct timespec pause = { 0, 1000000 };
    int r = 0;
    for (int i = 0; i < 100; i++) {
        r = coro_child_ended(pid, status);
        if (r != 0) return r;
        nanosleep(&pause, NULL);
    }
    return -ESRCH;
}

static int coro_stat(int fd, uint64_t *size, uint64_t *links) {
    struct stat st;
    if (fstat(fd, &st) < 0) return errno;
    *size = (uint64_t)st.st_size;
    *links = (uint64_t)st.st_nlink;
    return 0;
}

#endif
