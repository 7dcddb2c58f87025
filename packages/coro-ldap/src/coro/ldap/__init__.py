"""LDAP (RFC 4510 ff.): a client, and messages, filters, names, URLs and LDIF, which need no connection.

    client      connections to servers
    controls    what requests and answers carry beside themselves
    protocol    messages both ways, for clients and servers
    exceptions  errors, with a class for each result code
    pool        several connections and servers
    sasl        logins by mechanisms other than a simple password
    query       search filters as text
    filters     search filters as objects
    dn          distinguished names
    url         LDAP URLs
    ldif        entries and changes as text
    ad          the forms of Active Directory
    schema      what a server knows of attributes and object classes
    sync        changes of a directory as they are made
    drafts      changes of an entry, made as on a dict

This file holds names only.
"""

from __future__ import annotations

from coro.ldap._core import explained as _explained

with _explained():
    from coro.ldap import ad, client, controls, filters, ldif, protocol, query, sasl, schema, sync, url
    from coro.ldap.client import Client, Referrals
    from coro.ldap.dn import DN, escape_dn_value
    from coro.ldap.drafts import Draft
    from coro.ldap.exceptions import (
        ConnectionLost,
        DNError,
        Error,
        LDAPError,
        LDAPTimeout,
        LDIFError,
        LocalError,
        ProtocolError,
        QuerySyntaxError,
        ReferralError,
        RemoteError,
        SASLError,
        StateError,
        TLSRequired,
        TooMuchBuffered,
        URLError,
    )
    from coro.ldap.filters import escape_filter_value
    from coro.ldap.pool import Pool
    from coro.ldap.query import format_filter
    from coro.ldap.url import LDAPUrl

__version__ = "0.1.0"

__all__ = [
    "DN",
    "Client",
    "ConnectionLost",
    "DNError",
    "Draft",
    "Error",
    "LDAPError",
    "LDAPTimeout",
    "LDAPUrl",
    "LDIFError",
    "LocalError",
    "Pool",
    "ProtocolError",
    "QuerySyntaxError",
    "ReferralError",
    "Referrals",
    "RemoteError",
    "SASLError",
    "StateError",
    "TLSRequired",
    "TooMuchBuffered",
    "URLError",
    "ad",
    "client",
    "controls",
    "escape_dn_value",
    "escape_filter_value",
    "filters",
    "format_filter",
    "ldif",
    "protocol",
    "query",
    "sasl",
    "schema",
    "sync",
    "url",
]
