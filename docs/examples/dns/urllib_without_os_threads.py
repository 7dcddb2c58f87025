"""Fetch pages with urllib, a thousand threads at a time, without one OS thread: python urllib_without_os_threads.py URL

`coro.emulation` turns sockets and threads of the standard library into those of the loop. `coro.dns.install` does the
same for names, which otherwise would each wait for one of a few worker OS threads.
"""

import os
import sys
import urllib.request

import coro
import coro.dns

coro.install_thread_emulation()


def fetch(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as response:
        return len(response.read())


def main() -> None:
    coro.dns.install()
    with coro.group() as group:
        threads = [group.spawn(fetch, url) for url in sys.argv[1:]]
    print(sum(thread.get() for thread in threads), "bytes")
    if os.path.isdir("/proc/self/task"):
        print(len(os.listdir("/proc/self/task")), "OS thread")


coro.run(main)
