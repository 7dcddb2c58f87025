"""Changes on disk: failures at every system call, crashes at every byte, damage, group commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ldap_server_support import BASE, entries

import coro
from coro.ldap.server import Directory, Refused, Store, StoreError
from coro.ldap.server.journal import Files

PERSON = {"objectClass": ["person"], "sn": ["x"]}


def opened(folder: Path, files: Files | None = None, **options: int) -> Store:
    return Store(Directory(BASE), folder, files=files, **options)


def made(folder: Path, initial: Path) -> None:
    Store(Directory(BASE), folder, initial=initial).close()


@pytest.fixture
def initial(tmp_path: Path) -> Path:
    path = tmp_path / "init.ldif"
    path.write_text(entries(2))
    return path


class Broken(Files):
    """Fails at one of the calls, having written a part; later calls work again."""

    def __init__(self, at: int, part: int = 3) -> None:
        self.calls = 0
        self.at = at
        self.part = part

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise OSError(28, "No space left on device")

    def write(self, fd: int, data: bytes) -> None:
        if self.calls + 1 == self.at:
            os.write(fd, data[: self.part])
        self._count()
        super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def truncate(self, fd: int, size: int) -> None:
        self._count()
        super().truncate(fd, size)


class Full(Broken):
    """Fails at one of the calls, and at all behind it until there is room."""

    def _count(self) -> None:
        self.calls += 1
        if self.at <= self.calls:
            raise OSError(28, "No space left on device")


def test_changes_come_back(tmp_path: Path, initial: Path) -> None:
    made(tmp_path / "d", initial)
    with opened(tmp_path / "d") as store:
        directory = store.directory
        directory.add(f"cn=x,{BASE}", PERSON)
        directory.modify(f"cn=x,{BASE}", [("add", "description", ["\0 first", "ä"]), ("add", "jpegPhoto", [b"\xff\0"])])
        directory.rename(f"ou=people,{BASE}", "ou=staff", True, f"ou=groups,{BASE}")
        directory.modify(f"uid=u1,ou=staff,ou=groups,{BASE}", [("replace", "sn", ["new"])])
        directory.delete(f"uid=u0,ou=staff,ou=groups,{BASE}")
        store.commit()
        expected = list(directory.dump())
    for _ in range(2):
        with opened(tmp_path / "d") as store:
            found = list(store.directory.dump())
            assert sorted(found, key=lambda entry: entry.dn) == sorted(expected, key=lambda entry: entry.dn)
            store.compact()
            assert store.size == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 3, 10_000_000])
def test_every_call_fails_once(tmp_path: Path, initial: Path, part: int) -> None:
    """Whatever fails: what was acknowledged is there afterwards, and nothing is half there."""
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        made(folder, initial)
        broken = Broken(at, part)
        store = opened(folder, broken)
        acknowledged, tried = [], []
        for number in range(6):
            name = f"cn=n{number},{BASE}"
            try:
                tried.append(name)
                store.directory.add(name, PERSON)
                store.commit()
                acknowledged.append(name)
                if number % 3 == 2:
                    store.compact()
            except (OSError, Refused):
                continue
        failed = broken.calls >= at
        try:
            store.close()
        except (OSError, Refused):
            assert failed
        with opened(folder) as again:
            there = [name for name in tried if again.directory.get(name) is not None]
            assert set(acknowledged) <= set(there)
            assert len(again.directory) == 6 + len(there)
            again.directory.add(f"cn=later,{BASE}", PERSON)
            again.commit()
        with opened(folder) as last:
            assert last.directory.get(f"cn=later,{BASE}") is not None
        if not failed:
            break
    assert at > 15


@pytest.mark.slow
def test_a_journal_cut_at_every_byte(tmp_path: Path, initial: Path) -> None:
    folder = tmp_path / "d"
    made(folder, initial)
    sizes = []
    with opened(folder) as store:
        for number in range(3):
            store.directory.add(f"cn=n{number},{BASE}", PERSON)
            store.commit()
            sizes.append(store.size)
    data = (folder / "journal").read_bytes()
    for cut in range(len(data)):
        (folder / "journal").write_bytes(data[:cut])
        with opened(folder) as store:
            assert len(store.directory) == 6 + sum(cut >= size for size in sizes)
            assert store.size == max([0, *(size for size in sizes if size <= cut)])


def test_damage_is_no_crash(tmp_path: Path, initial: Path) -> None:
    folder = tmp_path / "d"
    made(folder, initial)
    with opened(folder) as store:
        for number in range(3):
            store.directory.add(f"cn=n{number},{BASE}", PERSON)
            store.commit()
    data = bytearray((folder / "journal").read_bytes())
    data[30] ^= 1
    (folder / "journal").write_bytes(data)
    with pytest.raises(StoreError, match="damaged at byte 0"):
        opened(folder)
    (folder / "journal").write_bytes(b"")
    opened(folder).close()


def test_one_process_at_a_time(tmp_path: Path, initial: Path) -> None:
    made(tmp_path / "d", initial)
    with opened(tmp_path / "d"), pytest.raises(StoreError, match="another process"):
        opened(tmp_path / "d")


def test_changes_of_many_threads_share_an_fsync(tmp_path: Path, initial: Path) -> None:
    made(tmp_path / "d", initial)

    def change(store: Store, number: int) -> None:
        store.directory.add(f"cn=n{number},{BASE}", PERSON)
        store.commit()

    def main() -> None:
        with opened(tmp_path / "d") as store:
            with coro.group() as group:
                for number in range(100):
                    group.spawn(change, store, number)
            assert store.changes == 100
            # All of them are there when the first write begins, or wait for the second.
            assert store.frames <= 3

    coro.run(main)
    with opened(tmp_path / "d") as store:
        assert len(store.directory) == 106


def test_the_journal_is_emptied_when_it_has_grown(tmp_path: Path, initial: Path) -> None:
    made(tmp_path / "d", initial)

    def main() -> None:
        with opened(tmp_path / "d", compact_at=2000) as store:
            for number in range(40):
                store.check()
                store.directory.add(f"cn=n{number},{BASE}", PERSON)
                store.commit()
            assert store.compactions >= 3

    coro.run(main)
    with opened(tmp_path / "d") as store:
        assert len(store.directory) == 46


@pytest.mark.slow
def test_a_small_directory_with_a_long_past_starts_soon(tmp_path: Path, initial: Path) -> None:
    """What is read at a start has to do with the entries, not with all that has happened to them."""
    made(tmp_path / "d", initial)
    change = [("replace", "description", ["x" * 100_000])]

    def main() -> None:
        with opened(tmp_path / "d") as store:
            for _ in range(24):
                store.check()
                store.directory.modify(f"uid=u1,ou=people,{BASE}", change)
                store.commit()
            assert store.compactions == 2 and store.size < 1024 * 1024

    coro.run(main)
    # Without a loop nothing is written anew before the end; the next start does it.
    with opened(tmp_path / "d") as store:
        for number in range(12):
            store.directory.add(f"cn=n{number},{BASE}", {**PERSON, "description": ["x" * 100_000]})
            store.commit()
        assert store.compactions == 0 and store.size > 1024 * 1024
    with opened(tmp_path / "d") as store:
        assert store.compactions == 1 and store.size == 0 and len(store.directory) == 18
        # The entries are longer than a quarter of that now, so the journal may be longer, too.
        for _ in range(24):
            store.directory.modify(f"uid=u1,ou=people,{BASE}", change)
            store.commit()
    with opened(tmp_path / "d") as store:
        assert store.compactions == 0 and store.size > 2 * 1024 * 1024


def test_after_a_failure_changes_are_refused(tmp_path: Path, initial: Path) -> None:
    made(tmp_path / "d", initial)

    def main() -> None:
        store = opened(tmp_path / "d", Full(2))
        store.directory.add(f"cn=a,{BASE}", PERSON)
        for _ in range(2):
            with pytest.raises(Refused, match="No space left"):
                store.commit()
        with pytest.raises(Refused, match="No space left"):
            store.check()
        with pytest.raises(Refused, match="No space left"):
            store.directory.add(f"cn=b,{BASE}", PERSON)
        assert store.directory.get(f"uid=u0,ou=people,{BASE}") is not None
        store.close()

    coro.run(main)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("part", [0, 3, 10_000_000])
def test_changes_go_on_when_there_is_room_again(tmp_path: Path, initial: Path, at: int, part: int) -> None:
    """What was refused while the disk was full is not lost, because searches may have shown it."""
    made(tmp_path / "d", initial)
    full = Full(at, part)

    def main() -> None:
        with opened(tmp_path / "d", full) as store:
            store.directory.add(f"cn=a,{BASE}", PERSON)
            with pytest.raises(Refused, match="No space left"):
                store.commit()
            for _ in range(3):
                with pytest.raises(Refused, match="No space left"):
                    store.check()
            assert store.error is not None
            full.at = 1 << 60
            with coro.group() as group:
                for _ in range(3):
                    group.spawn(store.check)
            assert store.error is None
            store.directory.add(f"cn=b,{BASE}", PERSON)
            store.commit()

    coro.run(main)
    with opened(tmp_path / "d") as store:
        for name in ("a", "b"):
            assert store.directory.get(f"cn={name},{BASE}") is not None
        assert len(store.directory) == 8


@pytest.mark.parametrize("at", [3, 4, 5])
def test_a_failed_compaction_leaves_nothing_behind(tmp_path: Path, initial: Path, at: int) -> None:
    """It fails at its write, fsync or rename, and is tried again when the journal is a quarter longer."""
    made(tmp_path / "d", initial)

    def main() -> None:
        with opened(tmp_path / "d", Broken(at, 10_000_000), compact_at=1) as store:
            store.directory.add(f"cn=a,{BASE}", PERSON)
            store.commit()
            store.check()  # waits for the compaction
            until = store.size * 5 // 4
            assert store.compactions == 0
            assert not (tmp_path / "d" / "data.ldif.new").exists()
            number = 0
            while store.compactions == 0:
                number += 1
                assert store.size <= until
                store.check()
                store.directory.modify(f"cn=a,{BASE}", [("replace", "sn", [str(number)])])
                store.commit()
                store.check()
            assert store.error is None and store.size == 0

    coro.run(main)
    with opened(tmp_path / "d") as store:
        assert store.directory.get(f"cn=a,{BASE}") is not None
