"""The demonstration runs, ends by itself, and reports what it should: small numbers, real sockets."""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys
from typing import Any

import pytest

from coro.demo import _measure, c10k

CONNECTIONS = 50


def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, report and stderr of one run in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "coro.demo.c10k",
        "--json",
        "--connections",
        str(CONNECTIONS),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_all_connections_are_busy_and_nothing_is_left_behind() -> None:
    status, report, errors = run("--seconds", "1")
    assert (status, report["errors"], report["problems"]) == (0, 0, []), errors
    assert report["connections"] == CONNECTIONS
    assert report["server_accepted"] == CONNECTIONS
    assert report["requests"] >= CONNECTIONS
    assert report["leaked_descriptors"] == {"server": 0, "client": 0}
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]
    assert report["server_statistics"]["switches"] > 0
    assert "connections open" in errors


@pytest.mark.slow
def test_misbehaving_clients_do_no_harm() -> None:
    status, report, errors = run("--seconds", "1.5", "--chaos", "--quiet")
    assert (status, report["errors"], report["problems"]) == (0, 0, []), errors
    assert report["chaos"]["resets"] > 0
    assert report["server_accepted"] > CONNECTIONS
    assert report["leaked_descriptors"] == {"server": 0, "client": 0}


@pytest.mark.slow
def test_messages_larger_than_a_buffer_come_back_whole() -> None:
    status, report, errors = run("--seconds", "0.5", "--size", "300000", "--quiet")
    assert (status, report["errors"], report["problems"]) == (0, 0, []), errors


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--connections", "0"),
        ("--connections", "-1"),
        ("--size", "0"),
        ("--seconds", "-1"),
        ("--seconds", "nan"),
        ("--pause", "-1"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        c10k._parser().parse_args([option, value])
    assert f"argument {option}: expected" in capsys.readouterr().err


def test_too_few_descriptors_mean_fewer_connections_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c10k, "raise_descriptor_limit", lambda wanted: 300)
    options = c10k._parser().parse_args(["--connections", "1000"])
    demonstration = c10k.Demonstration(options)
    assert demonstration.connections == 300 - c10k.SPARE
    assert "200 connections instead of 1000" in demonstration.notes[0]


def test_the_hard_limit_is_kept_where_it_may_not_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to = []

    def setrlimit(which: int, limits: tuple[int, int]) -> None:
        if limits[1] > 4096:
            raise ValueError("not allowed to raise maximum limit")
        set_to.append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert _measure.raise_descriptor_limit(10_000) == 4096
    assert _measure.raise_descriptor_limit(2_000) == 2_000
    assert set_to == [(4096, 4096), (2_000, 4096)]
    assert _measure.raise_descriptor_limit(1_000) == 1_000


def test_percentiles_are_within_a_step() -> None:
    latencies = _measure.Latencies()
    assert latencies.percentile(0.5) == 0.0
    for milliseconds in range(1, 1001):
        latencies.add(milliseconds / 1000)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        assert share <= latencies.percentile(share) <= share * (1 + 1 / 8)
    assert latencies.percentile(1.0) == latencies.greatest == 1.0


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 3600.0, 1e9])
def test_latencies_of_any_size_are_counted(seconds: float) -> None:
    latencies = _measure.Latencies()
    latencies.add(seconds)
    assert latencies.percentile(0.5) == seconds


def test_growth_compares_the_last_tenth_with_the_second() -> None:
    assert _measure.growth([5] * 10) == 0.0
    assert _measure.growth([900, 900] + [100, 100] + [7] * 14 + [110, 110]) == pytest.approx(0.1)


def test_more_addresses_than_one_when_ports_could_run_out() -> None:
    assert c10k._addresses(10, chaos=False) == ["127.0.0.1"]
    many = c10k._addresses(_measure.ephemeral_ports(), chaos=False)
    assert len(many) == len(set(many)) > 1


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs the mallinfo2() of glibc 2.33")
def test_memory_in_use_does_not_count_what_has_been_freed() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = []
    for _ in range(64):
        block = libc.malloc(100_000)  # less than what comes by mmap(2), which free() would give back to the kernel
        ctypes.memset(block, 1, 100_000)
        blocks.append(block)
    held = _measure.in_use()
    for block in blocks[:-1]:  # the last one keeps the top of the heap where it is
        libc.free(ctypes.c_void_p(block))
    assert held - _measure.in_use() > 5_000_000
    libc.free(ctypes.c_void_p(blocks[-1]))
