/* The signal handler of the guard zones, see _switch/guard.h. It runs on an alternate signal stack, because the ordinary one
   has just overflowed, and uses nothing but write(2). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "_switch/guard.h"

#include <Python.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "_switch/slots.h"

static coro_guard_names names_of;
static struct sigaction before_segv, before_bus;
static PyThreadState *dump_state;

static void
say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void
say_number(unsigned long long number)
{
    char digits[24];
    int i = (int)sizeof(digits) - 1;
    digits[i] = 0;
    do {
        digits[--i] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    say(digits + i);
}

static void
on_fault(int signum, siginfo_t *info, void *context)
{
    struct sigaction *before = signum == SIGSEGV ? &before_segv : &before_bus;
    coro_slot *slot = coro_slots_guard_hit(info->si_addr);
    (void)context;
    if (slot != NULL) {
        unsigned long long id = 0;
        const char *name = names_of(slot, &id);
        say("Fatal error: coro thread #");
        say_number(id);
        say(" '");
        say(name != NULL ? name : "?");
        say("' overflowed its stack slot of ");
        say_number((unsigned long long)coro_slot_size);
        say(" bytes; lower sys.setrecursionlimit() or enlarge the slots with coro.set_stack_slots()\n"
            "Current thread (most recent call first):\n");
        coro_interp_dump(STDERR_FILENO, dump_state);
    }
    /* Let the earlier action see the fault: it happens again as soon as this handler returns, unless it was sent. */
    sigaction(signum, before, NULL);
    if (info->si_code <= 0) {
        raise(signum);
    }
}

int
coro_guard_install(coro_guard_names names)
{
    static int done;
    static char alternate[64 * 1024];
    stack_t present, mine;
    struct sigaction action;
    dump_state = PyThreadState_Get();
    names_of = names;
    if (sigaltstack(NULL, &present) == 0 && (present.ss_flags & SS_DISABLE)) {
        memset(&mine, 0, sizeof(mine));
        mine.ss_sp = alternate;
        mine.ss_size = sizeof(alternate);
        if (sigaltstack(&mine, NULL) < 0) {
            return -1;
        }
    }
    if (done) {
        return 0;
    }
    done = 1;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, &before_segv) < 0 || sigaction(SIGBUS, &action, &before_bus) < 0) {
        return -1;
    }
    return 0;
}
