"""Is this chain of certificates to be trusted for this peer? Path validation (RFC 5280, 6) without OpenSSL.

tlslite-ng checks that the peer has the key of the certificate that it shows, and nothing about the certificate. So this
is done here: a path of signatures from the peer's certificate to one that is trusted, where every certificate is
within its time, every issuer is a CA that may issue, the path is not longer than CAs allow, the names are permitted and
not excluded, the purpose fits, no critical extension is unknown, keys and hashes are strong enough, and the name is the
one that was asked for (RFC 9525: only subjectAltName counts, a star stands for the whole left-most label).

What is stricter than OpenSSL: SHA-1 signatures and RSA keys under 2048 bits are refused in every certificate but the
trusted one. What is not done: policies (a critical policy extension is refused), OCSP, fetching missing certificates.

Work is bounded: at most `CHAIN_MOST` certificates are looked at, and `SIGNATURES_MOST` signatures checked, however the
names in them are crossed. `validate` is a generator that yields after each signature, so that other threads can run.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from coro.ssl._tlslite import der
from coro.ssl._tlslite.certificate import (
    ALT_NAME,
    AUTHORITY_KEY_ID,
    BASIC_CONSTRAINTS,
    EXTENDED_KEY_USAGE,
    KEY_USAGE,
    NAME_CONSTRAINTS,
    SUBJECT_KEY_ID,
    Certificate,
    Names,
    RevocationList,
    pem_blocks,
)
from coro.ssl._tlslite.der import Malformed

__all__ = ["Refused", "Trust", "matches", "system_bundle", "validate"]

#: Certificates of a peer that are looked at; chains have two or three.
CHAIN_MOST = 10
#: Certificates from the peer's to the trusted one.
DEPTH_MOST = 8
#: Signatures that are checked for one peer.
SIGNATURES_MOST = 24

_UNDERSTOOD = {
    ALT_NAME,
    AUTHORITY_KEY_ID,
    BASIC_CONSTRAINTS,
    EXTENDED_KEY_USAGE,
    KEY_USAGE,
    NAME_CONSTRAINTS,
    SUBJECT_KEY_ID,
}
_PURPOSES = {"server": "1.3.6.1.5.5.7.3.1", "client": "1.3.6.1.5.5.7.3.2"}

# Where systems keep the certificates they trust: Debian, Fedora, OpenSUSE, Alpine and the BSDs, macOS.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/openssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
)


class Reason(NamedTuple):
    """Why a chain is refused: OpenSSL's number for it, and the alert that tells the peer (RFC 8446, 6.2)."""

    code: int
    alert: int


MALFORMED, EXPIRED, EARLY = Reason(13, 42), Reason(10, 45), Reason(9, 42)
UNKNOWN_ISSUER, SELF_SIGNED, BAD_SIGNATURE = Reason(20, 48), Reason(18, 48), Reason(7, 42)
NOT_A_CA, TOO_LONG, WRONG_PURPOSE = Reason(24, 42), Reason(25, 42), Reason(26, 43)
UNKNOWN_CRITICAL, NOT_PERMITTED, EXCLUDED = Reason(34, 43), Reason(47, 42), Reason(48, 42)
WEAK_KEY, WRONG_HOST, WRONG_ADDRESS = Reason(66, 42), Reason(62, 42), Reason(64, 42)
REVOKED, NO_LIST, OLD_LIST = Reason(23, 44), Reason(3, 46), Reason(12, 46)


class Refused(Exception):
    """The chain is not to be trusted. ``reason`` has numbers, the text says it in words."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Trust:
    """The certificates that are trusted, and revocation lists; read once for a context."""

    def __init__(self, pem: bytes = b"", crl: bytes = b"") -> None:
        self.anchors: dict[bytes, list[Certificate]] = {}
        self.exact: set[bytes] = set()
        for label in ("CERTIFICATE", "TRUSTED CERTIFICATE"):
            for block in pem_blocks(pem, label):
                self.add(block)
        self.lists = [RevocationList(block) for block in pem_blocks(crl, "X509 CRL")]

    def add(self, data: bytes) -> None:
        """Trust one certificate more. One that cannot be read is left out: bundles of systems have such."""
        try:
            part, _ = der.one(data)  # behind it, OpenSSL's own format has what the certificate is trusted for
            cert = Certificate(part.whole)
        except Malformed:
            return
        if cert.der not in self.exact:
            self.exact.add(cert.der)
            self.anchors.setdefault(cert.subject, []).append(cert)

    def __len__(self) -> int:
        return len(self.exact)

    def subjects(self) -> list[bytes]:
        """The names of the CAs, for a server's request for a certificate."""
        return list(self.anchors)


def system_bundle() -> bytes:
    """The certificates that the system trusts: those of the file that SSL_CERT_FILE names, or of the first known place.
    Empty if there is none."""
    for path in (os.environ.get("SSL_CERT_FILE"), *_BUNDLES):
        if path and os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return b""


def matches(pattern: str, host: str) -> bool:
    """Whether a name in a certificate is that of a host (RFC 9525, 6.3). Both are ASCII; ``host`` is a DNS name."""
    pattern, host = pattern.lower().rstrip("."), host.lower().rstrip(".")
    if not pattern or not host:
        return False
    if "*" not in pattern:
        return pattern == host
    first, _, rest = pattern.partition(".")
    label, _, below = host.partition(".")
    # A star is a whole label, and the left-most one; it does not stand for a whole top-level domain.
    return first == "*" and "*" not in rest and "." in rest and bool(label) and rest == below and label[:4] != "xn--"


def validate(chain: Iterable[bytes], trust: Trust, purpose: str, hostname: str | None, now: float) -> Iterator[int]:
    """Check ``chain``, the peer's certificate first, each in DER. ``purpose`` is what the peer is: "server" or
    "client"; ``hostname`` the host name or address that a server must have, None to accept any.

    Yields 1 after each piece of work. Raises Refused.
    """
    certs: list[Certificate] = []
    try:
        for data in chain:
            if len(certs) == CHAIN_MOST:
                raise Refused(TOO_LONG, f"the peer sent more than {CHAIN_MOST} certificates")
            certs.append(Certificate(data))
        if not certs:
            raise Refused(UNKNOWN_ISSUER, "the peer sent no certificate")
        _check_own(certs[0], purpose, now)
        if hostname is not None:
            _check_host(certs[0], hostname)
        yield 1
        yield from _Search(certs, trust, purpose, now).run()
    except Malformed as e:
        raise Refused(MALFORMED, f"a certificate is malformed: {e}") from e


def _check_host(cert: Certificate, hostname: str) -> None:
    names = cert.names()
    try:
        address = ipaddress.ip_address(hostname.strip("[]"))
    except ValueError:
        if not any(matches(name, hostname) for name in names.dns):
            valid = ", ".join(names.dns) or "no host"
            raise Refused(WRONG_HOST, f"the certificate is for {valid}, not for {hostname}") from None
        return
    if address.packed not in names.addresses:
        valid = ", ".join(str(ipaddress.ip_address(raw)) for raw in names.addresses) or "no address"
        raise Refused(WRONG_ADDRESS, f"the certificate is for {valid}, not for {hostname}")


def _check_time(cert: Certificate, now: float) -> None:
    if now < cert.not_before:
        raise Refused(EARLY, f"the certificate of {cert} is not valid yet")
    if now > cert.not_after:
        raise Refused(EXPIRED, f"the certificate of {cert} has expired")


def _check_any(cert: Certificate, purpose: str, now: float) -> None:
    """What holds for every certificate of a path."""
    _check_time(cert, now)
    for name, (critical, _) in cert.extensions.items():
        if critical and name not in _UNDERSTOOD:
            raise Refused(UNKNOWN_CRITICAL, f"the certificate of {cert} has a critical extension {name}")
    usages = cert.extended_key_usage()
    if usages is not None and _PURPOSES[purpose] not in usages:
        raise Refused(WRONG_PURPOSE, f"the certificate of {cert} is not for a TLS {purpose}")


def _check_own(cert: Certificate, purpose: str, now: float) -> None:
    """The peer's own certificate."""
    _check_any(cert, purpose, now)
    usage = cert.key_usage()
    if usage is not None and 0 not in usage:
        raise Refused(WRONG_PURPOSE, f"the key of {cert} may not sign")
    weakness = cert.key_weakness()
    if weakness is not None:
        raise Refused(WEAK_KEY, f"the certificate of {cert} has {weakness}")


def _check_issuer(cert: Certificate, below: int, purpose: str, now: float, anchor: bool) -> None:
    """An issuer; ``below`` is how many CAs are between it and the peer's certificate."""
    _check_any(cert, purpose, now)
    ca, length = cert.basic_constraints()
    if not ca:
        raise Refused(NOT_A_CA, f"{cert} has issued a certificate and is no CA")
    usage = cert.key_usage()
    if usage is not None and 5 not in usage:
        raise Refused(NOT_A_CA, f"{cert} has issued a certificate and may not")
    if length is not None and below > length:
        raise Refused(TOO_LONG, f"{cert} allows {length} CAs below it, not {below}")
    if not anchor:
        weakness = cert.key_weakness()
        if weakness is not None:
            raise Refused(WEAK_KEY, f"the certificate of {cert} has {weakness}")


class _Search:
    """The search for a path: depth first, trusted certificates first."""

    def __init__(self, certs: list[Certificate], trust: Trust, purpose: str, now: float) -> None:
        self._certs, self._trust, self._purpose, self._now = certs, trust, purpose, now
        self._checked = 0
        self._refused: Refused | None = None

    def run(self) -> Iterator[int]:
        own = self._certs[0]
        if own.der in self._trust.exact:
            return
        found: list[bool] = []
        yield from self._extend([own], found)
        if found:
            return
        if self._refused is not None:
            raise self._refused
        if own.issuer == own.subject:
            raise Refused(SELF_SIGNED, f"the certificate of {own} is self-signed and not trusted")
        raise Refused(UNKNOWN_ISSUER, f"the issuer of the certificate of {self._certs[-1]} is not trusted")

    def _extend(self, path: list[Certificate], found: list[bool]) -> Iterator[int]:
        """Try all issuers of the last certificate of ``path``."""
        last = path[-1]
        wanted = last.issuer_key_id()
        trusted = self._trust.anchors.get(last.issuer, [])
        others = [c for c in self._certs[1:] if c.subject == last.issuer and all(c.der != p.der for p in path)]
        for issuer in [*trusted, *(c for c in others if c.der not in self._trust.exact)]:
            own_id = issuer.key_id()
            if wanted is not None and own_id is not None and wanted != own_id:
                continue
            anchor = issuer.der in self._trust.exact
            try:
                below = sum(c.issuer != c.subject for c in path[1:])
                _check_issuer(issuer, below, self._purpose, self._now, anchor)
                self._checked += 1
                if self._checked > SIGNATURES_MOST:
                    raise Refused(TOO_LONG, f"the peer's certificates allow more than {SIGNATURES_MOST} paths")
                if not last.is_signed_by(issuer):
                    raise Refused(BAD_SIGNATURE, f"the certificate of {last} is not signed by {issuer}, or not safely")
                yield 1
                if anchor:
                    self._check_path([*path, issuer])
                    yield from self._check_revoked(path[0], ([*path, issuer])[1])
                    found.append(True)
                    return
                if len(path) < DEPTH_MOST:
                    yield from self._extend([*path, issuer], found)
                    if found:
                        return
            except Refused as e:
                self._refused = self._refused or e
                if self._checked > SIGNATURES_MOST or e.reason is REVOKED:
                    self._refused = e
                    return

    def _check_path(self, path: list[Certificate]) -> None:
        """Name constraints: those of each CA hold for all certificates below it (RFC 5280, 6.1.4)."""
        for i, issuer in enumerate(path):
            if i == 0:
                continue
            permitted, excluded = issuer.name_constraints()
            if permitted is None and excluded is None:
                continue
            for j, cert in enumerate(path[:i]):
                if j and cert.issuer == cert.subject:
                    continue  # a CA's change of keys, which is not counted
                _check_names(cert, permitted, excluded)

    def _check_revoked(self, cert: Certificate, issuer: Certificate) -> Iterator[int]:
        """With lists at hand, the peer's certificate must be on a current one of its issuer's as not revoked."""
        if not self._trust.lists:
            return
        current = False
        for one in self._trust.lists:
            if one.issuer != cert.issuer or not one.is_signed_by(issuer):
                continue
            yield 1
            if cert.serial in one.revoked:
                raise Refused(REVOKED, f"the certificate of {cert} was revoked")
            if one.this_update <= self._now and (one.next_update is None or self._now <= one.next_update):
                current = True
        if not current:
            raise Refused(OLD_LIST, f"there is no current revocation list of the issuer of {cert}")


def _check_names(cert: Certificate, permitted: Names | None, excluded: Names | None) -> None:
    names = cert.names()
    subject = der.only(cert.subject, der.SEQUENCE)
    directory = [*names.directory, *([cert.subject] if subject else [])]
    kinds: list[tuple[list[Any], str, Callable[[Any, Any], bool]]] = [
        (names.dns, "dns", _below_domain),
        (names.mail, "mail", _mail_below),
        (names.addresses, "addresses", _in_network),
        (directory, "directory", _below_directory),
    ]
    for own, kind, inside in kinds:
        for name in own:
            if excluded is not None and any(inside(name, tree) for tree in getattr(excluded, kind)):
                raise Refused(EXCLUDED, f"the certificate of {cert} has a name that its CA is barred from")
            allowed = getattr(permitted, kind) if permitted is not None else []
            if allowed and not any(inside(name, tree) for tree in allowed):
                raise Refused(NOT_PERMITTED, f"the certificate of {cert} has a name that its CA may not issue for")
    constrained = (permitted.other if permitted else set()) | (excluded.other if excluded else set())
    if names.other & constrained:
        raise Refused(NOT_PERMITTED, f"the certificate of {cert} has a kind of name whose constraints are not known")


def _below_domain(name: str, tree: str) -> bool:
    name, tree = name.lower(), tree.lower().lstrip(".")
    return not tree or name == tree or name.endswith("." + tree)


def _mail_below(name: str, tree: str) -> bool:
    tree = tree.lower()
    host = name.rpartition("@")[2].lower()
    if "@" in tree:
        return name.rpartition("@")[0] == tree.rpartition("@")[0] and host == tree.rpartition("@")[2]
    return host.endswith(tree) if tree.startswith(".") else host == tree


def _in_network(address: bytes, tree: bytes) -> bool:
    size = len(tree) // 2
    return len(address) == size and all(
        a & m == b & m for a, b, m in zip(address, tree[:size], tree[size:], strict=True)
    )


def _below_directory(name: bytes, tree: bytes) -> bool:
    own = [p.whole for p in der.parts(der.only(name, der.SEQUENCE))]
    wanted = [p.whole for p in der.parts(der.only(tree, der.SEQUENCE))]
    return own[: len(wanted)] == wanted
