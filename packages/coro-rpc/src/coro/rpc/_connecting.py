"""The stream below a connection of a client: TCP or a UNIX socket, with TLS if asked for."""

from __future__ import annotations

import os
from typing import Any

import coro

#: Seconds that connecting may take, TLS and the handshake included.
CONNECT_TIMEOUT = 10.0


def open_stream(address: Any, tls: Any, server_hostname: str | None) -> Any:
    """A connected stream. Raises OSError and what TLS raises; then nothing is left open."""
    conn: Any
    if isinstance(address, (str, bytes, os.PathLike)):
        conn = coro.unix_sock()
        try:
            conn.connect(os.fspath(address))
        except BaseException:
            conn.close()
            raise
    else:
        conn = coro.connect(tuple(address))
        conn.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY: the same numbers everywhere
    if tls is None:
        return conn
    from coro import tls as coro_tls

    if server_hostname is None and not isinstance(address, (str, bytes, os.PathLike)):
        server_hostname = address[0]
    try:
        return coro_tls.context(tls).wrap(conn, server_hostname=server_hostname)
    except BaseException:
        conn.close()
        raise
