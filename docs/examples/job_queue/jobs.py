"""A job queue in a folder: whatever is put into FOLDER/inbox is run.

    python jobs.py /var/spool/jobs --workers 4 --limit 60
    mv backup.job /var/spool/jobs/inbox         # a shell script

A job goes from `inbox` to `running`, and then to `done` or `failed`, with its output beside it in a file that ends in
.log. Move jobs into the inbox; a file that is still being written would be run half.

SIGTERM and Ctrl-C end it in order: no further job is begun, and those that run have --grace seconds. What has not
ended by then is killed and goes back to the inbox.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import coro
from coro import process, signal_handler


class Jobs:
    def __init__(self, folder: Path, limit: float) -> None:
        self.limit = limit  # seconds that a job may take
        self.inbox, self.running, self.done, self.failed = (
            folder / name for name in ("inbox", "running", "done", "failed")
        )
        for path in (self.inbox, self.running, self.done, self.failed):
            path.mkdir(parents=True, exist_ok=True)
        for left in self.running.glob("*.job"):  # by a queue that was killed
            left.rename(self.inbox / left.name)
        self.waiting = coro.channel[str](1000)
        self.stop = coro.event()

    def watch(self) -> None:
        """Put the names of jobs into the queue, until it is time to stop."""
        with self.waiting, coro.watch(self.inbox) as changes:
            for path in sorted(self.inbox.glob("*.job")):
                self.waiting.put(path.name)
            change, stop = coro.case.get(changes.events), coro.case.wait(self.stop)
            while coro.select(stop, change) is change:
                event = change.value
                if event.kind == "overflow":
                    raise RuntimeError("too many jobs at once; start again")
                path = Path(event.path)
                if event.kind in ("created", "moved") and path.suffix == ".job" and not event.is_directory:
                    self.waiting.put(path.name)

    def work(self) -> None:
        """The thread of a worker."""
        for name in self.waiting:
            if self.stop.is_set():
                return
            try:
                (self.inbox / name).rename(self.running / name)
            except FileNotFoundError:
                continue  # seen twice, or taken back
            self.run(name)

    def run(self, name: str) -> None:
        job, to = self.running / name, self.inbox
        try:
            try:
                status, output = process.capture(["sh", str(job)], cwd=self.running, timeout=self.limit)
                to = self.failed if status else self.done
            except process.ProcessTimeout as e:
                output = e.stdout_output + f"\nkilled after {self.limit:g} s\n".encode()
                to = self.failed
            (to / name).with_suffix(".log").write_bytes(output)
        finally:
            job.rename(to / name)
        print(f"{name}: {to.name}", flush=True)

    def serve(self, workers: int) -> None:
        """Run jobs until it is time to stop and the last one has ended."""
        with coro.group() as threads:
            threads.spawn(self.watch)
            for _ in range(workers):
                threads.spawn(self.work)


def main(folder: Path, workers: int, limit: float, grace: float) -> None:
    jobs = Jobs(folder, limit)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal_handler.register(number, lambda number: jobs.stop.set())
    with coro.group() as threads:
        queue = threads.spawn(jobs.serve, workers)
        print("waiting for jobs in", jobs.inbox, flush=True)
        jobs.stop.wait()
        try:
            queue.join(timeout=grace)
        except coro.TimeoutError:
            queue.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the jobs that are put into a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=4, help="how many jobs run at once (default 4)")
    parser.add_argument("--limit", type=float, default=60, help="seconds a job may take (default 60)")
    parser.add_argument("--grace", type=float, default=10, help="seconds that jobs have at the end (default 10)")
    options = parser.parse_args()
    coro.run(main, options.folder, options.workers, options.limit, options.grace)
