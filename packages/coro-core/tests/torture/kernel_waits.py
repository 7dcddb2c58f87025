"""Locks of files and FIFOs from 50 threads: `python kernel_waits.py --seconds 60 --seed 1`. Ends with status 0 and a
line of counters, or with status 1 and what went wrong.

One round is a program that runs twice, in processes of their own: with OS threads, and under emulation. Its threads add
one to numbers in files, each under a lock of the file, shared or exclusive, of flock(2) or of fcntl(2), while two other
processes do the same; and they send messages to one another through FIFOs, which either side opens first. A number that
is too small was changed by two at once, and what is read from a FIFO is compared with what belongs there. Under
emulation time limits interrupt the waits, which are made again then: nothing may be left of one that was given up, be
it a lock or an OS thread. What the two processes count has to be equal. One that hangs is killed, and that is a
failure.

A seed repeats the operations of a round, not their order in time.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

THREADS = 50
STEPS = 12  # of each thread in a round
FILES = 3
OTHERS = 2  # processes
OTHERS_STEPS = 40
PATIENCE = 120.0

CHILD = """
import fcntl, sys
sys.path.insert(0, {folder!r})
import kernel_waits
for step in range({steps}):
    kernel_waits.add_one_with_lockf({path!r})
"""


def add_one(file):
    """The caller has the lock."""
    file.seek(0)
    number = int(file.read() or b"0")
    time.sleep(0)  # others would come now
    file.seek(0)
    file.write(b"%d" % (number + 1))
    file.flush()


def add_one_with_lockf(path, interrupted=contextlib.nullcontext):
    with open(path, "r+b") as file:
        persist(interrupted, lambda: fcntl.lockf(file, fcntl.LOCK_EX))
        add_one(file)
        fcntl.lockf(file, fcntl.LOCK_UN)


def persist(interrupted, wait):
    """Wait, again and again, until nobody interrupts it."""
    while True:
        got = []
        with interrupted():
            got.append(wait())
        if got:
            return got[0]


class Round:
    def __init__(self, seed, folder, emulated):
        self.seed, self.folder, self.emulated = seed, folder, emulated
        self.numbers = [os.path.join(folder, f"flock{number}") for number in range(FILES)]
        self.shared_number = os.path.join(folder, "lockf")
        if emulated:
            os.mkfifo(os.path.join(folder, "lonely"))
        for path in (*self.numbers, self.shared_number):
            with open(path, "wb"):
                pass
        self.lonely = os.path.join(folder, "lonely")
        self.one_at_a_time = threading.Lock()  # lockf() does not keep threads of one process apart
        self.inside = [[0, 0] for _ in range(FILES)]  # shared, exclusive
        self.counted = {"added": 0, "looked": 0, "with lockf": 0, "messages": 0, "bytes": 0}
        self.count_lock = threading.Lock()
        self.failures = []
        self.interruptions = 0

    def count(self, what, number=1):
        with self.count_lock:
            self.counted[what] += number

    @contextlib.contextmanager
    def interrupted(self):
        """Now and then the wait inside is over before it is."""
        if not self.emulated or random.random() < 0.5:
            yield
            return
        import coro

        with coro.move_on_after(random.choice((0, 0.0001, 0.001, 0.005))) as limit:
            yield
        self.interruptions += limit.expired

    def run_thread(self, number):
        try:
            dice = random.Random(f"{self.seed} {number}")
            for step in range(STEPS):
                kind = dice.choice(("exclusive", "exclusive", "shared", "asks", "lockf"))
                if kind == "lockf":
                    with self.one_at_a_time:
                        add_one_with_lockf(self.shared_number, self.interrupted)
                    self.count("with lockf")
                else:
                    self.use_flock(kind, dice.randrange(FILES))
                self.send_or_receive(number, step)
        except BaseException as e:
            self.failures.append(f"thread {number}: {type(e).__name__}: {e}")
            raise

    def use_flock(self, kind, which):
        with open(self.numbers[which], "r+b") as file:
            exclusive = kind != "shared"
            operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            if kind == "asks":
                try:
                    fcntl.flock(file, operation | fcntl.LOCK_NB)
                except BlockingIOError:
                    persist(self.interrupted, lambda: fcntl.flock(file, operation))
            else:
                persist(self.interrupted, lambda: fcntl.flock(file, operation))
            inside = self.inside[which]
            inside[exclusive] += 1
            if inside[True] > 1 or (inside[True] and inside[False]):
                self.failures.append(f"locks of file {which} were had together: {inside}")
            if exclusive:
                add_one(file)
            else:
                time.sleep(0.0001)
            inside[exclusive] -= 1
            self.count("added" if exclusive else "looked")
            if random.random() < 0.5:
                fcntl.flock(file, fcntl.LOCK_UN)

    def send_or_receive(self, number, step):
        """Threads 2n and 2n + 1 meet at each step in a FIFO of their own."""
        dice = random.Random(f"{self.seed} {number // 2} {step}")
        data = dice.randbytes(dice.choice((0, 1, 10, 4096, 70000, 200000)))
        path = os.path.join(self.folder, f"fifo-{number // 2}-{step}")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        self.wait_in_vain()
        how = random.choice(("open", "os.open", "FileIO"))
        sends = number % 2 == step % 2
        # Not interrupted: the other side would see the end of somebody who has only given up.
        with self.open(path, how, "wb" if sends else "rb") as file:
            if sends:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
            else:
                got = file.read() if how == "open" else file.readall()
                if hashlib.sha256(got).digest() != hashlib.sha256(data).digest():
                    self.failures.append(f"{path}: {len(got)} bytes that are not the {len(data)} sent")
                self.count("messages")
                self.count("bytes", len(got))

    def wait_in_vain(self):
        """Give up opening a FIFO that nobody else opens."""
        if self.emulated and random.random() < 0.3:
            import coro

            with coro.move_on_after(random.choice((0, 0.0001, 0.001))):
                self.open(self.lonely, random.choice(("open", "os.open", "FileIO")), "rb")
                self.failures.append("a FIFO was opened that has no other end")
            self.interruptions += 1

    @staticmethod
    def open(path, how, mode):
        if how == "open":
            return open(path, mode)
        if how == "FileIO":
            return io.FileIO(path, mode[0])
        return io.FileIO(os.open(path, os.O_WRONLY if mode == "wb" else os.O_RDONLY), mode[0])

    def run(self):
        code = CHILD.format(folder=os.path.dirname(__file__), steps=OTHERS_STEPS, path=self.shared_number)
        others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(OTHERS)]
        threads = [threading.Thread(target=self.run_thread, args=(number,), daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for other in others:
            if other.wait():
                self.failures.append(f"another process ended with {other.returncode}")
        self.check()
        return {"counted": self.counted, "failures": self.failures, "interruptions": self.interruptions}

    def check(self):
        def number_in(path):
            with open(path, "rb") as file:
                return int(file.read() or b"0")

        for what, found, expected in (
            ("flock", sum(map(number_in, self.numbers)), self.counted["added"]),
            ("lockf", number_in(self.shared_number), self.counted["with lockf"] + OTHERS * OTHERS_STEPS),
        ):
            if found != expected:
                self.failures.append(f"{what}: {expected} times one was added, the numbers are {found}")
        if self.emulated and os.path.isdir("/proc/self/task"):
            left = len(os.listdir("/proc/self/task")) - 1
            if left:
                self.failures.append(f"{left} OS threads are left")


def child(argv):
    """One round, with the result on standard output."""
    seed, folder, kind = argv
    if kind == "plain":
        outcome = Round(seed, folder, False).run()
    else:
        import coro

        coro.install_thread_emulation()
        outcome = coro.run(lambda: Round(seed, folder, True).run())
    print(json.dumps(outcome), flush=True)
    os._exit(0)


def play(seed, kind):
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", __file__, "--round", str(seed), folder, kind],
                stdout=subprocess.PIPE, timeout=PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"counted": None, "failures": [f"hangs for {PATIENCE:.0f} s"], "interruptions": 0}
        if done.returncode:
            return {"counted": None, "failures": [f"ended with {done.returncode}"], "interruptions": 0}
        return json.loads(done.stdout)


def soak(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    rounds = interruptions = messages = locks = 0
    while not rounds or time.monotonic() < end:
        seed = options.seed + rounds
        plain, emulated = play(seed, "plain"), play(seed, "emulated")
        failures = [f"plain: {text}" for text in plain["failures"]]
        failures += [f"emulated: {text}" for text in emulated["failures"]]
        if plain["counted"] != emulated["counted"]:
            failures.append(f"plain {plain['counted']}, emulated {emulated['counted']}")
        if failures:
            print(f"seed {seed}:", *failures, sep="\n  ")
            return 1
        rounds += 1
        interruptions += emulated["interruptions"]
        messages += emulated["counted"]["messages"]
        locks += emulated["counted"]["added"] + emulated["counted"]["looked"] + emulated["counted"]["with lockf"]
    print(f"seed {options.seed}: {rounds} rounds, {locks} locks, {messages} messages, {interruptions} interruptions")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--round"]:
        child(sys.argv[2:])
    sys.exit(soak(sys.argv[1:]))
