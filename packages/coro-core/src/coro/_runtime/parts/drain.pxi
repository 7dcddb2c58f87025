# The steps of a pass of the loop: what it needs of a poller, timers, posts, and running whoever is runnable.

cdef class Poller:
    """What the loop needs of a kernel's event interface; see the epoll and kqueue modules for implementations."""

    cdef int poll(self, int64_t timeout_ns) except -1:
        raise NotImplementedError

    cdef int interrupt(self) noexcept nogil:
        return 0

    cdef int shut(self) except -1:
        return 0

    cdef int after_fork(self) noexcept:
        return 0

    cdef int handlers_registered(self):
        return 0

    cdef int drop_handlers(self) except -1:
        return 0

    cdef object statistics_dict(self):
        return {}


cdef Poller poller():
    global the_poller
    if the_poller is None:
        if poller_factory is None:
            raise LoopError("no poller is installed; import coro, which chooses the one of this system")
        the_poller = poller_factory()
    return the_poller


def set_poller_factory(factory):
    """Have ``factory()`` make the poller of the next loop."""
    global poller_factory
    poller_factory = factory


cdef int fire_timers(int64_t now) except -1:
    global n_timers_fired
    cdef coro_timer *timer
    cdef PyObject *owner
    while True:
        timer = coro_timers_pop_due(&timers, now)
        if timer == NULL:
            return 0
        n_timers_fired += 1
        owner = <PyObject *>timer.owner
        if Py_REFCNT(owner) == 0:
            continue    # it is going: code that runs as its fields go has let us run, and its __dealloc__ comes later
        if type(<object>owner) is coro:
            wake(<coro>owner, None)
        else:
            (<TimerTarget>owner).fire()


cdef int take_posts() except -1:
    """Do what was posted. A user's call becomes a thread before it leaves the line, so that none is lost to a lack of
    memory; while the loop ends there is none."""
    global n_posts
    cdef coro t
    while n_posts:
        kind, function, args, context = posts[0]
        if kind == 0:
            posts.popleft()
            n_posts -= 1
            function(*args)
        else:
            t = make_thread(function, args, None, None, False)
            t.context = context
            start_thread(t)
            posts.popleft()
            n_posts -= 1
    return 0


cdef int take_last_posts() except -1:
    """The loop has ended, and no more is taken: do what we posted ourselves. What users had posted to a loop that
    failed is released when main may. Nothing is left for the next loop: what a signal handler raises here leaves when
    all is done."""
    global posts_state, n_posts
    posts_state = 2
    n_posts = 0
    raised = None
    while posts:
        kind, function, args, context = posts.popleft()
        try:
            if kind == 0:
                function(*args)
            else:
                drop_later((function, args, context))
        except Exception:
            notify()
        except BaseException as e:
            raised = e
    if raised is not None:
        raise raised
    return 0


cdef int drain(PyThreadState *ts) except -1:
    """Run what is runnable; 1 when the time was up first, 0 when nothing is left. `slice_start` is now."""
    global n_bounded
    cdef int64_t until = slice_start + drain_budget
    cdef int count = 0
    cdef coro t
    if unlikely(order_state):
        until = 2 * CORO_TICKS_FOREVER
    while True:
        if coro_list_empty(&queue.batch):
            if coro_list_empty(&queue.ready):
                coro_enter_main(ts)
                return 0
            if unlikely(slice_start >= until):
                break
            coro_list_splice(&queue.batch, &queue.ready)
            if unlikely(order_state):
                mix_batch()
        t = <coro>coro_queue_take(&queue).thread
        if not coro_list_empty(&queue.batch):
            coro_stack_prefetch(&(<coro>queue.batch.next.thread).stack)
        run_slice(t, ts)
        count += 1
        if unlikely(count >= SWITCHES_BETWEEN_LOOKS):
            count = 0
            if slice_start >= until or order_state or idle_hook is not None:
                break   # a virtual clock may stand still, and a random order must not depend on the time at all
    coro_enter_main(ts)
    n_bounded += 1
    return coro_queue_busy(&queue)


cdef inline bint anything_to_run() noexcept:
    return not coro_queue_empty(&queue) or n_posts > 0
