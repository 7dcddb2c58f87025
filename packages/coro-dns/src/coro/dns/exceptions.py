"""The exceptions of the resolvers: *soft* ones are temporary, *hard* ones definite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "MAX_DNSRCODE",
    "DNS_Bogus_Error",
    "DNS_Error",
    "DNS_Hard_Error",
    "DNS_Lame_Error",
    "DNS_Malformed_Qname_Error",
    "DNS_Many_Errors",
    "DNS_Many_Errors_Hard",
    "DNS_Many_Errors_Soft",
    "DNS_Missing_Root_Data_Error",
    "DNS_No_Local_Resolvers",
    "DNS_Runaway_Query_Error",
    "DNS_Soft_Error",
    "DNS_Signature_Error",
    "DNS_Transfer_Error",
    "DNS_Update_Error",
    "DNS_Validation_Unavailable",
    "DNS_Zone_Error",
]

#: The greatest response code there can be (16 bits, as TSIG has them).
MAX_DNSRCODE = 65535

_NXDOMAIN, _REFUSED = 3, 5


class DNS_Error(Exception):
    """What a resolver raises: the base of all classes here."""


class DNS_Soft_Error(DNS_Error):
    """A temporary error: a server did not answer, or not properly. Asking again later may help."""

    def __init__(self, qname: str = "", qtype: str = "", nameserver: str = "", error_string: str = "") -> None:
        """The question ``qname`` and ``qtype``, the address of the ``nameserver``, and ``error_string``, what
        happened."""
        super().__init__(qname, qtype, nameserver, error_string)
        self.qname = qname
        self.qtype = qtype
        self.nameserver = nameserver
        self.error_string = error_string

    def __str__(self) -> str:
        server = f" by {self.nameserver}" if self.nameserver else ""
        return f"{self.qname} {self.qtype}{server}: {self.error_string}"


class DNS_Hard_Error(DNS_Error):
    """A definite error: the name does not exist, for example."""

    def __init__(self, qname: str = "", qtype: str = "", reply: tuple[int, str] = (0, "")) -> None:
        """The question ``qname`` and ``qtype``; ``reply`` is the response code and a text."""
        super().__init__(qname, qtype, reply)
        self.qname = qname
        self.qtype = qtype
        self.dnsrcode, self.error_string = reply

    def __str__(self) -> str:
        return f"{self.qname} {self.qtype}: {self.error_string} (response code {self.dnsrcode})"


class DNS_Malformed_Qname_Error(DNS_Hard_Error):
    """The name asked for cannot be one."""


class DNS_Lame_Error(DNS_Soft_Error):
    """No server of a zone knows the zone: all are *lame*."""

    def __init__(self, qname: str = "", qtype: str = "", nameservers: Sequence[tuple[int, str]] = ()) -> None:
        """The question ``qname`` and ``qtype``; ``nameservers`` are pairs of a TTL and a name."""
        self.ns_names = ", ".join(name for _, name in nameservers)
        super().__init__(qname, qtype, self.ns_names, "no server of the zone knows it")
        self.args = (qname, qtype, nameservers)


class DNS_Runaway_Query_Error(DNS_Soft_Error):
    """An answer would take more work than one question may cause."""

    def __init__(self, qname: str = "", qtype: str = "", ns_name: str = "") -> None:
        """The question ``qname`` and ``qtype``, and the server ``ns_name`` that was to be asked next."""
        super().__init__(qname, qtype, ns_name, "this question takes too much work")
        self.args = (qname, qtype, ns_name)


class DNS_Bogus_Error(DNS_Soft_Error):
    """What servers said is not signed as it has to be (DNSSEC): somebody has changed it, or the zone is broken."""


class DNS_Validation_Unavailable(DNS_Error, ImportError):
    """Signatures cannot be checked, because the distribution ``cryptography`` is not installed."""


class DNS_Zone_Error(DNS_Error, ValueError):
    """The text of a zone is wrong, or records that cannot be in one zone."""

    def __init__(self, error_string: str = "", file: str = "", line: int = 0) -> None:
        """``error_string`` says what is wrong, ``file`` and ``line`` (from 1; 0: none in particular) where."""
        super().__init__(error_string, file, line)
        self.error_string = error_string
        self.file = file
        self.line = line

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return where + self.error_string


class DNS_Signature_Error(DNS_Soft_Error):
    """A message is not signed as it has to be (TSIG), or a server did not accept our signature."""


class DNS_Transfer_Error(DNS_Soft_Error):
    """A zone could not be transferred from a server."""


class DNS_Update_Error(DNS_Hard_Error):
    """A server did not make the changes it was sent: its response code says why (RFC 2136, section 2.2)."""


class DNS_Missing_Root_Data_Error(DNS_Soft_Error):
    """No root server is known."""


class DNS_No_Local_Resolvers(DNS_Soft_Error):
    """The system's configuration names no resolver."""


def _severity(error: DNS_Error) -> int:
    code = getattr(error, "dnsrcode", None)
    if code is None:
        return 0
    if code == _NXDOMAIN:
        return MAX_DNSRCODE + 1
    if code == _REFUSED:
        return MAX_DNSRCODE + 2
    return int(code)


class DNS_Many_Errors(DNS_Error):
    """Several errors as one. ``qname``, ``qtype`` and ``error_string`` are those of all, each on a line; any other
    attribute is the one of the least severe error that has it."""

    def __init__(self, exceptions: Sequence[DNS_Error]) -> None:
        """``exceptions``: the errors."""
        Exception.__init__(self, exceptions)  # not the soft one's, which would set attributes of its own
        self.exceptions = sorted(exceptions, key=_severity)

    def __getattribute__(self, name: str) -> Any:
        if name in ("qname", "qtype", "error_string"):
            return "\n".join(str(getattr(e, name, "")) for e in self.exceptions)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name != "exceptions":
            for e in self.exceptions:
                if hasattr(e, name):
                    return getattr(e, name)
        raise AttributeError(f"none of these errors has the attribute {name!r}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.exceptions))


class DNS_Many_Errors_Soft(DNS_Many_Errors, DNS_Soft_Error):
    """Several errors, caught as a soft one."""

    def __init__(self, exceptions: Sequence[DNS_Error]) -> None:
        """``exceptions``: the errors."""
        DNS_Many_Errors.__init__(self, exceptions)


class DNS_Many_Errors_Hard(DNS_Many_Errors, DNS_Hard_Error):
    """Several errors, caught as a hard one."""

    def __init__(self, exceptions: Sequence[DNS_Error]) -> None:
        """``exceptions``: the errors."""
        DNS_Many_Errors.__init__(self, exceptions)
