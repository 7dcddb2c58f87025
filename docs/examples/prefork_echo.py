"""An echo server on all cores. SIGTERM or Ctrl-C ends it in order, SIGHUP replaces the workers."""

import argparse

import coro
from coro.prefork import Prefork, Worker


def echo(conn: coro.sock, address: object) -> None:
    while data := conn.recv(4096):
        conn.sendall(data)


def serve(worker: Worker) -> None:
    worker.serve(echo, max_connections=10_000)


def main(port: int, workers: int | None) -> None:
    supervisor = Prefork(workers, serve, ("127.0.0.1", port), drain_timeout=10)
    print("listening on port", supervisor.addresses[0][1], flush=True)
    ended = supervisor.run()  # coro.prefork(workers, serve, address) does both
    print(f"{ended.started} workers started, {ended.failed} failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7777)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    main(options.port, options.workers)
