"""Resource limits: a program in a process of its own for each, because hard limits do not come back."""

import resource
import sys

import pytest
from support import ok

from coro import limits

START = "import resource; from coro import limits; N = resource.RLIMIT_NOFILE; "


def test_raising_the_soft_limit():
    lines = ok(
        START
        + """
hard = resource.getrlimit(N)[1]
hard = 900 if hard == resource.RLIM_INFINITY else min(hard, 900)
resource.setrlimit(N, (100, hard))
print(limits.raise_open_files(200), resource.getrlimit(N)[0])
print(limits.raise_open_files(150))
print(limits.raise_open_files() == hard, limits.raise_open_files(10**6) == hard, resource.getrlimit(N)[1] == hard)
"""
    )
    assert lines == ["200 200", "200", "True True True"]


def test_verify_raises_what_it_may_and_lowers_nothing():
    lines = ok(
        START
        + """
resource.setrlimit(N, (100, 400))
print(limits.verify({"NOFILE": 300}))
print(limits.verify({"NOFILE": 200, "NOSUCHLIMIT": 7}))
"""
    )
    assert lines == ["{'NOFILE': (300, 400)}"] * 2


def test_verify_beyond_the_hard_limit(monkeypatch):
    """With privileges the hard limit goes up as well; without, the error names the limit and the remedy."""
    now = [(100, 400)]
    allowed = True

    def setrlimit(number, pair):
        if not allowed:
            raise ValueError("not allowed to raise maximum limit")
        now[0] = pair

    monkeypatch.setattr(limits.resource, "getrlimit", lambda number: now[0])
    monkeypatch.setattr(limits.resource, "setrlimit", setrlimit)
    assert limits.verify({"NOFILE": 500}) == {"NOFILE": (500, 500)}
    allowed = False
    with pytest.raises(SystemError, match="RLIMIT_NOFILE of at least 16000, it is 500 .*LimitNOFILE"):
        limits.verify()
    assert limits.raise_open_files() == 500
    with pytest.raises(SystemError, match="unlimited"):
        limits.verify({"DATA": resource.RLIM_INFINITY})


def test_unlimited_is_more_than_every_number(monkeypatch):
    monkeypatch.setattr(limits.resource, "getrlimit", lambda number: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.delattr(limits.resource, "setrlimit")
    assert set(limits.verify()) == set(limits.DEFAULT_MINIMUMS)
    assert limits.raise_open_files(5) == resource.RLIM_INFINITY
    assert limits.verify({"STACK": resource.RLIM_INFINITY})


def test_a_system_that_counts_less_than_it_allows(monkeypatch):
    """No hard limit, and yet a refusal above 10240, as macOS has it."""
    now = [(256, resource.RLIM_INFINITY)]

    def setrlimit(number, pair):
        if pair[0] == resource.RLIM_INFINITY or pair[0] > 10240:
            raise ValueError
        now[0] = pair

    monkeypatch.setattr(limits.resource, "getrlimit", lambda number: now[0])
    monkeypatch.setattr(limits.resource, "setrlimit", setrlimit)
    assert limits.raise_open_files(1000) == 1000
    assert limits.raise_open_files() == 10240


@pytest.mark.parametrize("wrong", [{"RLIMIT_NOFILE": 1}, {"nofile": 1}, {"": 1}, {"NOFILE": -5}])
def test_bad_arguments(wrong):
    with pytest.raises(ValueError, match="expected"):
        limits.verify(wrong)
    with pytest.raises(ValueError, match="at least 1"):
        limits.raise_open_files(0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of Linux")
def test_advice_about_settings_of_the_kernel():
    with open("/proc/sys/net/core/somaxconn") as f:
        value = int(f.read())
    name = "net.core.somaxconn"
    assert limits.check_sysctls({name: value, "net.core.no_such_thing": 7, "kernel.ostype": 7}) == []
    (line,) = limits.check_sysctls({name: value + 1})
    assert line.startswith(f"{name} is {value}") and f"{name}={value + 1}" in line
    assert all(" is " in line for line in limits.check_sysctls())


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "net core", "-w", "a..b"])
def test_names_that_no_setting_has(name):
    with pytest.raises(ValueError, match="name of a setting"):
        limits.check_sysctls({name: 1})


def test_settings_where_a_program_has_to_be_asked(monkeypatch, tmp_path):
    """As on the BSDs: a sysctl(8) of our own knows one name."""
    program = tmp_path / "sysctl"
    program.write_text('#!/bin/sh\ntest "$2" = kern.maxfiles && echo 1000\n')
    program.chmod(0o755)
    monkeypatch.setattr(limits, "_LINUX", False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (line,) = limits.check_sysctls({"kern.maxfiles": 1001, "kern.other": 5})
    assert line.startswith("kern.maxfiles is 1000")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert limits.check_sysctls({"kern.maxfiles": 1001}) == []
