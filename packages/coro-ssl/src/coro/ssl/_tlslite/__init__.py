"""The back end over tlslite-ng: TLS in pure Python. `coro.ssl.new_ctx(..., backend="tlslite")` loads it.

From the bottom: `der` and `certificate` read certificates, `paths` decides whether they are to be trusted,
`connection` is tlslite-ng's class with some methods changed, `engine` what `coro.tls.TLSStream` drives, `context` what
a context is made of.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

with warnings.catch_warnings():
    # It imports asyncore where there is one, up to Python 3.11, which warns.
    warnings.simplefilter("ignore", DeprecationWarning)
    import tlslite as _tlslite

from coro.ssl._tlslite.context import Backend, Pair
from coro.tls import UnsupportedError

if TYPE_CHECKING:
    from coro.ssl._context import Settings

__all__ = ["made"]

#: Which release of tlslite-ng it is, for reports.
LIBRARY = str(_tlslite.__version__)


def made(settings: Settings) -> Backend:
    """The back end for these settings. ValueError for what is wrong in them, UnsupportedError for what tlslite-ng
    cannot do."""
    if settings.keylog is not None:
        raise UnsupportedError("tlslite-ng does not give away secrets for a key log file: use the back end openssl")
    if settings.dh is not None:
        raise UnsupportedError("the back end tlslite exchanges keys over curves only: leave out dhparam")
    password = settings.password
    pairs = [] if settings.chain is None else [Pair(*settings.chain, password)]
    return Backend(
        pairs=pairs,
        names={host: Pair(*chain, password) for host, chain in settings.names.items()},
        trust_pem=settings.trust,
        crl_pem=settings.crl or b"",
        verify=settings.verify,
        check_hostname=settings.check_hostname,
        client_auth=settings.client_auth,
        client_ca_pem=settings.client_trust,
        alpn=settings.alpn,
        ciphers=settings.ciphers,
        groups=settings.groups,
        minimum_version=settings.minimum_version,
        maximum_version=settings.maximum_version,
        tickets=settings.tickets,
    )
