"""`static.Files` that remembers what it has answered: the same request again gets the same answer, and a changed file,
or a changed request, another one.

Each case is asked three times, so that the third answer is one from memory where there can be one.
"""

from __future__ import annotations

import os
import sys

import pytest
from http_support import in_loop, messages, serving, talk

from coro.http import static

TIME = 1_700_000_000

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="answers are remembered where there is openat2(2)")


def ask(server, *lines, path="/a.txt", method="GET"):
    """Status, fields but the date, and body."""
    head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: h", *lines, ""))
    ((status, fields, body),) = messages(talk(server, head.encode()), method)
    fields.pop("date")
    return status, fields, body


def write(path, data, time=TIME):
    path.write_bytes(data)
    os.utime(path, (time, time))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub" / "sub").mkdir(parents=True)
    write(tmp_path / "a.txt", b"one")
    write(tmp_path / "sub" / "sub" / "b.txt", b"deep")
    write(tmp_path / "sub" / "index.html", b"<p>")
    write(tmp_path / "empty.txt", b"")
    return tmp_path


@in_loop
def test_the_same_again(folder):
    for files in (static.Files(folder), static.Files(folder, max_age=60, precompressed=False)):
        with serving(files) as server:
            for path in (
                "/a.txt",
                "/sub/sub/b.txt",
                "/sub/",
                "/empty.txt",
                "/a.txt?query",
                "/%61.txt",
                "http://h/a.txt",
            ):
                first, *others = [ask(server, path=path) for _ in range(3)]
                assert first[0] == 200
                assert others == [first, first]
                assert ("cache-control" in first[1]) == (files._headers != [])


@in_loop
def test_other_requests_for_what_is_remembered(folder):
    write(folder / "a.txt.gz", b"packed")
    with serving(static.Files(folder)) as server:
        plain = [ask(server) for _ in range(3)][-1]
        etag = plain[1]["etag"][0]
        assert ask(server, "Range: bytes=1-1")[::2] == (206, b"n")
        assert ask(server, f"If-None-Match: {etag}")[::2] == (304, b"")
        assert ask(server, 'If-Match: "other"')[0] == 412
        assert ask(server, "Range: bytes=1-1", 'If-Range: "other"')[::2] == (200, b"one")
        assert ask(server, "Accept-Encoding: gzip")[::2] == (200, b"packed")
        assert ask(server, method="HEAD") == (200, plain[1], b"")
        assert ask(server, "Connection: close") == (200, {**plain[1], "connection": ["close"]}, b"one")
        assert ask(server, method="POST")[0] == 405
        assert ask(server) == plain


@in_loop
def test_a_file_that_changes(folder):
    file = folder / "a.txt"

    def ask_again():
        found = [ask(server) for _ in range(3)]
        assert found[0] == found[1] == found[2]
        return found[0][::2]

    with serving(static.Files(folder)) as server:
        assert ask_again() == (200, b"one")
        write(file, b"three")
        assert ask_again() == (200, b"three")
        write(file, b"THREE", TIME + 1)
        assert ask_again() == (200, b"THREE")
        assert ask(server)[1]["last-modified"] == ["Tue, 14 Nov 2023 22:13:21 GMT"]
        write(folder / "new", b"other", TIME + 1)
        etag = ask(server)[1]["etag"]
        os.replace(folder / "new", file)
        assert ask_again() == (200, b"other")
        assert ask(server)[1]["etag"] != etag
        file.unlink()
        assert ask_again()[0] == 404
        file.mkdir()
        assert ask_again()[0] == 301


@in_loop
def test_a_link_where_a_file_or_folder_was(folder, tmp_path_factory):
    """Also to the very file that is remembered."""
    outside = tmp_path_factory.mktemp("outside")
    with serving(static.Files(folder)) as server:
        for path in ("/a.txt", "/sub/sub/b.txt"):
            assert [ask(server, path=path)[0] for _ in range(3)] == [200] * 3
        os.rename(folder / "a.txt", outside / "a.txt")
        os.rename(folder / "sub", outside / "sub")
        os.symlink(outside / "a.txt", folder / "a.txt")
        os.symlink(outside / "sub", folder / "sub")
        for path in ("/a.txt", "/sub/sub/b.txt"):
            assert [ask(server, path=path)[0] for _ in range(3)] == [404] * 3


@in_loop
def test_fields_that_somebody_adds(folder):
    files = static.Files(folder)

    def handler(request):
        if request.query:
            request.add_header("x-added", "1")
        files(request)

    with serving(handler) as server:
        for path in ("/a.txt", "/a.txt?x", "/a.txt", "/a.txt?x"):
            assert ask(server, path=path)[1].get("x-added", []) == (["1"] if "?" in path else [])


@linux_only
@in_loop
def test_what_is_remembered(folder):
    """A subclass may answer otherwise each time; names that lead to one file are without number."""

    class Own(static.Files):
        pass

    assert Own(folder)._remembered is None
    assert static.Files(folder, follow_links=True)._remembered is None
    files = static.Files(folder)
    asked = []
    files.segments = lambda path: asked.append(path) or static.Files.segments(files, path)
    with serving(files) as server:
        for _ in range(3):
            ask(server, path="/a.txt")
        assert asked == ["/a.txt"]
        paths = [f"{'/.' * (i % 40)}{'/' * (i // 40)}/a.txt" for i in range(1100)]
        requests = "".join(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n" for path in paths)
        assert talk(server, requests.encode()).count(b"\r\n\r\none") == 1100
        assert 1 < len(files._remembered) < 1025
