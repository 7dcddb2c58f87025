"""Ask a running program what its threads are doing: SIGUSR1 makes it print where each of them is.

Run it and send the signal with ``kill -USR1 <process id>``; end it with Ctrl-C. Two functions to copy.
"""

import signal

import coro


def report(event: coro.py_kevent) -> None:
    for number, (name, thread, where) in sorted(coro.where_all().items()):
        coro.write_stderr(f"{number:6} {name} {thread.waiting_for} {where}\n")


def install() -> None:
    # Without EV.ONESHOT the handler stays. It runs as a thread, so it may do whatever a thread may.
    coro.set_handler((signal.SIGUSR1, coro.EVFILT.SIGNAL), report, flags=coro.EV.ADD)


def main() -> None:
    install()
    a, b = coro.socketpair()
    coro.spawn(a.recv, 100, thread_name="reader")
    sleeper = coro.spawn(coro.sleep, 3600, thread_name="sleeper")
    coro.yield_slice()
    print("ready", flush=True)
    sleeper.join()


if __name__ == "__main__":
    try:
        coro.run(main)
    except KeyboardInterrupt:
        print("stopped")
