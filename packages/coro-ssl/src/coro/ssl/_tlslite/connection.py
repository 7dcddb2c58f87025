"""tlslite-ng's connection, changed where a server on the open internet needs it.

`tlslite.TLSConnection` keeps its handshake in generators that yield 0 when they want to read. Here it sits on buffers
in memory, `Wire`, so nothing in it ever waits, and the generators are simply resumed after more bytes came. What is
changed by overriding its methods (all of them private to tlslite-ng, hence the pinned version):

* certificates of the peer are checked as they arrive, before anything is sent that depends on them;
* the certificate is chosen by the name that the client asks for, which may have underscores;
* a message of the handshake may not be longer than `MESSAGE_MOST`: tlslite-ng gathers up to 16 MiB;
* compressed certificates are neither offered nor taken (RFC 8879): tlslite-ng unpacks them without limit;
* an exception that is not one of TLS's, which a malformed message can cause in its parsers, becomes decode_error;
* close_notify ends one direction only (RFC 8446, 6.1);
* the first Finished is kept for `tls-unique` (RFC 5929, 3.1);
* a client looks at where a server puts its extensions, and whether it has asked for them; both sides look whether a
  signature is of a kind that the certificate's key makes;
* between two messages the generators yield 1, so that other threads can run: each piece takes 1 to 15 ms of CPU.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

from tlslite.constants import (
    TLS_1_3_HRR,
    AlertDescription,
    AlertLevel,
    CipherSuite,
    ContentType,
    ExtensionType,
    HandshakeType,
)
from tlslite.errors import BaseTLSException, TLSHandshakeFailure
from tlslite.messages import (
    Alert,
    ApplicationData,
    CertificateRequest,
    CertificateVerify,
    ClientHello,
    EncryptedExtensions,
    Finished,
    KeyUpdate,
    NewSessionTicket,
    ServerHello,
)
from tlslite.tlsconnection import TLSConnection

__all__ = ["Connection", "HostName", "PeerClosed", "Wire"]

#: Bytes of one message of the handshake; OpenSSL allows a client 100 KiB for its chain of certificates.
MESSAGE_MOST = 100 * 1024
#: Messages without data that a peer may send after the handshake in a row: tickets, new keys, empty records.
IDLE_MOST = 64
#: Records of a handshake after which others may run: a client can put each byte into one of its own.
RECORDS_AT_ONCE = 8

_E = ExtensionType
# Where a server of TLS 1.3 answers which extension (RFC 8446, 4.2).
_IN_HELLO = {_E.key_share, _E.pre_shared_key, _E.supported_versions}
_IN_RETRY = {_E.key_share, _E.cookie, _E.supported_versions}
_IN_ENCRYPTED = {_E.server_name, _E.supported_groups, _E.alpn, _E.record_size_limit}
# The signatures that a key makes in TLS 1.3 (RFC 8446, 4.2.3).
_SCHEMES = {
    "rsa": {(8, 4), (8, 5), (8, 6)},
    "rsa-pss": {(8, 9), (8, 10), (8, 11)},
    "ecdsa": {(4, 3), (5, 3), (6, 3)},
    "Ed25519": {(8, 7)},
    "Ed448": {(8, 8)},
}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostName(str):
    """A host name whose labels may have underscores, as those of containers and of many a company's machines. For
    tlslite-ng it would be none; it looks at the labels only."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [label.replace("_", "x") for label in super().split(sep, maxsplit)]


class _AskedName(bytearray):
    """The same in a client's hello."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> HostName:
        return HostName(super().decode(encoding, errors))


class PeerClosed(Exception):
    """The peer's close_notify has come."""


class Wire:
    """Stands for the socket below tlslite-ng: two buffers."""

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.eof = False
        self.buffer_writes = False  # set by tlslite-ng; there is nothing to gain here
        self.padding_cb = None

    def send(self, data: bytes) -> int:
        self.outgoing += data
        return len(data)

    def sendall(self, data: bytes) -> None:
        self.outgoing += data

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            if self.eof:
                return b""
            raise BlockingIOError(errno.EWOULDBLOCK, "the record is not complete")
        data = bytes(self.incoming[:size])
        del self.incoming[:size]
        return data

    def flush(self) -> None:
        return None

    close = flush

    def shutdown(self, how: int) -> None:
        return None


class Connection(TLSConnection):  # type: ignore[misc]
    """A connection over a `Wire`. ``check`` gets the peer's chain of certificates (DER) and yields while it works;
    it raises what is wrong, and ``alert_for`` says which alert that is."""

    def __init__(self, wire: Wire, check: Callable[[list[bytes]], Iterator[int]] | None) -> None:
        super().__init__(wire)
        # tlslite-ng puts a buffer before its socket, which would swallow what follows the end of TLS.
        self.sock = wire
        self._recordLayer.sock = wire
        self._recordLayer._recordSocket.sock = wire
        self.closeSocket = False
        self.wire = wire
        self._records = 0
        self.check = check
        self.choose: Callable[[str | None, list[Any]], Any] | None = None
        self.protocols: list[bytearray] = []  # a server's, for ALPN
        self.asked_name: str | None = None
        self.first_finished = b""
        self.client_hello: ClientHello | None = None
        self.peer_certificates: list[bytes] = []
        self._peer_key = ""  # the kind of the key in the first
        self._asked_again = False
        self.peer_closed = False
        self.said_goodbye = False
        self.established = False
        self.used_certificate = False
        self.cert_required = False

    # -- what tlslite-ng would do otherwise

    def _shutdown(self, resumable: bool) -> None:
        """Called after an alert. The state of the record layer is left as it is, because the other direction may still
        be used; a connection that failed is not used any more anyway."""
        self.closed = True
        if not resumable and self.session:
            self.session.resumable = False

    def _sendMsg(self, msg: Any, randomizeFirstBlock: bool = True, update_hashes: bool = True) -> Iterator[Any]:
        if isinstance(msg, Finished) and not self.first_finished:
            self.first_finished = bytes(msg.verify_data)
        elif isinstance(msg, ClientHello):
            self.client_hello = msg
        yield from super()._sendMsg(msg, randomizeFirstBlock, update_hashes)
        if not self.established:
            yield 1

    def _queue_message(self, msg: Any) -> None:
        if isinstance(msg, CertificateRequest):
            # An empty list of methods, which is what tlslite-ng would say, is malformed (RFC 8879, 3).
            msg.extensions = [e for e in msg.extensions or [] if e.extType != ExtensionType.compress_certificate]
        super()._queue_message(msg)

    def _getNextRecord(self) -> Iterator[Any]:
        for result in super()._getNextRecord():
            if not isinstance(result, tuple):
                yield result
                continue
            header, parser = result
            if header.type == ContentType.alert and len(parser.bytes) == 2 and self.established:
                level, description = parser.bytes
                if description == AlertDescription.close_notify:
                    raise PeerClosed
                if description == AlertDescription.user_canceled and level == AlertLevel.warning:
                    continue  # close_notify follows (RFC 8446, 6.1)
            yield result

    def _getNextRecordFromSocket(self) -> Iterator[Any]:
        while not self.wire.incoming and not self.wire.eof:
            yield 0
        if self.wire.incoming:
            yield from self._look_at_kind(self.wire.incoming[0])
        for result in super()._getNextRecordFromSocket():
            if isinstance(result, tuple):
                header, parser = result
                if header.type == ContentType.handshake:
                    yield from self._look_at_lengths(parser.bytes)
                elif header.type == ContentType.alert and self.version > (3, 3) and len(parser.bytes) != 2:
                    # RFC 8446, 5.1: alerts are not cut into pieces
                    yield from self._sendError(AlertDescription.decode_error, "an alert has two bytes")
                self._records += 1
                if self._records % RECORDS_AT_ONCE == 0 and not self.established:
                    yield 1
            yield result

    def _look_at_kind(self, kind: int) -> Iterator[Any]:
        """The first byte of a record. tlslite-ng would take it for the older form of SSL 2 if it is unknown, and with
        TLS 1.3 takes alerts in the clear as long as none in cipher has come, which anybody on the way can send."""
        known = (ContentType.change_cipher_spec, ContentType.alert, ContentType.handshake, ContentType.application_data)
        if kind not in known:
            yield from self._sendError(AlertDescription.unexpected_message, f"a record of the unknown kind {kind}")
        if self.established and self.version > (3, 3) and kind != ContentType.application_data:
            yield from self._sendError(AlertDescription.unexpected_message, "a record that is not encrypted")

    def _look_at_lengths(self, data: bytes) -> Iterator[Any]:
        """The lengths that messages announce, before they are gathered. ``data`` goes behind what is gathered, which
        begins with a message."""
        gathered = self._defragmenter.buffers[ContentType.handshake]
        at = 0  # in both together
        while at + 4 <= len(gathered) + len(data):
            head = bytes(gathered[at : at + 4])
            begin = max(0, at - len(gathered))
            head += bytes(data[begin : begin + 4 - len(head)])
            length = int.from_bytes(head[1:], "big")
            if length > MESSAGE_MOST:
                yield from self._sendError(
                    AlertDescription.illegal_parameter, f"a message of {length} bytes, more than {MESSAGE_MOST}"
                )
            at += 4 + length

    def _getMsg(self, expectedType: Any, secondaryType: Any = None, constructorType: Any = None) -> Iterator[Any]:
        if isinstance(secondaryType, tuple):
            secondaryType = tuple(t for t in secondaryType if t != HandshakeType.compressed_certificate)
        try:
            for result in super()._getMsg(expectedType, secondaryType, constructorType):
                if result in (0, 1):
                    yield result
                    continue
                if not self.established:
                    yield 1
                    yield from self._look_at(result)
                yield result
        except (BaseTLSException, PeerClosed, OSError):
            raise
        except Exception as e:
            if type(e).__module__.startswith("coro."):
                raise
            yield from self._sendError(AlertDescription.decode_error, f"{type(e).__name__}: {e}")

    def _look_at(self, message: Any) -> Iterator[Any]:
        if isinstance(message, Finished) and not self.first_finished:
            self.first_finished = bytes(message.verify_data)
        elif isinstance(message, ClientHello):
            yield from self._look_at_hello(message)
        elif isinstance(message, ServerHello):
            yield from self._look_at_server_hello(message)
        elif isinstance(message, EncryptedExtensions):
            yield from self._look_at_answers(message.extensions, _IN_ENCRYPTED)
        elif isinstance(message, CertificateVerify):
            if self.version > (3, 3) and tuple(message.signatureAlgorithm) not in _SCHEMES.get(self._peer_key, ()):
                yield from self._sendError(
                    AlertDescription.illegal_parameter, f"a signature that no key of kind {self._peer_key!r} makes"
                )
        elif getattr(message, "handshakeType", None) == HandshakeType.certificate and hasattr(message, "cert_chain"):
            yield from self._look_at_certificate(message)

    def _look_at_hello(self, hello: ClientHello) -> Iterator[Any]:
        first = self.client_hello is None
        self.client_hello = hello
        seen: set[int] = set()
        for extension in hello.extensions or ():
            if extension.extType in seen:
                # RFC 8446, 4.2
                yield from self._sendError(AlertDescription.illegal_parameter, "an extension comes twice")
            seen.add(extension.extType)
        # Heartbeats are not supported, though tlslite-ng takes them up when a session is resumed. And without a
        # protocol in common the connection has none, as with OpenSSL; tlslite-ng refuses it in TLS 1.2 only.
        dropped = {ExtensionType.heartbeat}
        offered = hello.getExtension(ExtensionType.alpn)
        if (
            offered
            and offered.protocol_names
            and all(offered.protocol_names)
            and not any(name in self.protocols for name in offered.protocol_names)
        ):
            dropped.add(ExtensionType.alpn)
        try:
            name = bytes(hello.server_name or b"").decode("ascii")
        except UnicodeDecodeError:
            name = ""  # tlslite-ng refuses it
        if _is_address(name):
            # Not allowed (RFC 6066, 3), but many clients send it; taken for none, as OpenSSL does.
            dropped.add(ExtensionType.server_name)
            name = ""
        elif "_" in name:
            asked = hello.getExtension(ExtensionType.server_name)
            asked.serverNames = [one._replace(name=_AskedName(one.name)) for one in asked.serverNames]
        if first:
            self.asked_name = name or None
        if hello.extensions:
            if hello.extensions[-1].extType == ExtensionType.pre_shared_key:
                # The client has signed what it sent, the dropped extensions among it (RFC 8446, 4.2.11.2).
                signed = hello.psk_truncate()
                hello.psk_truncate = lambda: signed
            hello.extensions = [e for e in hello.extensions if e.extType not in dropped]

    def _look_at_server_hello(self, hello: ServerHello) -> Iterator[Any]:
        if len(hello.session_id) > 32:
            yield from self._sendError(AlertDescription.decode_error, "a session's number of more than 32 bytes")
        again = hello.random == TLS_1_3_HRR
        if again and self._asked_again:
            # RFC 8446, 4.1.4
            yield from self._sendError(AlertDescription.unexpected_message, "a second HelloRetryRequest")
        self._asked_again = again
        new = hello.getExtension(ExtensionType.supported_versions) is not None
        yield from self._look_at_answers(hello.extensions, _IN_RETRY if again else _IN_HELLO if new else None)
        renegotiation = hello.getExtension(ExtensionType.renegotiation_info)
        if renegotiation is not None and renegotiation.renegotiated_connection:
            # RFC 5746, 3.4
            yield from self._sendError(AlertDescription.handshake_failure, "there was no handshake before this one")

    def _look_at_answers(self, extensions: Any, places: set[int] | None) -> Iterator[Any]:
        """Of a server, to the extensions that were sent. ``places``: those that may stand here; None for all."""
        assert self.client_hello is not None
        asked = {extension.extType for extension in self.client_hello.extensions or ()}
        if CipherSuite.TLS_EMPTY_RENEGOTIATION_INFO_SCSV in self.client_hello.cipher_suites:
            asked.add(ExtensionType.renegotiation_info)
        if places is _IN_RETRY:
            asked.add(ExtensionType.cookie)
        seen: set[int] = set()
        for extension in extensions or ():
            kind = extension.extType
            if kind not in asked:
                yield from self._sendError(
                    AlertDescription.unsupported_extension, f"the answer to an extension, {kind}, that was not sent"
                )
            if kind in seen or (places is not None and kind not in places):
                yield from self._sendError(
                    AlertDescription.illegal_parameter, f"the extension {kind} comes twice, or in the wrong message"
                )
            seen.add(kind)

    def _look_at_certificate(self, message: Any) -> Iterator[Any]:
        chain = message.cert_chain
        self.peer_certificates = [bytes(one.bytes) for one in chain.x509List] if chain else []
        self._peer_key = chain.x509List[0].certAlg if self.peer_certificates else ""
        if not self.peer_certificates:
            if self.cert_required:
                alert = (
                    AlertDescription.certificate_required
                    if self.version > (3, 3)
                    else AlertDescription.handshake_failure
                )
                yield from self._sendError(alert, "the client sent no certificate")
            return
        yield from self.check_peer()

    def check_peer(self) -> Iterator[Any]:
        """Check the certificates that the peer has sent, now or when the session began."""
        if self.check is None:
            return
        try:
            yield from self.check(self.peer_certificates)
        except Exception as e:
            reason = getattr(e, "reason", None)
            if reason is None:
                raise
            self.wire_alert(reason.alert)
            raise

    def wire_alert(self, description: int) -> None:
        """Say a fatal alert."""
        for _ in super()._sendMsg(Alert().create(description, AlertLevel.fatal)):
            pass
        self._shutdown(False)

    def _server_select_certificate(
        self, settings: Any, client_hello: Any, cipher_suites: Any, cert_chain: Any, private_key: Any, version: Any
    ) -> Any:
        """The first certificate for the name that the client asked for which it can use."""
        assert self.choose is not None
        failure: Exception | None = None
        for chain, key in self.choose(self.asked_name, [(cert_chain, private_key)]):
            try:
                return super()._server_select_certificate(settings, client_hello, cipher_suites, chain, key, version)
            except Exception as e:
                failure = failure or e
        assert failure is not None
        raise failure

    def _pickServerKeyExchangeSig(
        self,
        settings: Any,
        clientHello: Any,
        certList: Any = None,
        private_key: Any = None,
        version: Any = (3, 3),
        check_alt: bool = True,
    ) -> Any:
        if version <= (3, 3) and not clientHello.getExtension(ExtensionType.signature_algorithms):
            # tlslite-ng would sign with SHA-1 then, which RFC 9155 forbids.
            raise TLSHandshakeFailure("the client takes SHA-1 signatures only")
        return super()._pickServerKeyExchangeSig(settings, clientHello, certList, private_key, version, check_alt)

    def _clientResume(
        self, session: Any, serverHello: Any, clientRandom: Any, nextProto: Any, settings: Any
    ) -> Iterator[Any]:
        """With a ticket, the server says by repeating the session's number whether it takes it (RFC 5077, 3.4);
        tlslite-ng does not look, and fails when it does not."""
        sent = self.client_hello.session_id if self.client_hello is not None else b""
        if session is not None and not (sent and serverHello.session_id == sent):
            session = None
        yield from super()._clientResume(session, serverHello, clientRandom, nextProto, settings)

    # -- after the handshake

    def incoming_data(self) -> Iterator[Any]:
        """Plain text as it comes: yields 0 when it wants to read, and bytes. Ends by an exception only."""
        types: Any = (ContentType.application_data,)
        messages: Any = None
        if self.version > (3, 3):
            types = (ContentType.application_data, ContentType.handshake)
            messages = (HandshakeType.key_update,)
            if self._client:
                messages += (HandshakeType.new_session_ticket,)
            if self._client_keypair:
                messages += (HandshakeType.certificate_request,)  # offered by tlslite-ng with a client's certificate
        idle = 0
        while True:
            result: Any = 0
            for result in self._getMsg(types, messages):
                if result in (0, 1):
                    yield result
                else:
                    break
            if isinstance(result, ApplicationData):
                data = bytes(result.write())
                if data:
                    idle = 0
                    yield data
                    continue
            elif isinstance(result, NewSessionTicket):
                import time

                result.time = time.time()
                self.tickets.append(result)
                del self.tickets[:-4]
            elif isinstance(result, KeyUpdate):
                yield from self._handle_keyupdate_request(result)
            elif isinstance(result, CertificateRequest):
                yield from self._handle_pha(result)
            else:
                yield from self._sendError(AlertDescription.unexpected_message, f"a {type(result).__name__}")
            idle += 1
            if idle > IDLE_MOST:
                yield from self._sendError(
                    AlertDescription.unexpected_message, f"more than {IDLE_MOST} messages without data"
                )

    def send_data(self, data: bytes) -> None:
        """Make records of ``data``, at most 16 KiB."""
        for _ in super()._sendMsg(ApplicationData().create(bytearray(data))):
            pass

    def say_goodbye(self) -> None:
        """Say close_notify, once."""
        if not self.said_goodbye:
            self.said_goodbye = True
            for _ in super()._sendMsg(Alert().create(AlertDescription.close_notify, AlertLevel.warning)):
                pass
