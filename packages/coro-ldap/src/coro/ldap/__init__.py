"""LDAP (RFC 4510 ff.): filters, names, URLs and LDIF, none of which needs a connection.

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
    from coro.ldap import filters, ldif, query, url
    from coro.ldap.dn import DN, escape_dn_value
    from coro.ldap.exceptions import (
        DNError,
        LDAPError,
        LDIFError,
        LocalError,
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
    "LDAPError",
    "LDAPUrl",
    "LDIFError",
    "LocalError",
    "QuerySyntaxError",
    "RemoteError",
    "URLError",
    "escape_dn_value",
    "escape_filter_value",
    "filters",
    "format_filter",
    "ldif",
    "query",
    "url",
]
