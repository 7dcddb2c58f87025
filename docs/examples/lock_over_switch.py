"""What not to do: a ``threading.Lock`` held while a thread is suspended stops the whole process.

The watchdog of the standard library ends it after ``--seconds`` and prints the line where everything stands.
"""

import argparse
import faulthandler
import threading

import coro

lock = threading.Lock()


def holder() -> None:
    with lock:
        coro.sleep(0.01)  # suspended with the lock in hand


def waiter() -> None:
    with lock:  # stops the OS thread, and with it the loop that would have woken holder()
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Deadlock of a process by a lock of the wrong kind.")
    parser.add_argument("--seconds", type=float, default=2, help="when to give up (default 2)")
    faulthandler.dump_traceback_later(parser.parse_args().seconds, exit=True)
    coro.spawn(holder)
    coro.spawn(waiter)
    coro.event_loop()
