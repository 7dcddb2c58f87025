# What other OS threads and coro's own modules in Python may do: post calls, wake and suspend threads.

# ---------------------------------------------------------------------------------------------- other OS threads

def post(function, /, *args):
    """Have the loop call ``function(*args)`` in a new thread. Returns None at once.

    Any OS thread may call this, and so may signal handlers. The threads start in the order of the calls. Calls that are
    made before the first loop wait for it.

    Raises TypeError if the function cannot be called or is an ``async def`` function; LoopError if the loop ends or has
    ended, in a forked child without a loop, and if 65536 calls wait already."""
    global n_posts
    _check_function(function)
    context = None
    if coro_context_of(PyThreadState_Get()) != NULL:
        context = <object>PyContext_CopyCurrent()
        Py_DECREF(context)
    entry = (1, function, args, context)
    # Nothing below gives up the GIL: the loop cannot end between the question and the answer.
    if posts_state == 2 or ending != NOT_ENDING:
        raise LoopError("the event loop has ended or is ending: nothing would run what is posted now; stop posting "
                        "before, or catch this")
    if n_posts >= most_posts:
        raise LoopError(f"{most_posts} posted calls wait already; the loop does not keep up with whoever posts them")
    posts.append(entry)
    n_posts += 1
    cdef Poller p = the_poller
    if p is not None:
        p.interrupt()


def _post_internal(function, /, *args):
    """From any OS thread: have main call ``function(*args)``, which must be ours, short, and never block. False when
    no loop runs."""
    global n_posts
    entry = (0, function, args, None)
    if posts_state != 1:
        return False
    posts.append(entry)
    n_posts += 1
    cdef Poller p = the_poller
    if p is not None:
        p.interrupt()
    return True


def _wake(thread, value=None):
    return wake(<coro?>thread, value)


def _wake_error(thread, exc):
    return wake_error(<coro?>thread, exc)


def _running_thread():
    """The running thread; raises what a blocking operation would raise here."""
    return running_thread()


def _suspend(what):
    return suspend(running_thread(), WAIT_OBJECT, what)


def _suspend_outside(what):
    """The same until something comes from outside the loop, though from no descriptor that the poller knows: while
    somebody waits like this there is no deadlock."""
    return suspend_outside(running_thread(), WAIT_OBJECT, what, False)


def _suspend_offloaded(what):
    """The same for what a worker OS thread does."""
    return suspend_outside(running_thread(), WAIT_OFFLOAD, what, True)


def _count_own_os_threads(int delta):
    """One of our own worker OS threads began or ended: it posts only what it was asked for."""
    global n_own_os_threads
    n_own_os_threads += delta
