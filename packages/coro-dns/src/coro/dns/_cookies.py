"""DNS cookies (RFC 7873) of a server, in the form that servers of different makers share (RFC 9018).

A client sends 8 bytes of its own choice. The server adds 16: a version, a time, and a hash of both, the client's bytes
and the client's address with a secret. Who sends that back has received it, so his address is not forged. Nothing is
remembered for a client.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable

from coro.dns._prepared import siphash

__all__ = ["COOKIE", "Cookies"]

COOKIE = 10  # the number of the EDNS option
#: RFC 9018, section 4.3: seconds for which a cookie is good, for which it is repeated, and that clocks may differ.
GOOD, REPEATED, AHEAD = 3600, 1800, 300


class Cookies:
    """Makes cookies, and knows its own again. `all_secrets`, 16 bytes each: the first one makes cookies, the others are
    good as well. None: one by chance."""

    def __init__(self, all_secrets: Iterable[bytes] | None = None) -> None:
        self.secrets = [secrets.token_bytes(16)] if all_secrets is None else list(all_secrets)
        if not self.secrets or any(len(one) != 16 for one in self.secrets):
            raise ValueError("expected at least one secret for cookies, and each of 16 bytes")

    @staticmethod
    def _hash(secret: bytes, client: bytes, head: bytes, host: str) -> bytes:
        address = ipaddress.ip_address(host.partition("%")[0])
        return siphash(secret, client + head + address.packed)

    def made(self, client: bytes, host: str, now: int | None = None) -> bytes:
        """The client's 8 bytes and the server's 16."""
        head = b"\1\0\0\0" + (int(time.time() if now is None else now) & 0xFFFFFFFF).to_bytes(4, "big")
        return client + head + self._hash(self.secrets[0], client, head, host)

    def checked(self, option: bytes, host: str, now: int | None = None) -> tuple[bool, bytes]:
        """Is it a cookie that we gave to this client, and which one goes into the reply? Raises ValueError for a length
        that none has."""
        if len(option) != 8 and not 16 <= len(option) <= 40:
            raise ValueError(f"a cookie has 8 bytes, or from 16 to 40, not {len(option)}")
        now = int(time.time() if now is None else now)
        client, head, said = option[:8], option[8:16], option[16:]
        if len(option) == 24 and head[:4] == b"\1\0\0\0":
            age = (now - int.from_bytes(head[4:], "big") + (1 << 31)) % (1 << 32) - (1 << 31)  # RFC 1982
            for i, secret in enumerate(self.secrets):
                if hmac.compare_digest(self._hash(secret, client, head, host), said):
                    good = -AHEAD <= age <= GOOD
                    return good, option if good and age <= REPEATED and not i else self.made(client, host, now)
        return False, self.made(client, host, now)
