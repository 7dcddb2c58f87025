"""A server that breaks TLS on purpose, built on tlslite-ng's messages: the cases, and how one is run.

What can be done to a message is that of hostile_client.py; here the messages are those of a server, and the client is
attacked. A client that is attacked has an error of TLS, says one of the alerts that the case allows, and is done: no
case may make it hang, crash, or take data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hostile_client as h
from hostile_client import Case, Change, Hostile, Outcome
from tls_peers import ca, issued
from tlslite.constants import ExtensionType, GroupName, HandshakeType
from tlslite.errors import TLSRemoteAlert
from tlslite.handshakesettings import HandshakeSettings
from tlslite.utils.keyfactory import parsePEMKey

import coro
from coro import testing

UNSUPPORTED = "unsupported_extension"
#: What a changed message may be, when it is not known what the change did to it.
ANY = h.ANY | {UNSUPPORTED}


class HostileServer(Hostile):
    """It sends each message in a record of its own, so that one can be changed."""

    def _queue_message(self, msg: Any) -> None:
        for _ in self._sendMsg(msg):
            pass

    def _queue_flush(self) -> Iterator[Any]:
        yield from ()


def attack(context: Any, case: Case) -> Outcome:
    """Run a case against a client with this context."""
    ours, theirs = coro.socketpair()
    errors: list[BaseException] = []
    finished = []

    def call() -> None:
        try:
            with context.wrap(theirs, server_hostname="localhost", handshake_timeout=None) as stream:
                stream.sendall(b"echo")
                if stream.recv_exact(4) == b"echo":
                    finished.append(True)
        except (OSError, EOFError) as e:
            errors.append(e)

    alerts: list[str] = []
    server = coro.spawn(_be_hostile, ours, case, alerts)
    client = coro.spawn(call)
    for _ in range(3):
        testing.wait_all_blocked()
        if not server.dead:
            ours.shutdown(coro.SHUT.WR)  # both wait
    testing.wait_all_blocked()
    assert client.dead, f"the client hangs: {client!r} {client.where()}"
    ours.close()
    testing.wait_all_blocked()
    assert server.dead, f"the hostile server hangs: {server.where()}"
    client.get(), server.get()
    return Outcome(bool(finished), alerts[0] if alerts else None, errors[0] if errors else None)


def _be_hostile(sock: Any, case: Case, alerts: list[str]) -> None:
    connection = HostileServer(sock, case)
    own = issued()
    settings = HandshakeSettings()
    settings.maxVersion = (3, 4) if case.version == "TLSv1.3" else (3, 3)
    settings.minVersion = (3, 3)
    settings.versions = [v for v in ((3, 4), (3, 3)) if v <= settings.maxVersion]
    settings.keyShares = ["x25519", "secp256r1"]
    settings.eccCurves = ["x25519", "secp256r1", "secp384r1"]
    settings.keyExchangeNames = ["ecdhe_ecdsa", "ecdhe_rsa"]
    settings.ticketKeys = [bytearray(32)]
    settings.certificate_compression_send = settings.certificate_compression_receive = []
    try:
        connection.handshakeServer(
            certChain=h.chain(own.chain_pem),
            privateKey=parsePEMKey(own.key_pem.decode(), private=True),
            settings=settings,
        )
        connection.closed = False
        if case.message == "after":
            connection.done = True
            connection.put(case.change(connection, None, b""))
        connection.write(connection.read(4, 4))
        connection.close()
    except TLSRemoteAlert as e:
        alerts.append(h.AlertDescription.toStr(e.description))
        return
    except Exception:
        pass  # its own handshake went wrong, as it should; what does the client say?
    h.drain(connection, alerts)


# -- the cases


def _generic(version: str, name: str, kind: int) -> Iterator[Case]:
    """What is done to every message of the handshake."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-{name}-{what}", version, name, change, frozenset(alerts), harmless)

    hello, finished = name == "ServerHello", name == "Finished"
    broken = ANY if hello or name == "Certificate" else h.MALFORMED | {h.DECRYPT, h.BAD_MAC, h.UNEXPECTED}
    early = {h.UNEXPECTED, h.DECODE, h.BAD_MAC, h.DECRYPT}
    # the one has nothing to cut off, the other is two bytes long
    for count in {"ServerHelloDone": (), "EncryptedExtensions": (1, 2)}.get(name, (1, 2, 5, 16)):
        yield case(f"cut-{count}", h.cut(count), broken)
    for count in {"ServerHelloDone": (), "EncryptedExtensions": (0, 1)}.get(name, (0, 1, 3)):
        yield case(f"cut-to-{count}", h.cut_to(count), broken)
    for more in (b"\0", b"\xff" * 7, b"\0" * 300):
        yield case(f"longer-{len(more)}", h.longer(more), broken)
    yield case("type-99", h.other_kind(99), {h.UNEXPECTED, h.DECODE})
    # A HelloRequest, which OpenSSL passes over and waits for what it expects, until the stream ends.
    yield case("type-0", h.other_kind(0), {h.UNEXPECTED, h.DECODE, h.SILENT}, True)
    yield case("type-client-hello", h.other_kind(HandshakeType.client_hello), {h.UNEXPECTED})
    yield case("as-data", h.as_record(h.DATA), early | {h.OVERFLOW})
    yield case("as-alert", h.as_record(h.ALERT), set())
    waits = hello or finished or name == "ServerHelloDone"
    yield case("missing", h.missing, set() if waits else early)
    yield case("twice", h.twice, early | {h.ILLEGAL, h.SILENT})
    if not finished:
        yield case("later", h.later, set() if waits else early)
    yield case("length-too-large", h.false_length(2**24 - 1), {h.ILLEGAL, h.DECODE, h.OVERFLOW, h.UNEXPECTED})
    yield case("length-of-one", h.false_length(1), broken | {h.UNEXPECTED} | ({h.SILENT} if waits else set()))
    yield case("one-byte-records", h.in_pieces(1), set(), harmless=True)
    yield case("three-byte-records", h.in_pieces(3), set(), harmless=True)
    yield case("data-inside", h.half_then((h.DATA, b"x")), early)
    yield case("fatal-alert-before", h.after_first([(h.ALERT, b"\2\x28")]), set())
    yield case("fatal-alert-inside", h.half_then((h.ALERT, b"\2\x28")), set())
    yield case("end-before", h.after_first([(h.ALERT, b"\1\0")]), set())
    yield case("cut-alert-before", h.after_first([(h.ALERT, b"\2")]), early, version == "TLSv1.2")
    yield case("empty-record-before", h.after_first([(h.HANDSHAKE, b"")]), early, harmless=True)
    for seed in range(6):
        yield case(f"flipped-{seed}", h.flipped(seed), ANY | {h.SILENT}, harmless=hello)


def _hellos(version: str) -> Iterator[Case]:
    """What is done to the server's hello."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-hello-{what}", version, "ServerHello", change, frozenset(alerts), harmless)

    e = ExtensionType
    wrong = {h.ILLEGAL, h.DECODE, UNSUPPORTED, h.FAILURE}
    yield case("cipher-not-offered", h.with_field("cipher_suite", 0xC009), wrong)
    yield case("cipher-null", h.with_field("cipher_suite", 0), wrong)
    yield case(
        "cipher-of-the-other-version", h.with_field("cipher_suite", 0x1301 if version == "TLSv1.2" else 0xC02B), wrong
    )
    yield case("compression", h.with_field("compression_method", 1), wrong)
    yield case("session-id-too-long", h.with_field("session_id", bytearray(33)), wrong)
    # OpenSSL overlooks what it does not know, and what has no meaning any more
    yield case("unknown-extension", h.with_extension(0xFA00, b""), wrong, True)
    yield case("protocol-not-offered", h.with_extension(e.alpn, b"\0\3\2h2"), wrong)
    yield case("heartbeat", h.with_extension(e.heartbeat, b"\1"), wrong, True)
    yield case("version-ssl3", h.with_field("server_version", (3, 0)), {h.VERSION, h.ILLEGAL})
    yield case("version-tls10", h.with_field("server_version", (3, 1)), {h.VERSION, h.ILLEGAL}, version == "TLSv1.3")
    if version == "TLSv1.2":
        for last in (0, 1):
            random = bytearray(24) + b"DOWNGRD" + bytes([last])
            yield case(f"downgrade-{last}", h.with_field("random", random), {h.ILLEGAL})
        yield case(
            "renegotiation-info", h.with_extension(e.renegotiation_info, b"\3abc"), {h.FAILURE, h.ILLEGAL, h.DECODE}
        )
        yield case("ems-not-empty", h.with_extension(e.extended_master_secret, b"x"), wrong, True)
        yield case("ticket-not-empty", h.with_extension(e.session_ticket, b"x"), wrong, True)
        yield case("points-empty", h.with_extension(e.ec_point_formats, b"\0"), wrong, True)
        return
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")  # RFC 8446, 4.1.3
    x25519, p384 = GroupName.x25519, GroupName.secp384r1

    def ask_again(group: int, *, times: int = 1, cookie: bytes = b"") -> Change:
        """HelloRetryRequest."""

        def change(server: Hostile, msg: Any, data: bytes) -> list[h.Piece]:
            msg.random = bytearray(retry)
            h.with_extension(e.key_share, group.to_bytes(2, "big"))(server, msg, data)
            if cookie:
                h.with_extension(e.cookie, cookie)(server, msg, data)
            return [(h.HANDSHAKE, bytes(msg.write()))] * times

        return change

    yield case("session-id-not-repeated", h.with_field("session_id", bytearray(32)), {h.ILLEGAL})
    yield case("no-share", h.without_extension(e.key_share), {h.MISSING, h.ILLEGAL, h.FAILURE, h.DECODE})
    yield case("no-version", h.without_extension(e.supported_versions), ANY)
    for number in (0x0303, 0x0305, 0x7F1C):
        yield case(
            f"version-{number:x}",
            h.with_extension(e.supported_versions, number.to_bytes(2, "big")),
            {h.ILLEGAL, h.VERSION},
        )
    yield case("version-cut", h.with_extension(e.supported_versions, b"\3"), h.MALFORMED)
    plain = {
        "short": h.share(x25519, bytes(31))[2:],
        "long": h.share(x25519, bytes(33))[2:],
        "zero": h.share(x25519, bytes(32))[2:],
        "cut": h.share(x25519, bytes(32))[2:-3],
        "empty": b"",
        "of-no-group": h.share(0xFAFA, bytes(32))[2:],
        "not-offered": h.share(p384, b"\4" + bytes(96))[2:],
        "no-point": h.share(GroupName.secp256r1, b"\4" + bytes(64))[2:],
    }
    for what, body in plain.items():
        yield case(f"share-{what}", h.with_extension(e.key_share, body), wrong | {"internal_error", h.MISSING})
    yield case("pre-shared-key-not-offered", h.with_extension(e.pre_shared_key, b"\0\0"), wrong)
    yield case("supported-groups", h.with_extension(e.supported_groups, b"\0\2\0\x1d"), wrong)
    yield case("asks-again-for-nothing", ask_again(x25519), {h.ILLEGAL})
    yield case("asks-again-for-no-group", ask_again(0xFAFA), {h.ILLEGAL})
    yield case("asks-again-twice", ask_again(p384, times=2), {h.UNEXPECTED, h.ILLEGAL})
    yield case("cookie-empty", ask_again(p384, cookie=b"\0\0"), h.MALFORMED | {h.UNEXPECTED})
    yield case("cookie-cut", ask_again(p384, cookie=b"\0\x20abc"), h.MALFORMED | {h.UNEXPECTED})


def _encrypted() -> Iterator[Case]:
    """EncryptedExtensions and CertificateVerify of TLS 1.3."""
    version = "TLSv1.3"

    def case(what: str, name: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-{name}-{what}", version, name, change, frozenset(alerts), harmless)

    e, name = ExtensionType, "EncryptedExtensions"
    wrong = {h.ILLEGAL, h.DECODE, UNSUPPORTED}
    for what, kind, body in (
        ("share", e.key_share, h.share(GroupName.x25519, bytes(32))[2:]),
        ("version", e.supported_versions, b"\3\4"),
        ("unknown", 0xFA00, b""),
        ("protocol-not-offered", e.alpn, b"\0\3\2h2"),
        ("early-data", e.early_data, b""),
        ("status", e.status_request, b""),
        ("pre-shared-key", e.pre_shared_key, b"\0\0"),
    ):
        yield case(what, name, h.with_extension(kind, body), wrong, what == "unknown")
    yield case("name-not-empty", name, h.with_extension(e.server_name, b"x"), wrong)
    yield case("groups-odd", name, h.with_extension(e.supported_groups, b"\0\3\0\x1d\0"), wrong, True)
    sha1, rsa, unknown = b"\2\3", b"\4\1", b"\xfa\xfa"
    for what, scheme in (("sha1", sha1), ("pkcs1", rsa), ("unknown", unknown)):
        yield case(
            f"signed-with-{what}",
            "CertificateVerify",
            lambda c, m, d, scheme=scheme: [(h.HANDSHAKE, h.message(15, scheme + d[6:]))],
            {h.ILLEGAL, h.DECRYPT, h.FAILURE, "internal_error"},
        )


def _certificates(version: str) -> Iterator[Case]:
    """Chains that are none."""

    def case(what: str, body: bytes, alerts: set[str]) -> Case:
        change = h.pieces((h.HANDSHAKE, h.message(11, body)))
        return Case(f"{version}-Certificate-{what}", version, "Certificate", change, frozenset(alerts))

    new = version == "TLSv1.3"

    def chain(*them: bytes) -> bytes:
        body = b"".join(len(one).to_bytes(3, "big") + one + (b"\0\0" if new else b"") for one in them)
        return (b"\0" if new else b"") + len(body).to_bytes(3, "big") + body

    bad = {"bad_certificate", h.DECODE, h.ILLEGAL, "certificate_unknown", "unknown_ca", h.FAILURE, h.UNEXPECTED}
    yield case("none", chain(), bad)
    yield case("of-no-bytes", chain(b""), bad)
    yield case("no-der", chain(b"this is no certificate"), bad)
    yield case("der-of-something-else", chain(b"\x30\x03\x02\x01\x01"), bad)
    yield case("cut", chain(issued().der[:-20]), bad)
    yield case("only-the-authority", chain(ca().der), bad)
    yield case("many", chain(*[issued().der] * 60), bad | {h.OVERFLOW})
    if new:
        yield case("context", b"\1x" + chain(issued().der)[1:], bad)


def _afters(version: str) -> Iterator[Case]:
    """What is sent when the handshake is done."""

    def case(what: str, change: Change, alerts: set[str], harmless: bool = False) -> Case:
        return Case(f"{version}-after-{what}", version, "after", change, frozenset(alerts), harmless)

    new = version == "TLSv1.3"
    short = {h.BAD_MAC, h.DECODE, h.UNEXPECTED, h.OVERFLOW} | (set() if new else {"internal_error"})
    hand = h.HANDSHAKE
    yield case("damaged-record", h.damaged_record, {h.BAD_MAC})
    yield case("short-record", h.pieces((None, b"\x17\3\3\0\5hello")), short)
    yield case("plain-alert", h.pieces((None, b"\x15\3\3\0\2\2\x28")), short)
    yield case("plain-end", h.pieces((None, b"\x15\3\3\0\2\1\0")), short)
    yield case("record-too-large", h.pieces((None, b"\x17\3\3\x48\x01" + bytes(18433))), {h.OVERFLOW})
    yield case("plaintext-too-large", h.pieces((h.DATA, bytes(16385))), {h.OVERFLOW})
    yield case("unknown-kind", h.pieces((99, b"x")), {h.UNEXPECTED})
    yield case("fatal-alert", h.pieces((h.ALERT, b"\2\x50")), set())
    yield case("empty-alert", h.pieces((h.ALERT, b"")), {h.UNEXPECTED, h.DECODE})
    yield case("server-hello", h.pieces((hand, h.message(2, bytes(40)))), {h.UNEXPECTED, "no_renegotiation"})
    yield case("client-hello", h.pieces((hand, h.message(1, bytes(60)))), {h.UNEXPECTED})
    yield case("finished-again", h.pieces((hand, h.message(20, bytes(32)))), {h.UNEXPECTED})
    yield case("unknown-message", h.pieces((hand, h.message(77, b"abc"))), {h.UNEXPECTED})
    yield case("hello-request", h.pieces((hand, h.message(0, b""))), {h.UNEXPECTED, "no_renegotiation"}, not new)
    yield case(
        "huge-message", h.pieces((hand, h.message(4, bytes(200), 2**24 - 1))), {h.UNEXPECTED, h.ILLEGAL, h.DECODE}
    )
    if new:
        ticket = bytes(8) + b"\0" + h.u16(b"ticket") + b"\0\0"
        yield case("ticket", h.pieces((hand, h.message(4, ticket))), set(), harmless=True)
        yield case("ticket-empty", h.pieces((hand, h.message(4, b""))), {h.DECODE})
        yield case("ticket-cut", h.pieces((hand, h.message(4, ticket[:-3]))), {h.DECODE})
        yield case("ticket-long", h.pieces((hand, h.message(4, ticket + b"x"))), {h.DECODE})
        yield case("ticket-of-no-bytes", h.pieces((hand, h.message(4, bytes(13)))), {h.DECODE, h.ILLEGAL}, True)
        yield case("key-update", h.pieces((hand, h.message(24, b"\2"))), {h.ILLEGAL, h.DECODE})
        yield case("key-update-empty", h.pieces((hand, h.message(24, b""))), {h.DECODE, h.ILLEGAL})
        yield case("key-update-and-more", h.pieces((hand, h.message(24, b"\0") * 2)), {h.UNEXPECTED})
        request = b"\0" + h.u16(h.u16(b"") + b"")
        yield case("certificate-request", h.pieces((hand, h.message(13, request))), {h.UNEXPECTED, h.DECODE, h.MISSING})
        yield case("end-of-early-data", h.pieces((hand, h.message(5, b""))), {h.UNEXPECTED})


def all_cases() -> list[Case]:
    found: list[Case] = []
    kinds = {
        "TLSv1.3": ("server_hello", "encrypted_extensions", "certificate", "certificate_verify", "finished"),
        "TLSv1.2": ("server_hello", "certificate", "server_key_exchange", "server_hello_done", "finished"),
    }
    for version, names in kinds.items():
        for name in names:
            found += _generic(version, name.title().replace("_", ""), getattr(HandshakeType, name))
        found += _hellos(version)
        found += _certificates(version)
        found += _afters(version)
    return [*found, *_encrypted()]
