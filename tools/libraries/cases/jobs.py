"""Schedulers, pools, logs, and other libraries whose subject is threads."""

from __future__ import annotations

from typing import Any

from tools.libraries.work import Work, case, library


@case("APScheduler", quick=True)
def apscheduler(work: Work) -> Any:
    scheduler = library("apscheduler.schedulers.background").BackgroundScheduler(
        executors={"default": {"type": "threadpool", "max_workers": 20}}, misfire_grace_time=None
    )
    done = library("queue").Queue()
    scheduler.start()
    for number in range(100):
        scheduler.add_job(done.put, args=[number], misfire_grace_time=None)
    found = sorted(done.get(timeout=60) for _ in range(100))
    scheduler.shutdown()
    return found


@case("loguru", quick=True)
def loguru(work: Work) -> Any:
    logger = library("loguru").logger
    logger.remove()
    path = work.folder / "log"
    logger.add(path, format="{message}", enqueue=True)
    work.at_once(lambda number: [logger.info("{} {}", number, line) for line in range(10)] and None)
    logger.complete()
    logger.remove()
    return sorted(path.read_text().splitlines())


@case("joblib", quick=True)
def joblib(work: Work) -> Any:
    module = library("joblib")
    threads = module.Parallel(n_jobs=50, backend="threading")(module.delayed(pow)(n, 2) for n in range(200))
    processes = module.Parallel(n_jobs=2, backend="loky")(module.delayed(pow)(n, 2) for n in range(50))
    return [threads, processes]


@case("tenacity", quick=True)
def tenacity(work: Work) -> Any:
    module = library("tenacity")

    def one(number: int) -> int:
        tries: list[int] = []

        def fail() -> int:
            tries.append(number)
            if len(tries) < 3:
                raise ValueError(number)
            return len(tries)

        retry = module.Retrying(stop=module.stop_after_attempt(5), wait=module.wait_fixed(0.1))
        return int(retry(fail))

    return work.at_once(one)


@case("cachetools", quick=True)
def cachetools(work: Work) -> Any:
    module = library("cachetools")
    calls: list[int] = []

    @module.cached(module.LRUCache(1000), lock=library("threading").Lock())  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> int:
        calls.append(number)
        return number * number

    for number in range(50):
        square(number)
    results = work.at_once(lambda number: square(number % 50))
    return [results, len(calls)]


@case("schedule", quick=True)
def schedule(work: Work) -> Any:
    module = library("schedule")
    time = library("time")

    def one(number: int) -> int:
        mine = module.Scheduler()
        ran: list[int] = []
        mine.every(1).seconds.do(ran.append, number)
        while not ran:
            time.sleep(max(mine.idle_seconds or 0, 0))
            mine.run_pending()
        return ran[0]

    return work.at_once(one)


@case("tqdm", quick=True)
def tqdm(work: Work) -> Any:
    module = library("tqdm")
    output = library("io").StringIO()
    with module.tqdm(total=1000, file=output) as bar:
        work.at_once(lambda number: [bar.update() for _ in range(10)] and None)
        count = bar.n
    mapped = library("tqdm.contrib.concurrent").thread_map(abs, range(100), max_workers=20, file=output)
    return [count, mapped]


@case("watchdog", compiled=True)
def watchdog(work: Work) -> Any:
    observer = library("watchdog.observers").Observer()
    seen = library("queue").Queue()
    handler = library("watchdog.events").FileSystemEventHandler()
    handler.on_created = lambda event: seen.put(event.src_path)
    observer.schedule(handler, str(work.folder))
    observer.start()
    work.at_once(lambda number: (work.folder / f"{number:03}").write_text("x"))
    found = sorted(library("os").path.basename(seen.get(timeout=60)) for _ in range(100))
    observer.stop()
    observer.join()
    return found


@case("pytest-xdist", quick=True)
def xdist(work: Work) -> Any:
    (work.folder / "test_some.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test(n): assert n != 13\n"
    )
    (work.folder / "pytest.ini").write_text("[pytest]\n")
    output = library("io").StringIO()
    with library("contextlib").redirect_stdout(output):
        status = library("pytest").main(["-q", "-n", "2", "-p", "no:cacheprovider", str(work.folder)])
    return [int(status), "1 failed, 19 passed" in output.getvalue()]
