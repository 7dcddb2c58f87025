"""What a hostile peer may send as frames; the codec alone, so the memory it takes can be measured exactly.

Each attack names the report it is known from.
"""

from __future__ import annotations

import tracemalloc

import pytest
from protocol_support import Pair, delivery, frame, header

from coro.amqp import LimitExceeded, ProtocolError, spec, wire


def peak(function) -> int:
    """The most memory, in bytes, that Python's allocators held during a call, beyond what they held before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_body_larger_than_the_limit_is_refused_by_its_header() -> None:
    """CVE-2023-46120: the Java client read messages of any size."""
    pair = Pair(client={"max_body": 1000}).open(1)
    with pytest.raises(LimitExceeded, match="at most 1000 bytes, got one of 1001") as caught:
        pair.client.receive(delivery() + header(1001))
    assert caught.value.reply_code == 506


@pytest.mark.parametrize("size", [2**31, 2**63, 2**64 - 1])
def test_announced_sizes_allocate_nothing(size: int) -> None:
    """CVE-2026-69219 (Java) and CVE-2026-77410 (Go): memory was taken by the size in the header."""
    pair = Pair(client={"max_body": 2**64 - 1}).open(1)
    data = delivery() + header(size) + frame(3, 1, b"x" * 1000)
    assert peak(lambda: pair.client.receive(data)) < 100_000


def test_an_announced_frame_allocates_nothing() -> None:
    """The same for the length of a frame that is allowed and never comes."""
    pair = Pair(client={"frame_max": 0}, server={"frame_max": 0}).open(1)
    pair.client.receive(delivery() + header(64 << 20))
    begun = b"\3\0\1" + (64 << 20).to_bytes(4, "big") + b"x" * 1000
    assert peak(lambda: pair.client.receive(begun)) < 100_000


def test_nested_tables() -> None:
    """CVE-2026-69220: some 580 tables within one another overflowed the stack of the Java client."""
    packed = b"\0\0\0\0"
    for _ in range(600):
        packed = (len(packed) + 3).to_bytes(4, "big") + b"\1aF" + packed
    pair = Pair().open(1)
    with pytest.raises(LimitExceeded, match="max_table_depth"):
        pair.server.receive(frame(1, 1, b"\0\x32\0\x0a\0\0\1q\0" + packed))
    pair = Pair().open(1)
    [(_, message)] = pair.client.receive(delivery() + header(0, b"\x20\0" + packed))
    with pytest.raises(LimitExceeded, match="max_table_depth"):
        assert message.headers


def test_nested_lists() -> None:
    packed = b""
    for _ in range(600):
        packed = b"A" + len(packed).to_bytes(4, "big") + packed
    with pytest.raises(LimitExceeded):
        wire.unpack_field_value(packed)


def test_no_frame_limit_of_the_peer_lifts_ours() -> None:
    """CVE-2026-75516: a frame-max of 0 was taken for no limit at all."""
    pair = Pair(server={"frame_max": 0}).open(1)
    assert pair.client.frame_max == 131072
    with pytest.raises(LimitExceeded):
        pair.client.receive(b"\3\0\1" + (131072 - 7).to_bytes(4, "big"))
    # Even where we ask for no limit ourselves, there is that of a message, and a smaller one for what is no body.
    pair = Pair(client={"frame_max": 0, "max_body": 4 << 20}, server={"frame_max": 0}).open(1)
    assert pair.client.frame_max == 0
    pair.client.receive(b"\3\0\1" + (4 << 20).to_bytes(4, "big"))
    for kind, size in ((3, (4 << 20) + 1), (1, (1 << 20) + 1), (2, (1 << 20) + 1)):
        pair = Pair(client={"frame_max": 0, "max_body": 4 << 20}, server={"frame_max": 0}).open(1)
        with pytest.raises(LimitExceeded):
            pair.client.receive(bytes([kind]) + b"\0\1" + size.to_bytes(4, "big"))


@pytest.mark.parametrize("parts", [(b"123456",), (b"12345", b"6"), (b"12", b"3456")])
def test_a_body_longer_than_its_header_says(parts: tuple[bytes, ...]) -> None:
    """CVE-2026-63335: what came beyond the announced size became part of the message."""
    pair = Pair().open(1)
    events: list = []
    with pytest.raises(ProtocolError, match="as its header says|no part of a message"):
        events += pair.client.receive(delivery() + header(5) + b"".join(frame(3, 1, part) for part in parts))
        pair.client.receive(b"")
    assert [message.body for _, message in events] in ([], [b"12345"])


def test_empty_body_frames_take_no_memory() -> None:
    pair = Pair().open(1)
    pair.client.receive(delivery() + header(5))
    empty = frame(3, 1, b"") * 20_000
    assert peak(lambda: pair.client.receive(empty)) < 100_000


def test_a_stream_of_one_byte_pieces_is_not_quadratic() -> None:
    """A frame that comes byte by byte is not parsed from its start each time: what is counted is memory moved."""
    pair = Pair().open(1)
    data = delivery() + header(60_000) + frame(3, 1, b"x" * 60_000)
    events = []
    for i in range(len(data)):
        events += pair.client.receive(data[i : i + 1])
    assert len(events[0][1].body) == 60_000


def test_channels_beyond_the_limit() -> None:
    pair = Pair(server={"channel_max": 3})
    with pytest.raises(ProtocolError, match="from 1 to 3"):
        pair.server.receive(frame(1, 4, spec.channel.open().pack()))


def test_nothing_is_parsed_after_an_error() -> None:
    pair = Pair().open(1)
    with pytest.raises(ProtocolError):
        pair.client.receive(b"\x99")
    with pytest.raises(ProtocolError):
        pair.client.receive(delivery() + header(0))
    assert pair.client.messages_in == 0
