/* The signal handler of the guard zones and the stack it runs on; see _switch/guard.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "_switch/guard.h"

#include <Python.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "_switch/obstacle.h"
#include "_switch/slots.h"

enum { ALTERNATE = 64 * 1024 };

static coro_look look;
static struct sigaction before_segv, before_bus;
static PyThreadState *dump_state;
static char *alternate; /* the mapping, with a page below that nobody may touch; NULL when there is none */
static size_t page;

static void
on_fault(int signum, siginfo_t *info, void *context)
{
    struct sigaction *before = signum == SIGSEGV ? &before_segv : &before_bus;
    const coro_slot *hit = coro_slots_guard_hit(info->si_addr);
    (void)context;
    if (hit != NULL) {
        coro_text text;
        coro_who who;
        memset(&who, 0, sizeof(who));
        look(&who);
        coro_text_begin(&text, STDERR_FILENO);
        coro_text_add(&text, "Fatal error: coro ");
        coro_text_thread(&text, &who);
        if (hit == who.slot) {
            coro_text_add(&text, " overflowed its stack slot of ");
            coro_text_number(&text, (unsigned long long)coro_slot_size);
            coro_text_add(&text, " bytes; lower sys.setrecursionlimit() or enlarge the slots with "
                                 "coro.set_stack_slots()\n");
        } else {
            /* It did not get there step by step. */
            coro_text_add(&text, " reached beyond the stack of another thread: C code went astray, or exchanges stacks "
                                 "by itself\n");
        }
        if (coro_obstacle_has_greenlet()) {
            coro_text_add(&text, "greenlet is loaded. A greenlet must be used only in the coro thread in which it was "
                                 "first switched to; otherwise use coro.in_thread()\n");
        }
        coro_text_add(&text, "Current thread (most recent call first):\n");
        coro_text_flush(&text);
        coro_interp_dump(STDERR_FILENO, dump_state);
    }
    /* Let the earlier action see the fault: it happens again as soon as this handler returns, unless it was sent. */
    sigaction(signum, before, NULL);
    if (info->si_code <= 0) {
        raise(signum);
    }
}

static void
install_handler(void)
{
    static int done;
    struct sigaction action;
    if (done) {
        return;
    }
    done = 1;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, &before_segv) == 0) {
        sigaction(SIGBUS, &action, &before_bus);
    }
}

/* A mapping that is there already is of an OS thread that did not come along in a fork. */
static int
map_alternate(void)
{
    void *region;
    if (alternate != NULL) {
        return 0;
    }
    page = (size_t)sysconf(_SC_PAGESIZE);
    region = mmap(NULL, page + ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) {
        return -1;
    }
    (void)mprotect(region, page, PROT_NONE);
    alternate = region;
    return 0;
}

static void
unmap_alternate(void)
{
    munmap(alternate, page + ALTERNATE);
    alternate = NULL;
}

void
coro_guard_enter(coro_look look_)
{
    stack_t present, mine;
    dump_state = PyThreadState_Get();
    look = look_;
    if (sigaltstack(NULL, &present) == 0 && (present.ss_flags & SS_DISABLE) && map_alternate() == 0) {
        memset(&mine, 0, sizeof(mine));
        mine.ss_sp = alternate + page;
        mine.ss_size = ALTERNATE;
        if (sigaltstack(&mine, NULL) < 0) {
            unmap_alternate();
        }
    }
    install_handler();
}

void
coro_guard_leave(void)
{
    stack_t present, none;
    if (alternate == NULL) {
        return;
    }
    memset(&none, 0, sizeof(none));
    none.ss_flags = SS_DISABLE;
    none.ss_size = ALTERNATE; /* macOS looks at it all the same */
    if (sigaltstack(NULL, &present) == 0 && present.ss_sp == alternate + page && sigaltstack(&none, NULL) == 0) {
        unmap_alternate();
    } else {
        /* Somebody has put another in its place, and may put this one back (faulthandler does, at exit): it has to stay
           mapped. */
        alternate = NULL;
    }
}
