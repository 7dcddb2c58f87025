"""The file of zones for the command, and the command with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from dns_support import in_loop
from real_programs import HOST, free_port
from zone_servers import KEY, ORIGIN

from coro.dns import __main__ as command
from coro.dns._zone.settings import address, load
from coro.dns.exceptions import DNS_Zone_Error
from coro.dns.zone import Primary, Secondary, Update, Zone, transfer

TEXT = "$TTL 300\n@ SOA ns admin 5 3600 900 86400 300\n@ NS ns\nns A 192.0.2.1\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "key").write_text(KEY.text())
    (tmp_path / "zone").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", ("2001:db8::1", 5353)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
    ],
)
def test_addresses(text, found):
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "example.org", "192.0.2.1:x", "192.0.2.1:65536", "[2001:db8::1"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError):
        address(text)


@in_loop
def test_zones(folder):
    (folder / "zones").write_text(
        """
        keys = ["key"]
        [zone."example.test"]
        file = "zone"
        transfer = ["192.0.2.0/24", "key.test"]
        update = ["key.test"]
        notify = ["192.0.2.2", "192.0.2.3:54"]
        notify_key = "Key.Test."
        [zone."example.net"]
        primaries = ["192.0.2.9"]
        key = "key.test"
        file = "copy"
        ask = ["127.0.0.1"]
        [zone."fixed.test"]
        file = "zone"
        """
    )
    own, copy, fixed = load(folder / "zones")
    assert isinstance(own, Primary) and isinstance(copy, Secondary) and isinstance(fixed, Primary)
    assert own.may_transfer("192.0.2.7", None) and not own.may_transfer("192.0.3.7", None)
    assert own.may_transfer("::", KEY) and own.may_update("::", KEY) and own.notify_key == KEY
    assert own.notify == [("192.0.2.2", 53), ("192.0.2.3", 54)] and own.path == folder / "zone"
    assert copy.primaries == [("192.0.2.9", 53)] and copy.key == KEY and copy.path == folder / "copy"
    assert fixed.path is None and not fixed.may_transfer("127.0.0.1", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[zone", "Expected ']' at the end"),
        ("other = 1", "got other"),
        ('[zone."a"]\n', "`file` or `primaries`"),
        ('[zone."a"]\nfile = "zone"\ntransfers = []', "'transfers' is not known"),
        ('[zone."a"]\nfile = "zone"\ntransfer = "any"', "list of strings"),
        ('[zone."a"]\nfile = ["zone"]', "has to be a string"),
        ('[zone."a"]\nfile = "zone"\ntransfer = ["any"]', "no key 'any'"),
        ('[zone."a"]\nfile = "zone"\nupdate = ["127.0.0.1"]', "no key '127.0.0.1'"),
        ('[zone."a"]\nprimaries = []', "at least one primary"),
        ('[zone."a"]\nprimaries = ["ns.example"]', "does not appear to be an IPv4"),
        ('[zone."a..b"]\nfile = "zone"', "the zone a..b"),
        ('keys = ["zone"]', "expected a file with key"),
        ('[zone."a"]\nfile = "broken"', "broken:1"),
        ("zone = 3", "got zone"),
        ('zone.a = 3', "the zone a"),
    ],
)  # fmt: skip
@in_loop
def test_mistakes(folder, text, says, capsys):
    (folder / "broken").write_text("nonsense")
    (folder / "zones").write_text(text)
    with pytest.raises(DNS_Zone_Error, match=says):
        load(folder / "zones")


def test_mistakes_of_the_command(folder, capsys):
    (folder / "zones").write_text(f'keys = ["key"]\n[zone."{ORIGIN}"]\nfile = "zone"\nupdate = ["key.test"]\n')
    for options, says in (
        (["--zones", str(folder / "none")], "No such file"),
        (["--no-cache"], "needs --zones"),
        (["--zones", str(folder / "zones"), "--workers", "2", "--listen", f"{HOST}:1"], "belong to one process"),
    ):
        assert command.main(["serve", *options]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(folder):
    (folder / "zones").write_text(
        f'keys = ["key"]\n[zone."{ORIGIN}"]\nfile = "zone"\nupdate = ["key.test"]\ntransfer = ["key.test"]\n'
    )
    port = free_port()
    arguments = ["serve", "--zones", str(folder / "zones"), "--no-cache", "--listen", f"{HOST}:{port}"]
    with subprocess.Popen(
        [sys.executable, "-m", "coro.dns", *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"listening on {HOST}:{port}\n"
            assert server.stdout.readline() == f"zone {ORIGIN}\n"

            @in_loop
            def ask() -> None:
                update = Update(ORIGIN)
                update.add("www", "A", "192.0.2.7", 60)
                update.send((HOST, port), key=KEY)
                assert transfer(ORIGIN, (HOST, port), key=KEY).get(f"www.{ORIGIN}", "A") == [(60, "192.0.2.7")]

            ask()
            server.send_signal(signal.SIGHUP)  # a zone that updates change is not read again; the server goes on
            ask_again = in_loop(lambda: transfer(ORIGIN, (HOST, port), key=KEY).serial)
            assert ask_again() == 6
        finally:
            server.send_signal(signal.SIGINT)
    assert Zone.read(folder / "zone", ORIGIN).get(f"www.{ORIGIN}", "A")


@in_loop
def test_files_are_read_again(folder, capsys):
    """After SIGHUP: a zone whose serial has grown is taken, everything else is said."""
    (folder / "other").write_text(TEXT)
    one = f'[zone."{ORIGIN}"]\nfile = "zone"\n'
    two = '[zone."other.test"]\nfile = "other"\n'
    (folder / "zones").write_text(one + two)
    options = command._parsed(["serve", "--zones", str(folder / "zones"), "--no-cache"])
    first, second = zones = command._zones(options)
    (folder / "zone").write_text(TEXT.replace("admin 5", "admin 6") + "www A 192.0.2.9\n")
    (folder / "other").write_text(TEXT + "www A 192.0.2.9\n")
    command._reload(options, zones)
    said = capsys.readouterr()
    assert said.out == f"zone {ORIGIN}: serial 5 -> 6\n" and "other.test: the zone has changed, but its" in said.err
    assert Zone(first.data).get(f"www.{ORIGIN}", "A") and not Zone(second.data).get("www.other.test", "A")
    (folder / "zones").write_text(one + '[zone."third.test"]\nfile = "zone"\n')
    command._reload(options, zones)
    said = capsys.readouterr().err
    assert "third.test: new zones" in said and "other.test: it goes on" in said
    (folder / "zone").write_text("nonsense")
    command._reload(options, zones)
    assert "nothing is read again" in capsys.readouterr().err
    assert Zone(first.data).get(f"www.{ORIGIN}", "A")
