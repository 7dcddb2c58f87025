"""Binary logs: the bytes of a record, reading them back, and reading what is damaged or never was a log."""

import io
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coro
from coro.log import _ber, asn1, catlog

FAR = 1_700_000_000_000_000  # microseconds


def hashable(children):
    return st.tuples(children, children)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False)
    | st.binary(max_size=300)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
)
keys = st.recursive(scalars, hashable, max_leaves=4)
values = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=5)
        | st.lists(children, max_size=5).map(tuple)
        | st.dictionaries(keys, children, max_size=4)
        | st.sets(keys, max_size=4)
    ),
    max_leaves=20,
)


# -- values


@pytest.mark.parametrize(
    "value, encoded",
    [
        (0, "020100"),
        (-1, "0201ff"),
        (127, "02017f"),
        (128, "02020080"),
        (-128, "020180"),
        (-129, "0202ff7f"),
        (65537, "0203010001"),
        (2**31, "02050080000000"),
        (None, "0500"),
        (True, "0101ff"),
        (False, "010100"),
        (b"hi", "04026869"),
        ("中國", "0c06e4b8ade59c8b"),
        ([], "3000"),
        ([0, 1, 2], "3009020100020101020102"),
        ((0, 1, 2), "a009020100020101020102"),
        ({1: 2, 3: b"hi"}, "a111" + "a006020101020102" + "a007" + "020103" + "04026869"),
        ({2, 1}, "a206020101020102"),
        (3.1415926535, "8308400921fb54411744"),
        (1 << 128, "021101" + "00" * 16),
        (b"x" * 200, "0481c8" + "78" * 200),
        (b"x" * 300, "0482012c" + "78" * 300),
    ],
)
def test_bytes_of_values(value, encoded):
    assert _ber.encode(value).hex() == encoded
    again = _ber.decode(bytes.fromhex(encoded))
    assert again == value and type(again) is type(value)


@settings(deadline=None, max_examples=300)
@given(values)
def test_values_come_back(value):
    encoded = _ber.encode(value)
    again = _ber.decode(encoded)
    assert again == value and type(again) is type(value)
    assert _ber.encode(again) == encoded


def test_other_types_become_the_nearest():
    import enum

    class Number(enum.IntEnum):
        ONE = 1

    class Odd:
        def __repr__(self):
            return "<odd>"

    class Bad:
        def __repr__(self):
            raise RuntimeError

    assert _ber.decode(_ber.encode((Number.ONE, bytearray(b"x"), frozenset([1]), Odd(), Bad(), "\ud800"))) == (
        1,
        b"x",
        {1},
        "<odd>",
        "<unprintable Bad: repr() raised RuntimeError>",
        "\\ud800",
    )


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_the_one_error(data):
    try:
        _ber.decode(data)
    except _ber.DecodeError:
        pass


@settings(deadline=None, max_examples=300)
@given(values, st.randoms(use_true_random=False))
def test_damaged_values_give_a_value_or_the_one_error(value, randomness):
    data = bytearray(_ber.encode((value,)))
    for _ in range(randomness.randint(1, 4)):
        data[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
    del data[randomness.randint(0, len(data)) :]
    try:
        _ber.decode(bytes(data))
    except _ber.DecodeError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        "",
        "02",
        "0201",
        "0280",
        "02850000000001",
        "0284ffffffff",
        "3003020101" + "00",
        "050100",
        "01020000",
        "830101",
        "0c01ff",
        "a1020500",
        "a104a0020500",
        "a2023000",
        "a106a0043000" + "0500",
        "1f8101",
        "09",
        "090100",
        "30" * 200 + "00",
    ],
)
def test_what_is_no_value(data):
    with pytest.raises(_ber.DecodeError):
        _ber.decode(bytes.fromhex(data))


def test_depth():
    deep = None
    for _ in range(98):
        deep = [deep]
    assert _ber.decode(_ber.encode(deep)) == deep
    for _ in range(3):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        _ber.encode(deep)
    with pytest.raises(_ber.DecodeError, match="deep"):
        _ber.decode(nested(200))


def nested(depth):
    data = b"\x05\x00"
    for _ in range(depth):
        data = _ber._element(0x30, data)
    return data


def test_a_claimed_length_allocates_nothing():
    with pytest.raises(_ber.DecodeError, match="are left"):
        _ber.decode(b"\x04\x84\x7f\xff\xff\xff" + b"x" * 10)


# -- records


def written(*records):
    f = io.BytesIO()
    logger = asn1.Logger(f)
    for record in records:
        logger.log(*record)
    return f.getvalue()


def read(data, **options):
    return [items for _, _, items in asn1.gen_log(io.BytesIO(data), **options)]


def test_the_bytes_of_a_record():
    record = asn1.pack(FAR, ("a", 1))
    value = "a010" + "0207060a24181e4000" + "a0060c0161020101"
    value = bytes.fromhex("a0" + f"{(len(value) - 4) // 2:02x}" + value[4:])
    assert record == b"\x25\xf1\xbf\x42" + len(value).to_bytes(4, "big") + value
    ((size, when, items),) = asn1.gen_log(io.BytesIO(record))
    assert (size, when, items) == (len(value), FAR / 1e6, ("a", 1))


def test_writing_and_reading(tmp_path):
    records = [("a", 1), (), (None, b"\xff" * 2000, {"k": [1.5]})]
    before = time.time()
    data = written(*records)
    found = list(asn1.gen_log(io.BytesIO(data)))
    assert [items for _, _, items in found] == records
    assert all(before - 1 <= when <= time.time() + 1 for _, when, _ in found)
    path = tmp_path / "log"
    for record in records:
        logger = asn1.Logger(path)
        logger.log(*record)
        logger.close()
    with open(path, "rb") as f:
        assert [items for _, _, items in asn1.gen_log(f)] == records
    with pytest.raises(TypeError):
        asn1.Logger(5)


def test_what_cannot_be_encoded_is_logged_as_text():
    cycle = []
    cycle.append(cycle)
    assert read(written((cycle,))) == [("[[...]]",)]


def test_a_stray_first_byte_before_the_magic_loses_nothing():
    data = b"\x25" + asn1.MAGIC + b"x"
    sync = asn1.Sync()
    assert [sync.feed(byte) for byte in data] == [False] * 4 + [True, False]
    assert asn1.Sync().resync(io.BytesIO(data)) == 5
    assert asn1.Sync().feed(b"\x25") is False
    assert read(b"\x25\xf1\x25" + written(("first",))) == [("first",)]


def test_resync():
    assert asn1.Sync().resync(io.BytesIO(b"x" * 100 + asn1.MAGIC)) == 104
    with pytest.raises(ValueError, match="within 50 bytes"):
        asn1.Sync().resync(io.BytesIO(b"x" * 100 + asn1.MAGIC), limit=50)
    assert asn1.Sync().resync(io.BytesIO(b"x" * 20000 + asn1.MAGIC), limit=0) == 20004
    with pytest.raises(EOFError):
        asn1.Sync().resync(io.BytesIO(b"x" * 10))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_resync_finds_what_find_finds(data):
    found = data.find(asn1.MAGIC)
    try:
        assert asn1.Sync().resync(io.BytesIO(data)) == found + 4
    except EOFError:
        assert found < 0


def test_damage_costs_the_damaged_records_only():
    one, two, three = (asn1.pack(FAR, (n,)) for n in range(3))
    rubbish = b"rubbish" * 10
    assert read(rubbish + one + rubbish + two + rubbish) == [(0,), (1,)]
    assert read(one + asn1.MAGIC + two) == [(0,), (1,)]
    assert read(one + asn1.MAGIC + b"\x00\x00\x00\x40" + two + three) == [(0,), (1,), (2,)]
    assert read(one + asn1.MAGIC + b"\xff\xff\xff\xff" + two) == [(0,), (1,)]
    assert read(one + asn1.MAGIC + b"\x0f\xff\xff\xff" + two) == [(0,), (1,)]
    assert read(one + asn1.MAGIC + b"\x00\x00\x00\x02\x05\x00" + two) == [(0,), (1,)]
    for cut in range(len(two)):
        assert read(one + two[:cut]) == [(0,)]
    with pytest.raises(ValueError, match="binary log"):
        read(b"x" * 20_000 + one)
    assert read(b"x" * 200_000 + one, limit=0) == [(0,)]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300), st.integers(0, 10**6))
def test_reading_anything_ends(data, seed):
    whole = bytearray(written(("a",), (b"b" * 100,)) + data + written(("c",)))
    whole[seed % len(whole)] ^= 0x5A
    list(asn1.gen_log(io.BytesIO(whole), limit=0))


@pytest.mark.slow
def test_reading_a_large_damaged_log():
    randomness = random.Random(7)
    whole = bytearray(b"".join(asn1.pack(FAR + n, (n, b"x" * (n % 300))) for n in range(5000)))
    for _ in range(200):
        whole[randomness.randrange(len(whole))] = randomness.randrange(256)
    intact = [record for record in read(whole, limit=0) if record == (record[0], b"x" * (record[0] % 300))]
    assert 4700 < len(intact) < 5000
    assert [n for n, _ in intact] == sorted(n for n, _ in intact)


def test_following(tmp_path, monkeypatch):
    monkeypatch.setattr(asn1, "FOLLOW_SECONDS", 0.002)
    path = tmp_path / "log"
    path.write_bytes(asn1.pack(FAR, (0,)))

    def append(data):
        with open(path, "ab") as f:
            f.write(data)

    def main():
        with open(path, "rb") as f:
            follow = asn1.gen_log(f, follow=True)
            assert next(follow)[2] == (0,)
            record = asn1.pack(FAR, (1, b"x" * 100))
            append(record[:5])
            rest = coro.spawn(lambda: (coro.sleep_relative(0.01), append(record[5:])))
            assert next(follow)[2] == (1, b"x" * 100)
            rest.join()
            append(asn1.MAGIC + b"\x00\x10\x00\x00" + asn1.pack(FAR, (2,)))
            assert next(follow)[2] == (2,)
            path.write_bytes(asn1.pack(FAR, (3,)))  # cut, as log rotation does
            assert next(follow)[2] == (3,)

    coro.run(lambda: coro.with_timeout(60, main))


def test_following_a_pipe_ends_with_it():
    r, w = os.pipe()
    os.write(w, asn1.pack(FAR, (0,)))
    os.close(w)
    with open(r, "rb") as f:
        assert [items for _, _, items in asn1.gen_log(f, follow=True)] == [(0,)]


# -- catlog


def lines(tmp_path, data, *options):
    path = tmp_path / "log"
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "coro.log.catlog", *options, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TZ": "UTC", "PYTHONIOENCODING": "utf-8"},
    )
    return done.stdout.splitlines(), done.stderr, done.returncode


def test_catlog(tmp_path):
    data = (
        asn1.pack(FAR, ("a", 1, b"text", b"\xff\x01"))
        + asn1.pack(FAR, (b"\xff" * 600,))
        + asn1.pack(FAR, ("x" * 1000,))
    )
    out, err, code = lines(tmp_path, data)
    assert (err, code) == ("", 0)
    assert out == [
        "2023-11-14T22:13:20 'a' 1 b'text' <ff01>",
        "2023-11-14T22:13:20 <600 bytes>",
        "2023-11-14T22:13:20 <record of 1021 bytes>",
    ]
    assert lines(tmp_path, data, "-b")[0][2] == "2023-11-14T22:13:20 " + repr("x" * 1000)


def test_items_that_contain_bytes_and_times_out_of_range():
    assert catlog.line_of(1, 0, ([b"\xff"], (b"\xfe",), {b"\xfd": b"a"})).endswith(" [<ff>] (<fe>,) {<fd>: b'a'}")
    assert catlog.line_of(1, 1e30, ()) == "<1e+30 s> "


@pytest.mark.parametrize("count", [1, 10, 1000, 20_000])
def test_beginning_some_time_before_the_end(count):
    f = io.BytesIO(b"".join(asn1.pack(FAR + n * 1_000_000, (n,)) for n in range(count)))
    for seconds in (0, 1, 5, 300, 10**6):
        f.seek(catlog.find_start(f, seconds))
        assert next(asn1.gen_log(f))[2] == (max(count - 1 - seconds, 0),)


def test_beginning_in_a_file_without_records():
    assert catlog.find_start(io.BytesIO(), 5) == 0
    assert catlog.find_start(io.BytesIO(b"x" * 100_000), 5) == 0


def test_catlog_options(tmp_path):
    data = b"".join(asn1.pack(FAR + n * 60_000_000, (n,)) for n in range(10))
    assert [line[20:] for line in lines(tmp_path, data, "-a", "3m")[0]] == ["6", "7", "8", "9"]
    assert [line[20:] for line in lines(tmp_path, data, "-a", "1w")[0]][0] == "0"
    for wrong in ("3", "m", "-3m", "3x"):
        out, err, code = lines(tmp_path, data, f"-a{wrong}")
        assert code == 2 and "expected a number and one of" in err
    done = subprocess.run([sys.executable, "-m", "coro.log.catlog"], input=data, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 10
    done = subprocess.run(
        [sys.executable, "-m", "coro.log.catlog", "-a", "1m"], input=data, capture_output=True, timeout=60
    )
    assert done.returncode == 1 and b"not a pipe" in done.stderr
    assert catlog.main([str(tmp_path / "nothing")]) == 1


def test_catlog_says_that_a_file_is_no_log(tmp_path, capsys):
    path = tmp_path / "text"
    path.write_bytes(b"")
    assert catlog.main([str(path)]) == 0
    path.write_text("Nov 21 something happened\n")
    assert catlog.main([str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err == f"catlog: no record in {path}; expected a log that coro.log.asn1 wrote\n"


def test_catlog_follows(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(asn1.pack(FAR, (0,)))
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from coro.log import asn1, catlog; asn1.FOLLOW_SECONDS = 0.01;catlog.main(['-f', {str(path)!r}])",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        assert process.stdout.readline().endswith(" 0\n")
        with open(path, "ab") as f:
            f.write(asn1.pack(FAR, (1,)))
        assert process.stdout.readline().endswith(" 1\n")
        process.kill()
        killer.cancel()


def test_catlog_into_a_pipe_that_is_closed(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(asn1.pack(FAR, ("x" * 500,)) * 5000)
    done = subprocess.run(
        f"{sys.executable} -m coro.log.catlog {path} | head -1", shell=True, capture_output=True, timeout=60
    )
    assert done.stderr == b"" and done.stdout.count(b"\n") == 1
