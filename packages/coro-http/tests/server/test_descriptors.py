"""Crowds of connections leave descriptors to the program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import os, resource, socket
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
    import coro
    from coro import http

    def handler(request):
        files = [open(os.devnull) for _ in range(8)]
        for file in files:
            file.close()
        return "x"

    def main():
        answered = 0
        with http.server(handler, ("127.0.0.1", 0)) as server:
            child = os.fork()
            if not child:       # the clients have a limit of their own, as they are another process
                conns = []
                for _ in range(60):
                    conns.append(socket.create_connection(("127.0.0.1", server.port)))
                    conns[-1].settimeout(30)
                for conn in conns[:20]:
                    conn.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
                for conn in conns[:20]:
                    answered += conn.recv(100).startswith(b"HTTP/1.1 200")
                os._exit(answered)
            coro.spawn(lambda: print(os.waitstatus_to_exitcode(coro.in_thread(os.waitpid, child, 0)[1]))).join()

    coro.run(main)
"""


def test_handlers_can_open_files_while_clients_have_all_connections() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CORO_LATENCY_WARNING": "0"},
    )
    assert done.stdout.strip() == "20", done.stderr
