"""Attaching to the process of a hostile user whose folder for temporary files is another: in a mount namespace of his.

``unshare -Urm`` needs no privilege. Within it the user exchanges what the command makes, by links to files that only
the one who attaches may write to. A race in life; here the user wins each: he acts within the call that he waits for.
"""

import ast
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile

import pytest
from support import LIMIT

from coro.backdoor import _attach

linux = pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")

#: Waits for the names of files and does what its first word says: `swap NAME` puts a folder with links in the place of
#: the folder NAME, `link NAME` a link to a folder of somebody else.
HOSTILE = """
mount --bind "$OWN" "$SHARED" || exit 1
echo ready
while read what name; do
    mv "$SHARED/$name" "$SHARED/old" || exit 1
    if [ "$what" = link ]; then
        ln -s "$VICTIM" "$SHARED/$name"
    else
        mkdir "$SHARED/$name"
        ln -s "$VICTIM/precious" "$SHARED/$name/enter.py"
        ln -s "$VICTIM/precious" "$SHARED/$name/socket"
    fi
    echo done
done
"""


class Hostile:
    """A process in a mount namespace, and what it is after."""

    def __init__(self, base, script=HOSTILE):
        self.victim = os.path.join(base, "victim")
        self.precious = os.path.join(self.victim, "precious")
        self.shared = os.path.join(base, "tmp")
        self.own = os.path.join(base, "own")
        for path in (self.victim, self.shared, self.own):
            os.mkdir(path)
        with open(self.precious, "w") as file:
            file.write("secret")
        os.chmod(self.precious, 0o600)
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        if user:
            os.chown(self.own, 65534, 65534)
        environment = {"PATH": os.defpath, "OWN": self.own, "SHARED": self.shared, "VICTIM": self.victim}
        self.process = subprocess.Popen(
            ["unshare", "-Urm", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd="/",
            **user,
        )  # fmt: skip
        if self.process.stdout.readline() != "ready\n":
            _, errors = self.process.communicate()
            pytest.skip(f"no mount namespace can be had here: {errors.strip()}")
        self.before = self.state()

    def state(self):
        found = os.stat(self.precious)
        with open(self.precious) as file:
            content = file.read()
        return sorted(os.listdir(self.victim)), content, found.st_uid, found.st_gid, found.st_mode, found.st_ino

    def does(self, what, name):
        self.process.stdin.write(f"{what} {name}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def base(monkeypatch):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, of util-linux")
    path = tempfile.mkdtemp(prefix="a-", dir="/tmp")
    os.chmod(path, 0o755)
    monkeypatch.setattr(tempfile, "tempdir", os.path.join(path, "tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def hostile(base):
    process = Hostile(base)
    yield process
    process.end()


def attach(process, monkeypatch, during=None):
    """Attach in vain. What the other process was to run, or None."""
    asked = []

    def remote_exec(pid, script):
        if during is not None:
            during(os.path.basename(os.path.dirname(script)))
        with open(f"/proc/{pid}/root{script}") as file:
            asked.append(file.read())
        raise RuntimeError("no")

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    with pytest.raises(_attach.CannotAttach) as info:
        _attach.attach(process.process.pid, "debug", 1)
    assert os.geteuid() == os.getuid()
    return (asked or [None])[0], str(info.value)


@linux
def test_the_folder_is_where_the_process_sees_it_and_goes(hostile, monkeypatch):
    owners = []

    def look(name):
        for path in (name, f"{name}/enter.py", f"{name}/socket"):
            found = os.lstat(os.path.join(hostile.own, path))
            owners.append((found.st_uid, stat.S_IMODE(found.st_mode) & 0o077 if path == name else 0))

    script, _ = attach(hostile, monkeypatch, look)
    compile(script, "enter.py", "exec")
    assert owners == [(65534 if os.getuid() == 0 else os.getuid(), 0)] * 3
    assert os.listdir(hostile.own) == [] and os.listdir(hostile.shared) == []
    assert hostile.state() == hostile.before


MOMENTS = ["before it is opened", "before the script", "before the socket", "before it is asked"]


@linux
@pytest.mark.parametrize("what", ["swap", "link"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_folder_that_is_exchanged(hostile, monkeypatch, moment, what):
    made, exchanged = [], []
    make, open_file = os.mkdir, os.open

    def exchange(when):
        if when == moment and not exchanged:
            exchanged.append(made[0])
            hostile.does(what, made[0])

    def note_made(path, *args, **more):
        made.append(path)
        make(path, *args, **more)

    def open_slowly(path, flags, *args, **more):
        if made and path == made[0]:
            exchange("before it is opened")
        elif path == "enter.py":
            exchange("before the script")
        return open_file(path, flags, *args, **more)

    class Socket(socket.socket):
        def bind(self, address):
            exchange("before the socket")
            super().bind(address)

    def remote_exec(pid, script):
        # What a hostile process finds at the name of the script is its own affair.
        exchange("before it is asked")
        raise RuntimeError("no")

    monkeypatch.setattr(os, "mkdir", note_made)
    monkeypatch.setattr(os, "open", open_slowly)
    monkeypatch.setattr(_attach.socket, "socket", Socket)
    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    with pytest.raises(_attach.CannotAttach):
        _attach.attach(hostile.process.pid, "debug", 1)
    assert exchanged and hostile.state() == hostile.before
    assert os.geteuid() == os.getuid()
    assert os.listdir(os.path.join(hostile.own, "old")) == []  # what was made in the true folder has gone


@linux
def test_links_on_the_way_to_the_folder(base, monkeypatch):
    # The process sees a link to another folder in the place of TMPDIR. Below /proc/PID/root it would lead into ours.
    process = Hostile(base, HOSTILE.replace("echo ready", 'ln -s "$VICTIM" "$SHARED/inner"; echo ready'))
    try:
        os.mkdir(os.path.join(process.shared, "inner"))
        monkeypatch.setattr(tempfile, "tempdir", os.path.join(process.shared, "inner"))
        script, error = attach(process, monkeypatch)
        assert script is None and "set TMPDIR" in error
        assert process.state() == process.before
    finally:
        process.end()


@linux
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for folders of which the user is not the owner")
def test_a_folder_of_others_that_is_mounted_there(base, monkeypatch):
    process = Hostile(base, HOSTILE.replace("echo ready", 'mount --bind "$VICTIM" "$SHARED"; echo ready'))
    try:
        script, error = attach(process, monkeypatch)
        assert script is None and "Permission denied" in error
        assert process.state() == process.before
    finally:
        process.end()


@linux
def test_a_mount_over_the_folder(base, monkeypatch):
    # What goes at the end is what was made, and not what can be found below its name.
    mounts = HOSTILE.replace('mv "$SHARED/$name" "$SHARED/old" || exit 1', 'mount --bind "$VICTIM" "$SHARED/$name"')
    process = Hostile(base, mounts.replace("if [", "echo done; continue; if ["))
    try:
        attach(process, monkeypatch, lambda name: (process.does("mount", name), os.mknod(process.victim + "/enter.py")))
        assert sorted(os.listdir(process.victim)) == ["enter.py", "precious"]
    finally:
        process.end()


LINES = {
    "no end": b"x" * (_attach.LONGEST_LINE + 100),
    "no dictionary": b"[1]\n",
    "no state": b"{'where': []}\n",
    "state of another type": b"{'state': ['ran']}\n",
    "places of another type": b"{'state': 'ran', 'where': [1]}\n",
    "no literal": b"__import__('os').abort()\n",
    "depth": b"[" * 5000 + b"]" * 5000 + b"\n",
    "a chain": b"{'state': " + b"-" * 30_000 + b"1}\n",
    "bytes": b"\xff\x00\n",
}


@pytest.mark.parametrize("what", LINES)
def test_answers_that_the_script_would_not_give(what):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(LINES[what])
        with pytest.raises(_attach.CannotAttach, match="script") as info:
            _attach._expect_session(ours, 5, LIMIT)
        assert str(info.value).isprintable()


def test_an_answer_is_escaped_before_a_terminal_sees_it():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = {"state": "ran", "thread": "x\x1b]0;y\x07\r\n", "where": ["a\x1b[2J.py:3\nin f"]}
        assert ast.literal_eval(ascii(found)) == found
        theirs.sendall(ascii(found).encode() + b"\n")
        with pytest.raises(_attach.CannotAttach) as info:
            _attach._expect_session(ours, 5, 0.05)
        assert "\x1b" not in str(info.value) and "\r" not in str(info.value) and str(info.value).count("\n") == 1


@linux
def test_only_pipes_of_the_user_are_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        (tmp_path / "file").write_text("kept")
        for user in ((os.getuid() + 1, 0), None):
            _attach._write_zero(str(tmp_path / "pipe"), user)
        assert os.read(reader, 10) == b""
        _attach._write_zero(str(tmp_path / "file"), (os.getuid(), os.getgid()))
        _attach._write_zero(str(tmp_path / "pipe"), (os.getuid(), os.getgid()))
        assert os.read(reader, 10) == b"\0"
        assert (tmp_path / "file").read_text() == "kept"
    finally:
        os.close(reader)
