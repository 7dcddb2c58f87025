"""DNS (RFC 1034, RFC 1035 and what came after): a stub resolver, a caching recursive resolver and a server for it.

    stub_resolver asks the name servers of the system
    cache         the recursive resolver
    server        answers questions over UDP and TCP
    zone, tsig    zones of one's own: files, transfers, updates; messages signed with a key
    packet        messages between bytes and values
    exceptions    what a resolver raises

This file holds names only.
"""

from __future__ import annotations

from coro.dns._core import explained as _explained

with _explained():
    from coro.dns import _wire as _wire
    from coro.dns.exceptions import (
        DNS_Bogus_Error,
        DNS_Error,
        DNS_Hard_Error,
        DNS_Lame_Error,
        DNS_Malformed_Qname_Error,
        DNS_Many_Errors,
        DNS_Many_Errors_Hard,
        DNS_Many_Errors_Soft,
        DNS_Missing_Root_Data_Error,
        DNS_No_Local_Resolvers,
        DNS_Runaway_Query_Error,
        DNS_Signature_Error,
        DNS_Soft_Error,
        DNS_Transfer_Error,
        DNS_Update_Error,
        DNS_Validation_Unavailable,
        DNS_Zone_Error,
    )
    from coro.dns.stub_resolver import install, uninstall

__version__ = "0.1.0"

__all__ = [
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
    "DNS_Zone_Error",
    "DNS_Update_Error",
    "DNS_Transfer_Error",
    "DNS_Signature_Error",
    "DNS_Validation_Unavailable",
    "install",
    "uninstall",
]
