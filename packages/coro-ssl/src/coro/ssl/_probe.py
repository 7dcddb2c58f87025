"""What a TLS server offers: the work of ``python -m coro.ssl probe``.

Each question is a connection of its own, because a server answers one hello at a time: does it speak TLS 1.3, 1.2;
which cipher does it choose of those that are left when the ones it has chosen before are not offered any more; which
key exchange; which protocol; does it resume. The certificate is looked at without trusting it first, then with the
checks of an ordinary client. Old versions are asked for with a hello of ours, since OpenSSL does not send one any more.

Up to ten connections are made at the same time.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import coro
import coro.tls
from coro.ssl._tlslite import der
from coro.ssl._tlslite.certificate import Certificate
from coro.ssl._tlslite.der import Malformed

__all__ = ["address", "probe", "text"]

_VERSIONS = {"TLSv1.3": ssl.TLSVersion.TLSv1_3, "TLSv1.2": ssl.TLSVersion.TLSv1_2}
#: Versions that nobody should offer any more (RFC 8996, RFC 7568), by their number in a hello.
OLD_VERSIONS = {"TLSv1.1": 2, "TLSv1.0": 1, "SSLv3": 0}
#: Connections at once: more look like an attack to some servers.
AT_ONCE = 10
#: Days before the end at which a certificate should be renewed.
SOON = 14
#: Ciphers that are asked for one after the other; a server has some ten.
CIPHERS_MOST = 60
GROUPS = ("X25519", "prime256v1", "secp384r1", "secp521r1")

Connect = Callable[[], Any]


def address(text: str) -> tuple[str, int]:
    """``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``. ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, port = text, "443"
    elif not colon:
        host, port = text, "443"
    elif ":" in host and not (host.startswith("[") and host.endswith("]")):
        host, port = text, "443"  # an IPv6 address without port
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"expected HOST:PORT with a port from 1 to 65535, not {text!r}")
    host = host.strip("[]")
    if not host:
        raise ValueError(f"expected HOST:PORT, not {text!r}")
    return host, int(port)


def probe(
    host: str,
    port: int,
    *,
    name: str | None = None,
    ca: str | None = None,
    protocols: Sequence[str] = (),
    starttls: str | None = None,
    timeout: float = 10.0,
    tell: Callable[[str], object] = lambda what: None,
) -> dict[str, Any]:
    """Ask everything; in a thread of the loop. OSError or coro.NameError when the server cannot be reached, ValueError
    for a CA file that is none."""
    name = name or host

    connect = partial(_connected, host, port, starttls, timeout)

    tell("certificate")
    found: dict[str, Any] = {"host": host, "port": port, "name": name}
    found["certificates"], found["alpn"], failure = _first(connect, name, protocols, timeout)
    found["trusted"], found["why_not"] = (False, failure) if failure else _trusted(connect, name, ca, timeout)
    found["versions"] = {}
    found["ciphers"] = {}
    questions: list[tuple[str, Callable[[], Any]]] = []
    for version in _VERSIONS:
        questions.append((version, partial(_ciphers, connect, name, version, timeout)))
    for version, number in OLD_VERSIONS.items():
        questions.append((version, partial(_speaks_old, connect, name, number, timeout)))
    for group in GROUPS:
        questions.append((group, partial(_speaks, connect, name, timeout, group=group)))
    questions.append(("resumption", partial(_resumes, connect, name, timeout)))
    done = 0

    def ask(question: tuple[str, Callable[[], Any]]) -> Any:
        nonlocal done
        answer = question[1]()
        done += 1
        tell(f"{done} of {len(questions)} questions")
        return answer

    answers = dict(zip((q[0] for q in questions), coro.parallel_map(ask, questions, limit=AT_ONCE), strict=True))
    for version in _VERSIONS:
        found["versions"][version] = bool(answers[version])
        if answers[version]:
            found["ciphers"][version] = answers[version]
    for version in OLD_VERSIONS:
        found["versions"][version] = answers[version]
    found["groups"] = [group for group in GROUPS if answers[group]]
    found["resumption"] = answers["resumption"]
    found["warnings"] = _warnings(found)
    return found


# -- questions


def _connected(host: str, port: int, starttls: str | None, timeout: float) -> Any:
    """A connection on which TLS can begin. OSError or coro.NameError when there is none."""
    limit = coro.timeout(timeout)
    try:
        with limit:
            sock = coro.connect((host, port))
            try:
                if starttls is not None:
                    _STARTTLS[starttls](sock)
            except BaseException:
                sock.close()
                raise
            return sock
    except coro.TimeoutError:
        if not limit.expired:
            raise
        what = f"the {starttls} server did not begin TLS" if starttls else "the server took no connection"
        raise TimeoutError(f"{what} within {timeout:g} seconds") from None
    except EOFError as e:
        raise ConnectionError(f"the server closed the connection before TLS could begin, as {starttls} does it") from e


def _context(**options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = options.get("lowest", ssl.TLSVersion.TLSv1_2)
    context.maximum_version = options.get("highest", ssl.TLSVersion.TLSv1_3)
    if options.get("group"):
        context.set_ecdh_curve(options["group"])
    return context


def _wrap(connect: Connect, context: ssl.SSLContext, name: str, timeout: float, session: Any = None) -> Any:
    return coro.tls.context(context).wrap(  # type: ignore[call-arg]
        connect(), server_hostname=name, session=session, handshake_timeout=timeout
    )


def _first(
    connect: Connect, name: str, protocols: Sequence[str], timeout: float
) -> tuple[list[dict[str, Any]], str | None, str | None]:
    """The certificates, the protocol agreed on, and what is wrong if there is no connection at all. OSError when the
    server cannot be reached."""
    context = _context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    try:
        with _wrap(connect, context, name, timeout) as stream:
            return [_described(one) for one in stream.peer_chain()], stream.selected_alpn_protocol(), None
    except coro.tls.TLSError as e:
        return [], None, str(e)


def _trusted(connect: Connect, name: str, ca: str | None, timeout: float) -> tuple[bool, str | None]:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _wrap(connect, context, name, timeout).close()
    except coro.tls.CertificateError as e:
        return False, e.verify_message
    except OSError as e:
        return False, str(e)
    return True, None


def _speaks(connect: Connect, name: str, timeout: float, **options: Any) -> str | None:
    """The cipher of a connection with these options, None if there is none."""
    try:
        context = _context(**options)
        if options.get("ciphers"):
            context.set_ciphers(options["ciphers"])
        with _wrap(connect, context, name, timeout) as stream:
            return str(stream.cipher()[0])
    except OSError:
        return None


def _ciphers(connect: Connect, name: str, version: str, timeout: float) -> list[str]:
    """The ciphers that the server takes, in the order in which it chooses them. Of TLS 1.3 Python cannot offer fewer
    than all, so that is the one that it prefers."""
    limits = {"lowest": _VERSIONS[version], "highest": _VERSIONS[version]}
    if version == "TLSv1.3":
        one = _speaks(connect, name, timeout, **limits)
        return [one] if one else []
    context = _context(**limits)
    context.set_ciphers("ALL:!aNULL:!eNULL:@SECLEVEL=0")
    left = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    taken: list[str] = []
    while left and len(taken) < CIPHERS_MOST:
        chosen = _speaks(connect, name, timeout, ciphers=":".join(left) + ":@SECLEVEL=0", **limits)
        if chosen is None or chosen not in left:
            break
        taken.append(chosen)
        left.remove(chosen)
    return taken


def _resumes(connect: Connect, name: str, timeout: float) -> bool:
    """Whether a second connection is shortened by the first. Asked with TLS 1.2, where tickets come in time."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = _context(lowest=version, highest=version)
        try:
            with _wrap(connect, context, name, timeout) as stream:
                if version == ssl.TLSVersion.TLSv1_3:
                    # The tickets come behind the handshake, with whatever the server says; most say nothing.
                    with coro.move_on_after(min(timeout, 1.0)):
                        stream.recv(1)
                session = stream.session
            if session is None:
                continue
            with _wrap(connect, context, name, timeout, session) as stream:
                if stream.session_reused:
                    return True
        except OSError:
            continue
    return False


def _speaks_old(connect: Connect, name: str, minor: int, timeout: float) -> bool:
    """Whether the server answers a hello of this version with a hello of the same."""
    try:
        sock = connect()
    except OSError:
        return False
    with sock:
        try:
            with coro.timeout(timeout):
                sock.send(_hello(name, minor))
                header = sock.recv_exact(11)
        except (OSError, EOFError, coro.TimeoutError):
            return False
    return bool(header[0] == 22 and header[5] == 2 and header[9:11] == bytes([3, minor]))


def _hello(name: str, minor: int) -> bytes:
    """A hello of an old version (RFC 5246, 7.4.1.2), with the ciphers that such servers have."""
    ciphers = bytes.fromhex("c014c013c00ac009003900330035002f000a00050004")
    extensions = b""
    if minor:
        raw = name.encode("idna") if not name.isascii() else name.encode()
        if not raw.replace(b".", b"").isdigit() and b":" not in raw:
            extensions += b"\0\0" + _sized(_sized(b"\0" + _sized(raw)))
        extensions += b"\0\x0a" + _sized(_sized(bytes.fromhex("001700180019"))) + b"\0\x0b" + _sized(b"\1\0")
        extensions = _sized(extensions)
    body = bytes([3, minor]) + secrets.token_bytes(32) + b"\0" + _sized(ciphers) + b"\1\0" + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return bytes([22, 3, min(minor, 1)]) + _sized(message)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


# -- beginning TLS in the middle of a protocol


def _line(sock: Any) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        data += sock.recv_exact(1)
        if len(data) > 4096:
            raise OSError("the server's line has more than 4096 bytes")
    return data


def _expect(line: bytes, good: bytes) -> None:
    if not line.startswith(good):
        raise OSError(f"the server refused STARTTLS: {line[:200].decode(errors='replace').strip()!r}")


def _smtp(sock: Any) -> None:
    """RFC 3207."""
    for command, good in ((None, b"220"), (b"EHLO coro.test\r\n", b"250"), (b"STARTTLS\r\n", b"220")):
        if command is not None:
            sock.send(command)
        line = _line(sock)
        while line[3:4] == b"-":
            line = _line(sock)
        _expect(line, good)


def _imap(sock: Any) -> None:
    """RFC 9051, 6.2.1."""
    _expect(_line(sock), b"* OK")
    sock.send(b"a STARTTLS\r\n")
    line = _line(sock)
    while line.startswith(b"*"):
        line = _line(sock)
    _expect(line, b"a OK")


def _pop3(sock: Any) -> None:
    """RFC 2595, 4."""
    _expect(_line(sock), b"+OK")
    sock.send(b"STLS\r\n")
    _expect(_line(sock), b"+OK")


def _ldap(sock: Any) -> None:
    """RFC 4511, 4.14: an extended request, whose answer must have the result code 0."""
    name = b"1.3.6.1.4.1.1466.20037"
    request = b"\x77" + bytes([len(name) + 2]) + b"\x80" + bytes([len(name)]) + name
    sock.send(b"\x30" + bytes([len(request) + 3]) + b"\2\1\1" + request)
    head = sock.recv_exact(2)
    if head[0] != 0x30 or head[1] >= 0x80:
        raise OSError("the server's answer to STARTTLS is no LDAP message")
    body = sock.recv_exact(head[1])
    try:
        parts = list(der.parts(body))
        code = der.one(parts[1].content)[0].content
    except (Malformed, IndexError) as e:
        raise OSError("the server's answer to STARTTLS is no LDAP message") from e
    if code != b"\0":
        raise OSError(f"the server refused STARTTLS with the LDAP result {code[0]}")


def _postgres(sock: Any) -> None:
    """PostgreSQL's SSLRequest."""
    sock.send(b"\0\0\0\x08\x04\xd2\x16\x2f")
    answer = sock.recv_exact(1)
    if answer != b"S":
        raise OSError(f"the server refused TLS: {answer!r}")


_STARTTLS = {"smtp": _smtp, "imap": _imap, "pop3": _pop3, "ldap": _ldap, "postgres": _postgres}


# -- answers


def _described(data: bytes) -> dict[str, Any]:
    import hashlib

    fingerprint = hashlib.sha256(data).hexdigest()
    try:
        cert = Certificate(data)
        about = cert.as_dict()
    except Malformed as e:
        return {"error": f"the certificate is malformed: {e}", "sha256": fingerprint}
    try:
        known = cert.x509
        size = getattr(known.publicKey, "curve_name", None) or len(known.publicKey)
        key = f"{known.certAlg} {size}"
    except (Malformed, TypeError):
        key = "of a kind that is not known"
    return {
        "subject": _flat(about["subject"]),
        "issuer": _flat(about["issuer"]),
        "hosts": [value for _, value in about.get("subjectAltName", ())],
        "serial": about["serialNumber"],
        "not_before": about["notBefore"],
        "not_after": about["notAfter"],
        "days_left": int((cert.not_after - time.time()) // 86400),
        "key": key,
        "signature_hash": cert.signature_hash(),
        "sha256": fingerprint,
    }


def _flat(name: Any) -> str:
    return ", ".join(f"{kind}={value}" for rdn in name for kind, value in rdn)


def _warnings(found: dict[str, Any]) -> list[str]:
    out = []
    for version in OLD_VERSIONS:
        if found["versions"][version]:
            out.append(f"{version} is offered, and broken: turn it off (RFC 8996)")
    if not any(found["versions"].values()):
        out.append("no TLS is offered at this port; some protocols begin without it, see --starttls")
    elif not found["versions"]["TLSv1.3"]:
        out.append("TLS 1.3 is not offered")
    weak = [c for c in found["ciphers"].get("TLSv1.2", []) if "ECDHE" not in c and "DHE" not in c]
    if weak:
        out.append(f"ciphers without forward secrecy: {', '.join(weak)}")
    old = [c for c in found["ciphers"].get("TLSv1.2", []) if not ("GCM" in c or "CHACHA20" in c or "CCM" in c)]
    if old:
        out.append(f"ciphers without authenticated encryption: {', '.join(old)}")
    for cert in found["certificates"][:1]:
        left = cert.get("days_left")
        if left is not None and left < SOON:
            out.append(f"the certificate ends in {left} days" if left >= 0 else "the certificate has expired")
    return out


def text(found: dict[str, Any]) -> str:
    """The answers for people."""
    yes = {True: "yes", False: "no"}
    where = f"{found['host']}:{found['port']}"
    lines = [where if found["name"] == found["host"] else f"{where} as {found['name']}"]
    lines.append("  versions     " + ", ".join(f"{v} {yes[bool(s)]}" for v, s in found["versions"].items()))
    for version, ciphers in found["ciphers"].items():
        more = " (preferred)" if version == "TLSv1.3" else ""
        lines.append(f"  {version:<12} " + ", ".join(ciphers) + more)
    lines.append("  key exchange " + (", ".join(found["groups"]) or "-"))
    lines.append(f"  ALPN         {found['alpn'] or '-'}")
    lines.append(f"  resumption   {yes[found['resumption']]}")
    lines.append(f"  trusted      {'yes' if found['trusted'] else 'no: ' + str(found['why_not'])}")
    for i, cert in enumerate(found["certificates"]):
        if "error" in cert:
            lines.append(f"  certificate {i}: {cert['error']}")
            continue
        lines.append(f"  certificate {i}: {cert['subject']}")
        lines.append(f"    issuer     {cert['issuer']}")
        if cert["hosts"]:
            lines.append(f"    hosts      {', '.join(cert['hosts'])}")
        lines.append(f"    valid      {cert['not_before']} to {cert['not_after']} ({cert['days_left']} days left)")
        lines.append(f"    key        {cert['key']}, signed with {cert['signature_hash'] or 'its own hash'}")
        lines.append(f"    SHA-256    {cert['sha256']}")
    lines += [f"  warning: {warning}" for warning in found["warnings"]]
    return "\n".join(lines)
