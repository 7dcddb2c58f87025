"""Processor time of the server for each answer while dnsperf asks as fast as it can.

What is asked: names that were all asked before ("known"), or names that do not exist and are never asked twice ("new"),
of which a server with zones still has to say so. nsd has the names in a zone; ours has them in a zone, too, or in its
cache like unbound and dnsmasq, from such an nsd. The servers are started on free ports of 127.0.0.1; dnsperf, nsd,
unbound and dnsmasq (dnsmasq-base) are Debian packages.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _common import Figures, main

HOST = "127.0.0.1"


def port() -> int:
    return random.randrange(20000, 32768)


def used(pids: list[int]) -> float:
    """Seconds of processor time of these processes."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / float(os.sysconf("SC_CLK_TCK"))


#: More names than a server answers in the time.
NEW = 2_000_000


def asked(at: int, folder: str, names: int, *limits: str, what: str = "known") -> int:
    """Run dnsperf; how many answers came."""
    lines = (f"n{i} A\n" for i in range(names)) if what == "known" else (f"x{i}.new A\n" for i in range(NEW))
    (Path(folder) / "names").write_text("".join(lines))
    command = ["dnsperf", "-s", HOST, "-p", str(at), "-d", f"{folder}/names", *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if "Queries completed" in line)
    return int(line.split()[2])


def measured(at: int, folder: str, names: int, seconds: int, cpu: Callable[[], float], what: str = "known") -> Figures:
    assert asked(at, folder, names, "-n", "1", "-q", "50") == names
    began, before = time.perf_counter(), cpu()
    count = asked(at, folder, names, "-l", str(seconds), "-c", "4", "-q", "200", what=what)
    return {"cpu": cpu() - before, "wall": time.perf_counter() - began, "count": count}


def family(pid: int) -> list[int]:
    """A server and the processes below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield child
    finally:
        child.terminate()
        child.wait()


def zone_text(names: int) -> str:
    zone = ". 3600 IN SOA a.root. nobody. 1 3600 900 86400 300\n. 3600 NS a.root.\na.root. 3600 A 127.0.0.1\n"
    return zone + "".join(f"n{i}. 3600 A 192.0.2.1\n" for i in range(names))


@contextmanager
def running_nsd(folder: str, names: int, at: int) -> Iterator[subprocess.Popen[bytes]]:
    (Path(folder) / "zone").write_text(zone_text(names))
    (Path(folder) / "nsd.conf").write_text(
        f'server:\n ip-address: {HOST}@{at}\n username: ""\n zonesdir: "{folder}"\n database: ""\n'
        f' pidfile: "{folder}/pid"\n zonelistfile: "{folder}/list"\n xfrdfile: "{folder}/xfrd"\n xfrdir: {folder}\n'
        " server-count: 1\n rrl-ratelimit: 0\nremote-control:\n control-enable: no\n"
        f"zone:\n name: .\n zonefile: {folder}/zone\n"
    )
    with started(["/usr/sbin/nsd", "-d", "-c", f"{folder}/nsd.conf"]) as child:
        yield child


def nsd(names: int, seconds: int, zone: bool = True, what: str = "known") -> Figures:
    at = port()
    with tempfile.TemporaryDirectory() as folder, running_nsd(folder, names, at) as child:
        pids = family(child.pid)
        return measured(at, folder, names, seconds, lambda: used(pids), what)


def unbound(names: int, seconds: int) -> Figures:
    at, root = port(), port()
    with tempfile.TemporaryDirectory() as folder, running_nsd(folder, names, root):
        (Path(folder) / "unbound.conf").write_text(
            f'server:\n interface: {HOST}@{at}\n directory: "{folder}"\n chroot: ""\n username: ""\n pidfile: ""\n'
            ' use-syslog: no\n do-not-query-localhost: no\n module-config: "iterator"\n num-threads: 1\n do-ip6: no\n'
            f'remote-control:\n control-enable: no\nstub-zone:\n name: "."\n stub-addr: {HOST}@{root}\n'
        )
        with started(["/usr/sbin/unbound", "-d", "-c", f"{folder}/unbound.conf"]) as child:
            return measured(at, folder, names, seconds, lambda: used([child.pid]))


def dnsmasq(names: int, seconds: int) -> Figures:
    at, root = port(), port()
    with tempfile.TemporaryDirectory() as folder, running_nsd(folder, names, root):
        options = ["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=", "--group="]
        options += [f"--port={at}", f"--listen-address={HOST}", "--bind-interfaces", f"--pid-file={folder}/pid"]
        options += [f"--server={HOST}#{root}", "--cache-size=10000", "--dns-forward-max=1000"]
        with started(["/usr/sbin/dnsmasq", *options]) as child:
            return measured(at, folder, names, seconds, lambda: used([child.pid]))


def coro(names: int, seconds: int, zone: bool = False, what: str = "known") -> Figures:
    import coro
    from coro.dns.cache import dns_cache
    from coro.dns.server import Server
    from coro.dns.zone import Zone

    def serve(folder: str, root: int) -> Figures:
        cache = None if zone else dns_cache(2 * names, roots=[(HOST, root)])
        zones = [Zone.from_text(zone_text(names), ".")] if zone else []
        with Server(cache, [(HOST, 0)], zones=zones) as server:
            at = server.addresses[0][1]
            figures: Figures = coro.in_thread(measured, at, folder, names, seconds, time.process_time, what)
            return figures

    root = port()
    with tempfile.TemporaryDirectory() as folder, running_nsd(folder, names, root):
        return coro.run(serve, folder, root)


if __name__ == "__main__":
    main({"coro": coro, "unbound": unbound, "dnsmasq": dnsmasq, "nsd": nsd})
