"""LDAP (RFC 4510 ff.): messages, filters, names, URLs and LDIF, none of which needs a connection.

    protocol    messages both ways, for clients and servers
    exceptions  errors, with a class for each result code
    query       search filters as text
    filters     search filters as objects
    dn          distinguished names
    url         LDAP URLs
    ldif        entries and changes as text

This file holds names only.
"""

from __future__ import annotations

from coro.ldap._core import explained as _explained

with _explained():
    from coro.ldap import filters, ldif, protocol, query, url
    from coro.ldap.dn import DN, escape_dn_value
    from coro.ldap.exceptions import (
        DNError,
        Error,
        LDAPError,
        LDIFError,
        LocalError,
        ProtocolError,
        QuerySyntaxError,
        RemoteError,
        URLError,
    )
    from coro.ldap.filters import escape_filter_value
    from coro.ldap.query import format_filter
    from coro.ldap.url import LDAPUrl

__version__ = "0.1.0"

__all__ = [
    "DN",
    "DNError",
    "Error",
    "LDAPError",
    "LDAPUrl",
    "LDIFError",
    "LocalError",
    "ProtocolError",
    "QuerySyntaxError",
    "RemoteError",
    "URLError",
    "escape_dn_value",
    "escape_filter_value",
    "filters",
    "format_filter",
    "ldif",
    "protocol",
    "query",
    "url",
]
