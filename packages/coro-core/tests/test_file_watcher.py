"""Watching files, by inotify and by the VNODE filter: every test of a tree runs on both. Nothing sleeps: a test does
one thing and reads events until the one that it must lead to."""

import contextlib
import errno
import os
import pickle
import random
import shutil
import socket
import sys

import pytest
from support import in_loop, ok, on_kqueue

import coro
from coro import NOTE, oserrors
from coro.file_watcher import FileEvent, WatchLimitError, _watcher, register, unregister
from coro.file_watcher._vnode import VnodeSource

pytestmark = [pytest.mark.usefixtures("leaves_nothing"), pytest.mark.poller]

SOURCES = {"vnode": VnodeSource}
if sys.platform.startswith("linux"):
    from coro.file_watcher import _inotify

    SOURCES["inotify"] = _inotify.InotifySource

linux_only = pytest.mark.skipif("inotify" not in SOURCES, reason="about inotify(7)")


@pytest.fixture(params=sorted(SOURCES))
def source(request, monkeypatch):
    monkeypatch.setattr(_watcher, "_source_type", lambda: SOURCES[request.param])
    return request.param


@pytest.fixture
def inotify(monkeypatch):
    monkeypatch.setattr(_watcher, "_source_type", lambda: SOURCES["inotify"])


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    return str(path)


def write(path, text="text"):
    with open(path, "a") as f:
        f.write(text)
    return str(path)


def until(watcher, kind, path=None):
    """Read events up to one of this kind (and path); it is the last of those returned."""
    events = []
    while True:
        events.append(watcher.get())
        if events[-1].kind == kind and path in (None, events[-1].path):
            return events


def last(watcher, kind, path=None):
    return until(watcher, kind, path)[-1]


# -- a folder


@in_loop
def test_what_happens_in_a_folder(source, tmp_path):
    with coro.watch(tmp_path) as w:
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        make(a)
        assert w.get() == ("created", a, None, False, None)
        write(a)
        assert w.get() == ("modified", a, None, False, None)
        os.chmod(a, 0o600)
        assert last(w, "attributes") == ("attributes", a, None, False, None)
        os.rename(a, b)
        assert last(w, "moved") == ("moved", b, a, False, None)
        write(b)
        assert last(w, "modified", b).path == b
        os.unlink(b)
        assert last(w, "deleted") == ("deleted", b, None, False, None)
        d = str(tmp_path / "d")
        os.mkdir(d)
        assert last(w, "created") == ("created", d, None, True, None)
        make(tmp_path / "d" / "inside")  # not recursive
        os.rename(d, d + "2")
        assert last(w, "moved") == ("moved", d + "2", d, True, None)
        os.symlink("nowhere", tmp_path / "link")
        assert last(w, "created").path == str(tmp_path / "link")
        os.mkfifo(tmp_path / "fifo")
        assert last(w, "created").path == str(tmp_path / "fifo")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.relpath(tmp_path / "s"))
            assert last(w, "created").path == str(tmp_path / "s")
        os.unlink(tmp_path / "fifo")
        assert last(w, "deleted").path == str(tmp_path / "fifo")


@in_loop
def test_files_that_come_and_go_from_outside(source, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with coro.watch(inside) as w:
        f = make(outside / "f")
        os.rename(f, inside / "f")
        assert w.get() == ("created", str(inside / "f"), None, False, None)
        os.rename(inside / "f", outside / "g")
        assert w.get() == ("deleted", str(inside / "f"), None, False, None)


@in_loop
def test_the_folder_itself_ends(source, tmp_path):
    for end in (os.rmdir, lambda path: os.rename(path, tmp_path / "elsewhere")):
        folder = tmp_path / "folder"
        folder.mkdir()
        with coro.watch(folder) as w:
            os.chmod(folder, 0o700)
            assert w.get() == ("attributes", str(folder), None, True, None)
            end(folder)
            events = list(w)
            assert events[-1] == ("deleted", str(folder), None, True, None)
            assert w.closed
            with pytest.raises(coro.ClosedError, match="last event"):
                w.get()


@in_loop
def test_many_watchers_at_once(source, tmp_path):
    with contextlib.ExitStack() as stack:
        whole = [stack.enter_context(coro.watch(tmp_path)) for _ in range(3)]
        f = make(tmp_path / "f")
        file = stack.enter_context(coro.watch(f))
        for w in whole:
            assert w.get().path == f
        os.unlink(f)
        for w in (*whole, file):
            assert last(w, "deleted").path == f


@in_loop
def test_names_that_are_not_text(source, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    with coro.watch(os.fsencode(tmp_path), recursive=True) as w:
        os.mkdir(name)
        event = w.get()
        assert os.fsencode(event.path) == name
        make(name + b"/\x80")
        assert os.fsencode(w.get().path) == name + b"/\x80"
    with coro.watch(name) as w:
        os.unlink(name + b"/\x80")
        assert os.fsencode(w.get().path) == name + b"/\x80"


@in_loop
def test_paths_begin_as_given(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("d")
    make("d/f")
    with coro.watch("d") as w, coro.watch("d/f") as f, coro.watch("./d/..", recursive=True) as up:
        monkeypatch.chdir("/")
        write(tmp_path / "d" / "f")
        assert w.get().path == "d/f"
        assert f.get().path == "d/f"
        assert up.get().path == "./d/../d/f"
        os.mkdir(tmp_path / "new")
        assert last(up, "created").path == "./d/../new"
        make(tmp_path / "new" / "x")
        assert last(up, "created").path == "./d/../new/x"


# -- one file


@in_loop
def test_a_file_is_followed_by_name(source, tmp_path):
    f = write(tmp_path / "f")
    with coro.watch(f) as w:
        for text in "ab":  # as editors do
            write(tmp_path / "new", text)
            os.rename(tmp_path / "new", f)
            event = w.get()
            assert event.kind in ("moved", "created") and event.path == f
            write(f)
            assert last(w, "modified").path == f
        os.rename(f, f + "~")
        assert w.get() == ("moved", f + "~", f, False, None)
        make(f)
        assert last(w, "created").path == f
        write(f)
        assert last(w, "modified").path == f
        os.unlink(f)
        assert last(w, "deleted").path == f
        make(f)
        assert last(w, "created") == ("created", f, None, False, None)


@in_loop
def test_other_files_of_its_folder_are_not_told(source, tmp_path):
    f, other = make(tmp_path / "f"), tmp_path / "other"
    with coro.watch(f) as w:
        write(other)
        os.rename(other, tmp_path / "another")
        os.chmod(tmp_path, 0o700)
        write(f)
        assert w.get() == ("modified", f, None, False, None)


@in_loop
def test_the_folder_of_a_file_ends(source, tmp_path):
    (tmp_path / "d").mkdir()
    f = make(tmp_path / "d" / "f")
    with coro.watch(f) as w:
        os.rename(tmp_path / "d", tmp_path / "e")
        assert list(w) == [("deleted", f, None, False, None)]


# -- links


@in_loop
def test_links(source, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    f = make(real / "f")
    os.symlink("real", tmp_path / "link")
    os.symlink("real/f", tmp_path / "flink")
    os.symlink("..", real / "up")
    with coro.watch(tmp_path / "link", recursive=True) as w, coro.watch(tmp_path / "flink") as fw:
        write(f)
        assert w.get().path == str(tmp_path / "link" / "f")
        assert fw.get().path == str(tmp_path / "flink")
        make(tmp_path / "above")  # a link inside is not followed
        os.symlink("nowhere", real / "broken")
        assert last(w, "created").path == str(tmp_path / "link" / "broken")
        os.unlink(real / "up")
        assert w.get() == ("deleted", str(tmp_path / "link" / "up"), None, False, None)
        assert w.statistics().folders == 1


# -- trees


@in_loop
def test_a_tree(source, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with coro.watch(tmp_path, recursive=True) as w:
        assert w.statistics() == (3, 0, 0)
        f = make(tmp_path / "a" / "b" / "f")
        assert last(w, "created").path == f
        os.rename(tmp_path / "a", tmp_path / "c")
        assert last(w, "moved") == ("moved", str(tmp_path / "c"), str(tmp_path / "a"), True, None)
        write(tmp_path / "c" / "b" / "f")
        assert last(w, "modified").path == str(tmp_path / "c" / "b" / "f")
        os.rename(tmp_path / "c" / "b", tmp_path / "b")  # to another folder
        assert last(w, "moved") == ("moved", str(tmp_path / "b"), str(tmp_path / "c" / "b"), True, None)
        g = make(tmp_path / "b" / "g")
        assert last(w, "created").path == g
        os.rename(g, tmp_path / "c" / "g")
        assert last(w, "moved") == ("moved", str(tmp_path / "c" / "g"), g, False, None)
        shutil.rmtree(tmp_path / "b")
        events = until(w, "deleted", str(tmp_path / "b"))
        assert [e.path for e in events if e.kind == "deleted"] == [str(tmp_path / "b" / "f"), str(tmp_path / "b")]
        make(tmp_path / "end")
        assert last(w, "created").path == str(tmp_path / "end")
        assert w.statistics().folders == 2


@in_loop
def test_new_folders_are_watched_with_what_is_in_them(source, tmp_path):
    with coro.watch(tmp_path, recursive=True) as w:
        for n in range(10):
            top = tmp_path / f"d{n}"
            wanted = {str(top / "x" / "y" / "z"), str(top / "x" / "y"), str(top / "x"), str(top)}
            (top / "x" / "y").mkdir(parents=True)  # at once: there is no time to watch anything in between
            make(top / "x" / "y" / "z")
            told = []
            while wanted - set(told):
                event = w.get()
                assert event.kind == "created"
                told.append(event.path)
            assert sorted(told) == sorted(wanted)  # nothing twice
            write(top / "x" / "y" / "z")
            assert last(w, "modified").path == str(top / "x" / "y" / "z")


@in_loop
def test_a_tree_from_outside(source, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    (outside / "a" / "b").mkdir(parents=True)
    make(outside / "a" / "b" / "f")
    with coro.watch(inside, recursive=True) as w:
        os.rename(outside / "a", inside / "a")
        events = until(w, "created", str(inside / "a" / "b" / "f"))
        assert [e.path for e in events] == [str(inside / n) for n in ("a", "a/b", "a/b/f")]
        os.rename(inside / "a", outside / "a")
        assert w.get() == ("deleted", str(inside / "a"), None, True, None)
        make(outside / "a" / "b" / "unseen")
        make(inside / "end")
        assert w.get().path == str(inside / "end")
        assert w.statistics().folders == 1


@in_loop
def test_moves_in_a_row(source, tmp_path):
    a, b, c = (str(tmp_path / n) for n in "abc")
    make(a)
    make(b)
    with coro.watch(tmp_path) as w:
        os.rename(b, c)
        os.rename(a, b)
        assert [w.get(), w.get()] == [("moved", c, b, False, None), ("moved", b, a, False, None)]
        os.rename(b, c)  # over another file
        assert w.get() == ("moved", c, b, False, None)
        write(c)
        assert last(w, "modified").path == c


@in_loop
def test_a_file_with_several_names(source, tmp_path):
    a, b, c = (str(tmp_path / n) for n in "abc")
    make(a)
    with coro.watch(tmp_path) as w:
        os.link(a, b)
        assert last(w, "created").path == b
        os.link(a, c)
        assert last(w, "created").path == c
        os.unlink(a)
        os.unlink(b)
        assert {last(w, "deleted").path, last(w, "deleted").path} == {a, b}
        os.unlink(c)
        assert last(w, "deleted").path == c


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; run the tests as another user")
@in_loop
def test_a_folder_that_may_not_be_read(source, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    try:
        with coro.watch(tmp_path, recursive=True) as w:
            with pytest.raises(PermissionError):
                w.get()
            make(tmp_path / "f")
            assert w.get().kind == "created"
        with pytest.raises(oserrors.EACCES):
            coro.watch(closed)
    finally:
        closed.chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@in_loop
def test_random_changes_are_all_told(source, tmp_path, seed):
    """Who applies the events to a copy of the first listing comes to the last listing, or the test hangs."""
    r = random.Random(seed)
    known = set()
    with coro.watch(tmp_path, recursive=True) as w:
        for _ in range(40):
            for _ in range(5):
                folders = [tmp_path, *(p for p in sorted(tmp_path.rglob("*")) if p.is_dir())]
                target = r.choice(folders) / r.choice("abcdef")
                kind = r.randrange(5)
                files = [p for p in sorted(tmp_path.rglob("*")) if p.is_file()]
                if kind == 0 and not target.exists():
                    target.mkdir()
                elif kind == 1 and not target.is_dir():
                    make(target)
                elif kind == 2 and files and not target.is_dir():
                    os.rename(r.choice(files), target)
                elif kind == 3 and files:
                    os.unlink(r.choice(files))
                elif kind == 4 and len(folders) > 1 and not target.exists():
                    folder = r.choice(folders[1:])
                    if folder not in target.parents:
                        os.rename(folder, target)
                if r.random() < 0.3:
                    coro.yield_slice()
            while known != {str(p) for p in tmp_path.rglob("*")}:
                e = w.get()
                if e.kind == "created":
                    known.add(e.path)
                elif e.kind == "deleted":
                    known = {p for p in known if p != e.path and not p.startswith(e.path + "/")}
                elif e.kind == "moved":
                    inside = {p for p in known if p == e.old_path or p.startswith(e.old_path + "/")}
                    known = (known - inside) | {e.path + p[len(e.old_path) :] for p in inside} | {e.path}


# -- interruption, closing, select


@in_loop
def test_an_interrupted_reader_loses_nothing(source, tmp_path):
    with coro.watch(tmp_path) as w:
        for n in range(5):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0, w.get)
            f = make(tmp_path / str(n))
            assert w.get().path == f


@in_loop
def test_an_interruption_while_it_is_made_leaves_nothing(source, tmp_path):
    for n in range(5):
        (tmp_path / str(n) / "x").mkdir(parents=True)
    for after in range(4):
        t = coro.spawn(coro.watch, tmp_path, recursive=True)
        for _ in range(after):
            coro.yield_slice()
        t.shutdown()
        t.join()
        if t.result is not None:
            t.result.close()


@in_loop
def test_closing_wakes_the_reader(source, tmp_path):
    w = coro.watch(tmp_path)
    readers = [coro.spawn(list, w) for _ in range(3)]
    coro.yield_slice()
    w.close()
    w.close()
    for reader in readers:
        reader.join()
        assert reader.result == []
    assert w.closed and w.statistics() == (0, 0, 0) and "closed" in repr(w)
    with pytest.raises(coro.ClosedError, match="closed"):
        w.get()


@in_loop
def test_closing_while_events_come(source, tmp_path):
    """At any stage of the watcher's thread."""
    for n in range(8):
        folder = tmp_path / f"f{n}"
        folder.mkdir()
        w = coro.watch(folder, recursive=True)
        (folder / "a" / "b").mkdir(parents=True)
        make(folder / "x")
        for _ in range(n):
            coro.yield_slice()
        w.close()


@in_loop
def test_in_a_select(source, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with coro.watch(tmp_path / "a") as one, coro.watch(tmp_path / "b") as two:
        cases = [coro.case.get(one.events), coro.case.get(two.events)]
        assert coro.select(*cases, timeout=0) is None
        f = make(tmp_path / "b" / "f")
        assert coro.select(*cases, timeout=60) is cases[1]
        assert cases[1].value == FileEvent("created", f)


@in_loop
def test_a_slow_reader(source, tmp_path, monkeypatch):
    """More events than fit into the channel."""
    monkeypatch.setattr(_watcher, "CAPACITY", 4)
    with coro.watch(tmp_path) as w:
        names = [make(tmp_path / f"{n:02}") for n in range(50)]
        assert sorted(w.get().path for _ in names) == names


def test_a_loop_ends_with_an_open_watcher(source, tmp_path):
    kept = []
    coro.run(lambda: kept.append(coro.watch(tmp_path)))
    assert kept[0].closed
    kept[0].close()


@pytest.mark.slow
def test_no_deadlock_while_one_is_open(source, tmp_path):
    """All threads wait, and it is another process that ends it."""
    lines = ok(
        f"""
        import coro, subprocess, sys
        from coro.file_watcher import _vnode, _watcher
        if {source!r} == "vnode":
            _watcher._source_type = lambda: _vnode.VnodeSource
        def main():
            with coro.watch({str(tmp_path)!r}) as w:
                p = subprocess.Popen(["sh", "-c", "sleep 0.2; : > {tmp_path}/f"])
                print(w.get().kind)
                p.wait()
        coro.run(main)
        """
    )
    assert lines == ["created"]


@in_loop
def test_a_forgotten_watcher(source, tmp_path):
    w = coro.watch(tmp_path)
    with pytest.warns(ResourceWarning, match="not closed"):
        del w
    coro.yield_slice()


def test_a_forked_child(source, tmp_path):
    if source == "vnode" and on_kqueue():
        pytest.skip("a child shares the imitated kqueue, while it inherits no real one, see kqueue(2)")
    lines = ok(
        f"""
        import coro, os, warnings
        from coro.file_watcher import _vnode, _watcher
        warnings.simplefilter("ignore", DeprecationWarning)  # there are worker OS threads, and this is about fork
        if {source!r} == "vnode":
            _watcher._source_type = lambda: _vnode.VnodeSource
        def read(w):
            return w.get()
        def main():
            w = coro.watch({str(tmp_path)!r}, recursive=True)
            reader = coro.spawn(read, w)
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                try:
                    w.get()
                except coro.ClosedError as e:
                    print("child:", e.args[0].rpartition("; ")[2], flush=True)
                with coro.watch({str(tmp_path)!r}) as mine:
                    open({str(tmp_path / "f")!r}, "w").close()
                    print("child:", mine.get().kind, flush=True)
                w.close()
                os._exit(0)
            coro.waitpid(pid)
            reader.join()
            print(reader.result.kind)
            w.close()
        coro.run(main)
        """
    )
    assert lines == ["child: make a new one", "child: created", "created"]


# -- limits and errors


@in_loop
def test_misuse(source, tmp_path):
    with pytest.raises(oserrors.ENOENT) as e:
        coro.watch(tmp_path / "missing")
    assert e.value.filename == str(tmp_path / "missing")
    with pytest.raises(TypeError):
        coro.watch(3)
    with pytest.raises(ValueError, match="NUL"):
        coro.watch("a\0b")


def test_outside_a_thread(source, tmp_path):
    with pytest.raises(coro.YieldFromMain):
        coro.watch(tmp_path)


@linux_only
@in_loop
def test_too_many_watches(inotify, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    real = _inotify._functions()
    refused = str(tmp_path / "b")

    class Few:
        init, remove = real.init, real.remove

        def add(self, fd, path, mask):
            return real.add(fd, path, mask) if path != refused else -errno.ENOSPC

    monkeypatch.setattr(_inotify, "_library", Few())
    with coro.watch(tmp_path, recursive=True) as w:
        (tmp_path / "b").mkdir()
        make(tmp_path / "f")
        assert w.get().path == str(tmp_path / "b")
        with pytest.raises(WatchLimitError, match="fs.inotify.max_user_watches.*raise it") as e:
            w.get()
        assert (e.value.errno, e.value.filename) == (errno.ENOSPC, str(tmp_path / "b"))
        assert w.get().path == str(tmp_path / "f")  # the rest goes on
    with pytest.raises(WatchLimitError):
        coro.watch(tmp_path, recursive=True)


@linux_only
@in_loop
def test_a_folder_that_may_not_be_watched(inotify, tmp_path, monkeypatch):
    """As for a user other than root; told at once, and about nothing else."""
    (tmp_path / "closed").mkdir()
    real = _inotify._functions()

    class Strict:
        init, remove = real.init, real.remove

        def add(self, fd, path, mask):
            return -errno.EACCES if path.endswith("closed") else real.add(fd, path, mask)

    monkeypatch.setattr(_inotify, "_library", Strict())
    with coro.watch(tmp_path, recursive=True) as w:
        with pytest.raises(oserrors.EACCES):
            w.get()
        f = make(tmp_path / "f")
        assert w.get().path == f
    with pytest.raises(oserrors.EACCES):
        coro.watch(tmp_path / "closed")


@in_loop
def test_too_many_descriptors(source, tmp_path, monkeypatch):
    """EMFILE has two causes for inotify; the answer names the right one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    coro.in_thread(int)  # the worker is there already
    unused = os.dup(0)
    os.close(unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused, hard))
    try:
        with pytest.raises(WatchLimitError) as e:
            coro.watch(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert e.value.setting == "RLIMIT_NOFILE"
    if source == "inotify":
        monkeypatch.setattr(_inotify._functions(), "init", lambda: -errno.EMFILE, raising=False)
        with pytest.raises(WatchLimitError, match="max_user_instances"):
            coro.watch(tmp_path)


def test_the_error_can_be_pickled():
    e = pickle.loads(pickle.dumps(WatchLimitError(errno.ENOSPC, "a.b", "path")))
    assert (e.errno, e.setting, e.filename) == (errno.ENOSPC, "a.b", "path")
    assert "path" in str(e) and "a.b" in str(e)


@linux_only
@pytest.mark.slow
@in_loop
def test_overflow(inotify, tmp_path):
    """Of the real queue; a folder that was made meanwhile is watched afterwards."""
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    with open("/proc/sys/fs/inotify/max_queued_events") as f:
        most = int(f.read())
    if most > 100_000:
        pytest.skip("fs.inotify.max_queued_events is too large to be reached in a test")
    with coro.watch(tmp_path, recursive=True) as w:
        for _ in range(most // 2 + 10):
            os.chmod(a, 0o600)
            os.chmod(b, 0o600)
        (tmp_path / "new").mkdir()
        assert last(w, "overflow") == ("overflow", str(tmp_path), None, True, None)
        assert w.statistics()[::2] == (2, 1)
        f = make(tmp_path / "new" / "f")
        assert w.get() == ("created", f, None, False, None)


@linux_only
@in_loop
def test_the_halves_of_a_move_come_apart(inotify, tmp_path):
    """The second one in another block; or never, when the file has left."""
    w = coro.watch(tmp_path)
    src = w._pump.source
    make(tmp_path / "f")
    assert w.get().kind == "created"
    wd = src.root.wd
    real = src.sock

    class Blocks:
        def __init__(self, *blocks):
            self.blocks = list(blocks)

        def recv(self, size):
            return self.blocks.pop(0) if self.blocks else real.recv(size)

        def close(self):
            real.close()

    def raw(mask, cookie, name):
        return _inotify._HEAD.pack(wd, mask, cookie, 16) + name.encode().ljust(16, b"\0")

    frm, to, new = _inotify.IN_MOVED_FROM, _inotify.IN_MOVED_TO, _inotify.IN_CREATE
    src.sock = Blocks(raw(frm, 7, "f") + raw(new, 0, "x"), raw(new, 0, "y"), raw(to, 7, "g"), raw(frm, 8, "g"))
    make(tmp_path / "f2")  # wakes it
    assert w.get().path == str(tmp_path / "f2")
    got = [w.get()[:3] for _ in range(4)]
    names = {n: str(tmp_path / n) for n in "fgxy"}
    assert got == [
        ("moved", names["g"], names["f"]),
        ("created", names["x"], None),
        ("created", names["y"], None),
        ("deleted", names["g"], None),
    ]
    w.close()


# -- the classic form


@in_loop
def test_register(tmp_path):
    seen = coro.fifo()
    with open(make(tmp_path / "f")) as f, open(f.name) as again:
        register(f.fileno(), seen.push)  # once, for its deletion
        register(again, seen.push, NOTE.WRITE | NOTE.RENAME, once_only=0)
        for _ in range(2):
            write(f.name)
            event = seen.pop()
            assert event.fflags & NOTE.WRITE and event.ident == again.fileno()
        os.rename(f.name, f.name + "2")
        assert seen.pop().fflags & NOTE.RENAME
        with pytest.raises(coro.SimultaneousError):
            register(f, seen.push)
        os.unlink(f.name + "2")
        event = seen.pop()
        assert (event.ident, event.filter) == (f.fileno(), coro.EVFILT.VNODE)
        assert event.fflags & NOTE.DELETE
        unregister(again)
        for file in (f, again):
            with pytest.raises(KeyError):
                unregister(file)
        with pytest.raises(TypeError, match="function of the event"):
            register(f, 3)
        with pytest.raises(ValueError, match="NOTE"):
            register(f, print, 0)
