"""A client that breaks TLS on purpose, built on tlslite-ng's messages: the cases, and how one is run.

`Hostile` does an honest handshake up to the message that the case is about. There it sends what the case makes of it:
other bytes, the message twice, not at all, later, in other pieces, in a record of another kind. A case says which
alerts the server may answer with (RFC 5246, 7.2; RFC 8446, 6.2: where the RFCs leave a choice, or the two stacks read
them differently, several), or that the message is harmless and the connection must work.

Nothing waits for time: when client and server both wait for the other, the client ends its side.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tls_peers import issued
from tlslite.constants import AlertDescription, ContentType, ExtensionType, GroupName, HandshakeType
from tlslite.errors import TLSRemoteAlert
from tlslite.extensions import TLSExtension
from tlslite.handshakesettings import HandshakeSettings
from tlslite.messages import Message
from tlslite.tlsconnection import TLSConnection
from tlslite.utils.keyfactory import parsePEMKey
from tlslite.x509certchain import X509CertChain

import coro
from coro import testing
from coro.tls import TLSError

HANDSHAKE, CCS, ALERT, DATA = 22, 20, 21, 23

#: One piece that goes out: the kind of record and its content, or kind None and raw bytes.
Piece = tuple[int | None, bytes]
Change = Callable[["Hostile", Any, bytes], list[Piece]]


class Case(NamedTuple):
    name: str
    version: str
    message: str  # the class of the message that is changed, or "after" for what follows the handshake
    change: Change
    alerts: frozenset[str]  # what the server may say; empty: it says nothing, because it waits for more
    harmless: bool = False  # the handshake succeeds and data comes back
    with_certificate: bool = False


class Outcome(NamedTuple):
    finished: bool  # the server's handshake, and an echo after it
    alert: str | None
    error: BaseException | None  # what the server's side got


class Hostile(TLSConnection):
    """A client that changes one message."""

    def __init__(self, sock: Any, case: Case) -> None:
        super().__init__(sock)
        self.case = case
        self.done = False
        self.held: list[Piece] = []
        self.closeSocket = False

    def _sendMsg(self, msg: Any, randomizeFirstBlock: bool = True, update_hashes: bool = True) -> Iterator[Any]:
        if self.done or type(msg).__name__ != self.case.message:
            yield from super()._sendMsg(msg, randomizeFirstBlock, update_hashes)
            if self.held:
                held, self.held = self.held, []
                self.put(held)
            return
        self.done = True
        self.put(self.case.change(self, msg, bytes(msg.write())))

    def _shutdown(self, resumable: bool) -> None:
        """Keep the keys: what the server says is still to be read."""

    def put(self, pieces: list[Piece]) -> None:
        for kind, data in pieces:
            if kind is None:
                self.sock.send(bytearray(data))
                continue
            if kind == HANDSHAKE:
                self._handshake_hash.update(bytearray(data))
            for _ in self._sendMsgThroughSocket(Message(kind, bytearray(data))):
                pass


def attack(context: Any, case: Case) -> Outcome:
    """Run a case against a server with this context."""
    ours, theirs = coro.socketpair()
    errors: list[BaseException] = []
    finished = []

    def serve() -> None:
        try:
            with context.wrap(theirs, server_side=True, handshake_timeout=None) as stream:
                while data := stream.recv(1000):
                    stream.sendall(data)
                    finished.append(True)
        except (OSError, EOFError) as e:
            errors.append(e)

    alerts: list[str] = []
    server = coro.spawn(serve)
    client = coro.spawn(_be_hostile, ours, case, alerts)
    for _ in range(3):
        testing.wait_all_blocked()
        if not client.dead:
            ours.shutdown(coro.SHUT.WR)  # both wait
    testing.wait_all_blocked()
    assert server.dead, f"the server hangs: {server!r} {server.where()}"
    ours.close()
    testing.wait_all_blocked()
    assert client.dead, f"the hostile client hangs: {client.where()}"
    server.get(), client.get()
    return Outcome(bool(finished), alerts[0] if alerts else None, errors[0] if errors else None)


def _be_hostile(sock: Any, case: Case, alerts: list[str]) -> None:
    connection = Hostile(sock, case)
    own = issued("client") if case.with_certificate else None
    settings = HandshakeSettings()
    settings.maxVersion = (3, 4) if case.version == "TLSv1.3" else (3, 3)
    settings.minVersion = (3, 3)
    settings.versions = [v for v in ((3, 4), (3, 3)) if v <= settings.maxVersion]
    settings.keyShares = ["x25519", "secp256r1"]
    settings.eccCurves = ["x25519", "secp256r1", "secp384r1"]
    settings.keyExchangeNames = ["ecdhe_ecdsa", "ecdhe_rsa"]
    settings.certificate_compression_send = settings.certificate_compression_receive = []
    try:
        connection.handshakeClientCert(
            certChain=chain(own.chain_pem) if own else None,
            privateKey=parsePEMKey(own.key_pem.decode(), private=True) if own else None,
            settings=settings,
            serverName="localhost",
        )
        connection.closed = False
        if case.message == "after":
            connection.done = True
            connection.put(case.change(connection, None, b""))
        connection.write(b"echo")
        if connection.read(4, 4) == b"echo":
            connection.close()
            return
    except TLSRemoteAlert as e:
        alerts.append(AlertDescription.toStr(e.description))
        return
    except Exception:
        pass  # its own handshake went wrong, as it should; what does the server say?
    drain(connection, alerts)


def chain(pem: bytes) -> X509CertChain:
    chain = X509CertChain()
    chain.parsePemList(pem.decode())
    return chain


def drain(connection: Hostile, alerts: list[str]) -> None:
    """Read records until an alert comes or the stream ends. An alert may be in the clear, or under the newer keys."""
    layer = connection._recordLayer
    try:
        while True:
            for result in layer._recordSocket.recv():
                if result not in (0, 1):
                    break
            header, data = result
            for candidate in _readings(layer, header, data):
                if candidate is not None:
                    alerts.append(AlertDescription.toStr(candidate))
                    return
    except Exception:
        return


def _readings(layer: Any, header: Any, data: bytearray) -> Iterator[int | None]:
    if header.type == ContentType.alert and len(data) == 2:
        yield data[1]
        return
    import copy

    for state in (layer._readState, layer._pendingReadState):
        if state is None or not state.encContext:
            continue
        trial = copy.copy(layer)
        trial._readState = copy.copy(state)
        try:
            plain = trial._decryptAndUnseal(header, bytearray(data))
        except Exception:
            continue
        if layer.version > (3, 3):
            plain = plain.rstrip(b"\0")
            if plain and plain[-1] == ContentType.alert and len(plain) == 3:
                yield plain[1]
        elif header.type == ContentType.alert and len(plain) == 2:
            yield plain[1]
        layer._readState = trial._readState
        return
    yield None


# -- what can be done to any message


def message(kind: int, body: bytes, length: int | None = None) -> bytes:
    """A message of the handshake; ``length`` is a false one."""
    return bytes([kind]) + (len(body) if length is None else length).to_bytes(3, "big") + body


def cut(count: int) -> Change:
    """The last bytes are missing, and the length says so."""

    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        body = data[4:]
        return [(HANDSHAKE, message(data[0], body[: max(0, len(body) - count)]))]

    return change


def cut_to(count: int) -> Change:
    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        return [(HANDSHAKE, message(data[0], data[4 : 4 + count]))]

    return change


def longer(more: bytes) -> Change:
    """Bytes behind the end, and the length has them."""
    return lambda client, msg, data: [(HANDSHAKE, message(data[0], data[4:] + more))]


def other_kind(kind: int) -> Change:
    return lambda client, msg, data: [(HANDSHAKE, bytes([kind]) + data[1:])]


def as_record(kind: int) -> Change:
    return lambda client, msg, data: [(kind, data)]


def twice(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
    return [(msg.contentType, data), (msg.contentType, data)]


def missing(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
    return []


def later(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
    """Behind the next message."""
    client.held = [(msg.contentType, data)]
    return []


def after_first(pieces: list[Piece]) -> Change:
    """Something else before the message."""
    return lambda client, msg, data: [*pieces, (msg.contentType, data)]


def in_pieces(size: int) -> Change:
    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        return [(HANDSHAKE, data[i : i + size]) for i in range(0, len(data), size)]

    return change


def half_then(piece: Piece) -> Change:
    """Something else in the middle of the message."""

    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        half = len(data) // 2
        return [(HANDSHAKE, data[:half]), piece, (HANDSHAKE, data[half:])]

    return change


def false_length(length: int) -> Change:
    return lambda client, msg, data: [(HANDSHAKE, message(data[0], data[4:], length))]


def flipped(seed: int) -> Change:
    """Three random bits of the body are changed."""

    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        rng = random.Random(seed)
        changed = bytearray(data)
        for _ in range(3):
            changed[rng.randrange(4, len(data)) if len(data) > 4 else 0] ^= 1 << rng.randrange(8)
        return [(HANDSHAKE, bytes(changed))]

    return change


def pieces(*them: Piece) -> Change:
    return lambda client, msg, data: list(them)


def damaged_record(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
    """A record as it should be, with its last byte changed."""
    sent: list[bytes] = []
    send, client.sock.send = client.sock.send, lambda b: sent.append(bytes(b)) or len(b)
    try:
        client.put([(DATA, b"some data")])
    finally:
        client.sock.send = send
    raw = b"".join(sent)
    return [(None, raw[:-1] + bytes([raw[-1] ^ 1]))]


# -- what can be done to the first message


def with_extension(kind: int, body: bytes, *, first: bool = False, replace: bool = True) -> Change:
    """An extension of the hello is this one."""

    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        extensions = [e for e in msg.extensions if not (replace and e.extType == kind)]
        extensions.insert(0 if first else len(extensions), TLSExtension(extType=kind).create(kind, bytearray(body)))
        msg.extensions = extensions
        return [(HANDSHAKE, bytes(msg.write()))]

    return change


def without_extension(kind: int) -> Change:
    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        msg.extensions = [e for e in msg.extensions if e.extType != kind]
        return [(HANDSHAKE, bytes(msg.write()))]

    return change


def with_field(name: str, value: Any) -> Change:
    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        setattr(msg, name, value)
        return [(HANDSHAKE, bytes(msg.write()))]

    return change


def with_raw_extensions(make: Callable[[bytes], bytes]) -> Change:
    """The block of extensions, its length in front, is what ``make`` makes of it."""

    def change(client: Hostile, msg: Any, data: bytes) -> list[Piece]:
        body = data[4:]
        at = 34
        at += 1 + body[at]
        at += 2 + int.from_bytes(body[at : at + 2], "big")
        at += 1 + body[at]
        return [(HANDSHAKE, message(data[0], body[:at] + make(body[at:])))]

    return change


def u16(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def share(group: int, data: bytes) -> bytes:
    return u16(group.to_bytes(2, "big") + u16(data))


# -- the cases

DECODE, ILLEGAL, UNEXPECTED = "decode_error", "illegal_parameter", "unexpected_message"
DECRYPT, BAD_MAC, FAILURE = "decrypt_error", "bad_record_mac", "handshake_failure"
OVERFLOW, VERSION, MISSING = "record_overflow", "protocol_version", "missing_extension"
#: What a changed message may be, when it is not known what the change did to it.
ANY = {DECODE, ILLEGAL, UNEXPECTED, DECRYPT, BAD_MAC, FAILURE, OVERFLOW, VERSION, MISSING}
ANY |= {"unrecognized_name", "no_application_protocol", "bad_certificate", "unsupported_certificate", "unknown_ca"}
ANY |= {"insufficient_security", "inappropriate_fallback", "certificate_required"}
ANY |= {"certificate_unknown", "certificate_expired"}
#: It may just end the stream: OpenSSL does not answer what is no TLS at all.
SILENT = "silent"
MALFORMED = {DECODE, ILLEGAL}

_ALERT_WARNING = bytes([1, 90])  # user_canceled
_HELLO = HandshakeType.client_hello


def _generic(version: str, name: str, kind: int, *, certificate: bool = False) -> Iterator[Case]:
    """What is done to every message of the handshake."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-{name}-{what}", version, name, change, frozenset(alerts), harmless, certificate)

    hello, finished = name == "ClientHello", name == "Finished"
    broken = MALFORMED | {DECRYPT} | ({MISSING, FAILURE, VERSION, UNEXPECTED} if hello else set())
    if name == "ClientKeyExchange":
        broken |= {FAILURE, DECRYPT, BAD_MAC, UNEXPECTED}
    if name in ("Certificate", "CertificateVerify"):
        broken |= {UNEXPECTED, "bad_certificate", "certificate_required", FAILURE, BAD_MAC}
    if name == "Certificate":
        bomb = zlib.compress(bytes(2**22), 9)
        compressed = b"\0\1" + (2**22).to_bytes(3, "big") + len(bomb).to_bytes(3, "big") + bomb
        # newer OpenSSL knows compressed certificates, and has a limit for them
        yield case("compressed-4-MiB", pieces((HANDSHAKE, message(25, compressed))), {UNEXPECTED, "bad_certificate"})
    for count in (1, 2, 5, 16):
        yield case(f"cut-{count}", cut(count), broken)
    for count in (0, 1, 3):
        yield case(f"cut-to-{count}", cut_to(count), broken)
    for more in (b"\0", b"\xff" * 7, b"\0" * 300):
        # behind the first hello, RFC 8446 wants decode_error too
        yield case(f"longer-{len(more)}", longer(more), broken)
    yield case("type-99", other_kind(99), {UNEXPECTED, DECODE} | ({ILLEGAL} if not hello else set()))
    yield case("type-0", other_kind(0), {UNEXPECTED, DECODE})
    yield case("type-server-hello", other_kind(HandshakeType.server_hello), {UNEXPECTED})
    yield case("as-data", as_record(DATA), {UNEXPECTED, BAD_MAC, DECODE} | ({OVERFLOW} if hello else set()))
    # begins with the bytes 1 and 0, which are close_notify
    yield case("as-alert", as_record(ALERT), {UNEXPECTED, DECODE, ILLEGAL, FAILURE, BAD_MAC, "close_notify", SILENT})
    waits = hello or (finished and version == "TLSv1.2")
    yield case("missing", missing, set() if waits else {UNEXPECTED, BAD_MAC, DECRYPT, DECODE})
    # with two hellos the client has other keys than the server, and cannot read its alert
    yield case("twice", twice, {UNEXPECTED, BAD_MAC, DECRYPT, ILLEGAL, DECODE} | ({SILENT} if hello else set()))
    if not finished and name != "ClientHello":
        yield case("later", later, {UNEXPECTED, BAD_MAC, DECRYPT, DECODE})
    yield case("length-too-large", false_length(2**24 - 1), {ILLEGAL, DECODE, OVERFLOW, UNEXPECTED})
    yield case("length-too-small", false_length(1), broken | {UNEXPECTED})
    yield case("one-byte-records", in_pieces(1), set(), harmless=True)
    yield case("three-byte-records", in_pieces(3), set(), harmless=True)
    yield case("data-inside", half_then((DATA, b"x")), {UNEXPECTED, BAD_MAC, DECODE})
    # TLS 1.3 ignores it (RFC 8446, 5); an empty record must not be sent (5.1), and OpenSSL ignores it
    yield case("ccs-inside", half_then((CCS, b"\1")), {UNEXPECTED, DECODE, BAD_MAC}, version == "TLSv1.3")
    yield case("fatal-alert-before", after_first([(ALERT, b"\2\x28")]), set())
    yield case("fatal-alert-inside", half_then((ALERT, b"\2\x28")), set())
    yield case("end-before", after_first([(ALERT, b"\1\0")]), set())
    yield case("end-inside", half_then((ALERT, b"\1\0")), set())
    # before TLS 1.3 the other half may follow
    yield case("cut-alert-before", after_first([(ALERT, b"\2")]), {DECODE, UNEXPECTED, BAD_MAC}, version == "TLSv1.2")
    yield case("many-warnings-before", after_first([(ALERT, b"\1\x5a")] * 20), set())
    # user_canceled: the client gives up, for which it also says close_notify (RFC 8446, 6.1)
    yield case("warning-before", after_first([(ALERT, b"\1\x5a")]), {"close_notify", SILENT, UNEXPECTED}, harmless=True)
    yield case("empty-record-before", after_first([(HANDSHAKE, b"")]), {UNEXPECTED, DECODE, BAD_MAC}, harmless=True)
    for seed in range(4):
        # it may have hit the random bytes or the name: then the client finds that the keys differ, or nobody does
        yield case(f"flipped-{seed}", flipped(seed), ANY | ({SILENT} if hello else set()), harmless=hello)


def _hellos(version: str) -> Iterator[Case]:
    """What is done to the first message."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-hello-{what}", version, "ClientHello", change, frozenset(alerts), harmless)

    e = ExtensionType
    yield case("no-ciphers", with_field("cipher_suites", []), {DECODE, ILLEGAL, FAILURE})
    yield case(
        "unknown-ciphers", with_field("cipher_suites", [0xFAFA, 0x0A0A]), {FAILURE, ILLEGAL, "insufficient_security"}
    )
    yield case("export-ciphers", with_field("cipher_suites", [3, 6, 8]), {FAILURE, "insufficient_security"})
    yield case("null-ciphers", with_field("cipher_suites", [1, 2, 0x3B]), {FAILURE, "insufficient_security"})
    yield case(
        "anonymous-ciphers", with_field("cipher_suites", [0x18, 0x34, 0xC018]), {FAILURE, "insufficient_security"}
    )
    yield case("no-compression", with_field("compression_methods", []), {DECODE, ILLEGAL})
    yield case("deflate-only", with_field("compression_methods", [1]), {ILLEGAL, DECODE, FAILURE})
    yield case("long-session-id", with_field("session_id", bytearray(33)), {DECODE, ILLEGAL})
    yield case("extension-twice", with_extension(e.server_name, b"\0\4\0\0\1x", replace=False), MALFORMED)
    yield case(
        "unknown-twice",
        lambda c, m, d: with_extension(0xFA00, b"", replace=False)(
            c, m, bytes(with_extension(0xFA00, b"", replace=False)(c, m, d)[0][1])
        ),
        MALFORMED,
        True,
    )
    yield case("unknown-extension", with_extension(0xFA00, b"anything"), set(), harmless=True)
    yield case("large-unknown-extension", with_extension(0xFA00, bytes(10000)), set(), harmless=True)
    yield case("extensions-cut", with_raw_extensions(lambda x: x[:-3]), MALFORMED)
    yield case("extensions-length-short", with_raw_extensions(lambda x: b"\0\1" + x[2:]), MALFORMED)
    yield case("extensions-length-long", with_raw_extensions(lambda x: b"\xff\xff" + x[2:]), MALFORMED)
    yield case(
        "extension-length-long",
        with_raw_extensions(lambda x: x[:4] + b"\xff\xff" + x[6:]),
        MALFORMED | {"unrecognized_name"},
    )
    yield case("half-an-extension", with_raw_extensions(lambda x: u16(x[2:] + b"\0")), MALFORMED)
    yield case(
        "name-empty", with_extension(e.server_name, b"\0\3\0\0\0"), MALFORMED | {"unrecognized_name", SILENT}, True
    )
    yield case("name-list-empty", with_extension(e.server_name, b"\0\0"), MALFORMED | {"unrecognized_name"})
    yield case("name-with-zero", with_extension(e.server_name, b"\0\6\0\0\3a\0b"), MALFORMED | {"unrecognized_name"})
    yield case("name-cut", with_extension(e.server_name, b"\0\x0a\0\0\x20abc"), MALFORMED | {"unrecognized_name"})
    yield case("groups-empty", with_extension(e.supported_groups, b"\0\0"), MALFORMED | {FAILURE, MISSING})
    yield case("groups-odd", with_extension(e.supported_groups, b"\0\3\0\x1d\0"), MALFORMED)
    yield case(
        "groups-unknown",
        with_extension(e.supported_groups, b"\0\2\xfa\xfa"),
        MALFORMED | {FAILURE, "insufficient_security"},
    )
    yield case("signatures-empty", with_extension(e.signature_algorithms, b"\0\0"), MALFORMED | {FAILURE})
    yield case("signatures-odd", with_extension(e.signature_algorithms, b"\0\3\4\3\4"), MALFORMED)
    yield case(
        "signatures-unknown",
        with_extension(e.signature_algorithms, b"\0\2\xfa\xfa"),
        {FAILURE, ILLEGAL, "internal_error"},
    )
    yield case("alpn-empty", with_extension(e.alpn, b"\0\0"), MALFORMED)
    yield case("alpn-empty-name", with_extension(e.alpn, b"\0\1\0"), MALFORMED)
    yield case("alpn-cut", with_extension(e.alpn, b"\0\5\x09http"), MALFORMED)
    yield case(
        "renegotiation-info",
        with_extension(e.renegotiation_info, b"\3abc"),
        {FAILURE, ILLEGAL, DECODE},
        version == "TLSv1.3",
    )
    yield case("heartbeat", with_extension(e.heartbeat, b"\1"), set(), harmless=True)
    yield case(
        # OpenSSL does not look at it in time, and waits for a client that has given up.
        "points-compressed-only",
        with_extension(e.ec_point_formats, b"\1\1"),
        {ILLEGAL, FAILURE, DECODE, SILENT},
        version == "TLSv1.3",
    )
    yield case("points-empty", with_extension(e.ec_point_formats, b"\0"), MALFORMED, version == "TLSv1.3")
    yield case(
        "record-version-ssl2",
        lambda c, m, d: [(None, b"\x80\x2e\x01\0\2\0\x15\0\0\0\x10" + bytes(37))],
        ANY | {"internal_error"},
    )
    yield case(
        "record-too-large", lambda c, m, d: [(None, b"\x16\3\1\x48\x01" + bytes(18433))], {OVERFLOW, UNEXPECTED, DECODE}
    )
    yield case("record-unknown-kind", lambda c, m, d: [(None, b"\x63\3\1\0\1\0")], ANY)
    yield case(
        "plain-http", lambda c, m, d: [(None, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")], {UNEXPECTED, VERSION, SILENT}
    )
    yield case("ssh", lambda c, m, d: [(None, b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")], {UNEXPECTED, VERSION, SILENT})
    yield case("alert-first", lambda c, m, d: [(ALERT, b"\2\x28")], set())
    yield case("alert-short", lambda c, m, d: [(ALERT, b"\2")], {DECODE, UNEXPECTED, SILENT})
    yield case(
        "finished-first", lambda c, m, d: [(HANDSHAKE, message(HandshakeType.finished, bytes(32)))], {UNEXPECTED}
    )
    yield case("ccs-first", lambda c, m, d: [(CCS, b"\1")], {UNEXPECTED})
    yield case("key-update-first", lambda c, m, d: [(HANDSHAKE, message(24, b"\0"))], {UNEXPECTED})
    if version == "TLSv1.2":
        yield case("ssl3", with_field("client_version", (3, 0)), {VERSION, FAILURE})
        yield case("tls10", with_field("client_version", (3, 1)), {VERSION})
        yield case("tls11", with_field("client_version", (3, 2)), {VERSION})
        yield case("no-signatures", without_extension(e.signature_algorithms), {FAILURE, "internal_error", ILLEGAL})
        yield case("ems-not-empty", with_extension(e.extended_master_secret, b"x"), MALFORMED)
        yield case("ticket-garbage", with_extension(e.session_ticket, b"\xa5" * 200), set(), harmless=True)
        return
    x25519 = GroupName.x25519
    yield case(
        "share-list-empty",
        with_extension(e.key_share, b"\0\0"),
        {ILLEGAL, DECODE, UNEXPECTED, DECRYPT, FAILURE, MISSING, SILENT},
    )  # it may ask for another hello, too
    yield case("share-cut", with_extension(e.key_share, share(x25519, bytes(31))[:-3]), MALFORMED)
    yield case("share-short", with_extension(e.key_share, share(x25519, bytes(31))), MALFORMED)
    yield case("share-long", with_extension(e.key_share, share(x25519, bytes(33))), MALFORMED)
    yield case(
        "share-zero",
        with_extension(e.key_share, share(x25519, bytes(32))),
        {ILLEGAL, DECODE, FAILURE, "internal_error"},
    )
    yield case(
        "share-no-point",
        with_extension(e.key_share, share(GroupName.secp256r1, b"\4" + bytes(64))),
        {ILLEGAL, DECODE, "internal_error"},
    )
    yield case(
        "share-compressed",
        with_extension(e.key_share, share(GroupName.secp256r1, b"\2" + bytes(32))),
        {ILLEGAL, DECODE, "internal_error"},
    )
    yield case(
        "share-of-no-group",
        with_extension(e.key_share, share(0xFAFA, bytes(32))),
        {ILLEGAL, UNEXPECTED, DECODE, FAILURE},
    )
    yield case("no-share", without_extension(e.key_share), {MISSING, FAILURE})
    yield case("no-groups", without_extension(e.supported_groups), {MISSING, FAILURE, ILLEGAL})
    yield case("no-signatures", without_extension(e.signature_algorithms), {MISSING, FAILURE})
    yield case("versions-empty", with_extension(e.supported_versions, b"\0"), MALFORMED | {VERSION})
    yield case("versions-odd", with_extension(e.supported_versions, b"\3\3\4\3"), MALFORMED | {VERSION})
    yield case("versions-old", with_extension(e.supported_versions, b"\4\3\1\3\2"), {VERSION})
    yield case("versions-unknown", with_extension(e.supported_versions, b"\2\x7f\x1c"), {VERSION})
    yield case(
        "psk-without-modes",
        lambda c, m, d: (
            setattr(m, "extensions", [x for x in m.extensions if x.extType != e.psk_key_exchange_modes]),
            with_extension(e.pre_shared_key, u16(u16(b"ticket") + bytes(4)) + u16(b"\x20" + bytes(32)))(c, m, d),
        )[1],
        {MISSING, ILLEGAL, FAILURE},
    )
    yield case(
        "psk-not-last",
        with_extension(e.pre_shared_key, u16(u16(b"ticket") + bytes(4)) + u16(b"\x20" + bytes(32)), first=True),
        {ILLEGAL},
    )
    yield case(
        "psk-unknown",
        with_extension(e.pre_shared_key, u16(u16(b"t" * 100) + bytes(4)) + u16(b"\x20" + bytes(32))),
        set(),
        harmless=True,
    )
    yield case("psk-no-identity", with_extension(e.pre_shared_key, b"\0\0" + u16(b"\x20" + bytes(32))), MALFORMED, True)
    yield case(
        "psk-no-binder", with_extension(e.pre_shared_key, u16(u16(b"ticket") + bytes(4)) + b"\0\0"), MALFORMED, True
    )
    yield case("psk-cut", with_extension(e.pre_shared_key, u16(u16(b"ticket") + bytes(4))), MALFORMED, True)
    yield case("psk-modes-empty", with_extension(e.psk_key_exchange_modes, b"\0"), MALFORMED)
    yield case("session-id-other-length", with_field("session_id", bytearray(7)), set(), harmless=True)


def _afters(version: str) -> Iterator[Case]:
    """What is sent when the handshake is done."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-after-{what}", version, "after", change, frozenset(alerts), harmless)

    new = version == "TLSv1.3"
    # OpenSSL says internal_error of a TLS 1.2 record that is too short for a tag
    short = {BAD_MAC, DECODE, UNEXPECTED, OVERFLOW} | (set() if new else {"internal_error"})
    yield case("data", pieces((DATA, b"")), set(), harmless=True)
    yield case("damaged-record", damaged_record, {BAD_MAC})
    yield case("short-record", pieces((None, b"\x17\3\3\0\5hello")), short)
    yield case("plain-alert", pieces((None, b"\x15\3\3\0\2\2\x28")), short)
    yield case("plain-end", pieces((None, b"\x15\3\3\0\2\1\0")), short)
    yield case("record-too-large", pieces((None, b"\x17\3\3\x48\x01" + bytes(18433))), {OVERFLOW})
    yield case("plaintext-too-large", pieces((DATA, bytes(16385))), {OVERFLOW})
    yield case("unknown-kind", pieces((99, b"x")), {UNEXPECTED})
    yield case("old-kind-ccs", pieces((CCS, b"\1")), {UNEXPECTED, ILLEGAL, DECODE})
    yield case(
        "hello-again",
        pieces((HANDSHAKE, message(_HELLO, bytes(60)))),
        {UNEXPECTED, "no_renegotiation", DECODE},
        not new,
    )
    yield case(
        "finished-again",
        pieces((HANDSHAKE, message(HandshakeType.finished, bytes(32)))),
        {UNEXPECTED, "no_renegotiation"},
    )
    yield case(
        "certificate",
        pieces((HANDSHAKE, message(HandshakeType.certificate, bytes(4)))),
        {UNEXPECTED, "no_renegotiation", DECODE},
    )
    yield case(
        "server-hello",
        pieces((HANDSHAKE, message(HandshakeType.server_hello, bytes(40)))),
        {UNEXPECTED, "no_renegotiation"},
    )
    yield case("empty-handshake", pieces((HANDSHAKE, b"")), {UNEXPECTED, DECODE}, not new)
    yield case("empty-alert", pieces((ALERT, b"")), {UNEXPECTED, DECODE})
    # before TLS 1.3 the other half may follow
    yield case("half-an-alert", pieces((ALERT, b"\2")), {DECODE, UNEXPECTED}, not new)
    yield case("unknown-message", pieces((HANDSHAKE, message(77, b"abc"))), {UNEXPECTED, "no_renegotiation"})
    yield case("fatal-alert", pieces((ALERT, b"\2\x50")), set())
    yield case(
        "huge-message",
        pieces((HANDSHAKE, message(_HELLO, bytes(200), 2**24 - 1))),
        {UNEXPECTED, ILLEGAL, DECODE, "no_renegotiation"},
        not new,
    )
    if new:
        yield case("key-update", pieces((HANDSHAKE, message(24, b"\2"))), {ILLEGAL, DECODE})
        yield case("key-update-empty", pieces((HANDSHAKE, message(24, b""))), {DECODE, ILLEGAL})
        yield case("key-update-long", pieces((HANDSHAKE, message(24, b"\0\0"))), {DECODE, ILLEGAL})
        yield case("key-update-and-more", pieces((HANDSHAKE, message(24, b"\0") * 2)), {UNEXPECTED})
        yield case("ticket-from-client", pieces((HANDSHAKE, message(4, bytes(20)))), {UNEXPECTED})
        yield case("end-of-early-data", pieces((HANDSHAKE, message(5, b""))), {UNEXPECTED})
        yield case("warnings", pieces(*[(ALERT, b"\1\x5a")] * 3), {UNEXPECTED, DECODE}, harmless=True)


def all_cases() -> list[Case]:
    found: list[Case] = []
    found += _generic("TLSv1.3", "ClientHello", _HELLO)
    found += _generic("TLSv1.3", "Finished", HandshakeType.finished)
    found += _generic("TLSv1.3", "Certificate", HandshakeType.certificate, certificate=True)
    found += _generic("TLSv1.3", "CertificateVerify", HandshakeType.certificate_verify, certificate=True)
    found += _generic("TLSv1.2", "ClientHello", _HELLO)
    found += _generic("TLSv1.2", "ClientKeyExchange", HandshakeType.client_key_exchange)
    found += _generic("TLSv1.2", "Finished", HandshakeType.finished)
    found += _generic("TLSv1.2", "Certificate", HandshakeType.certificate, certificate=True)
    found += _generic("TLSv1.2", "CertificateVerify", HandshakeType.certificate_verify, certificate=True)
    for version in ("TLSv1.3", "TLSv1.2"):
        found += _hellos(version)
        found += _afters(version)
    return found


def problem(case: Case, outcome: Outcome) -> str | None:
    """What is wrong with how the server took it; None if nothing is."""
    if case.harmless and outcome.finished:
        return None
    if outcome.finished:
        return "the server went on as if nothing were wrong"
    if outcome.error is None:
        return "the server saw a clean end"
    if not isinstance(outcome.error, TLSError):
        return f"the server's error is not one of TLS: {outcome.error!r}"
    if case.harmless and not case.alerts:
        return f"the server refused what is allowed: {outcome.error!r}, alert {outcome.alert}"
    if case.alerts and outcome.alert not in case.alerts and not (outcome.alert is None and SILENT in case.alerts):
        return f"alert {outcome.alert}, not one of {sorted(case.alerts)}; {outcome.error!r}"
    return None
