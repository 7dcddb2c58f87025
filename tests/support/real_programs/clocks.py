"""Servers of the time of day: chronyd."""

from __future__ import annotations

import os
import socket
import sys

from .running import HOST, Server, find_program, missing

#: A client's question to an NTP server (RFC 5905, 7.3): version 4, mode 3, all else zero but the time it was sent.
_QUESTION = b"\x23" + bytes(39) + b"\0\0\0\0\0\0\0\1"


class Chronyd(Server):
    """A chronyd that serves this machine's clock as stratum 3 and never sets it."""

    name = "chronyd"

    def find(self) -> None:
        self._program = find_program("chronyd", "chrony")
        if not sys.platform.startswith("linux") or os.geteuid() != 0:
            missing("chronyd starts as root only: run the tests as root", required=False)

    def command(self) -> list[str]:
        settings = self.folder / "chrony.conf"
        settings.write_text(
            f"local stratum 3\nport {self.port}\ncmdport 0\nbindaddress {HOST}\nallow {HOST}\n"
            f"pidfile {self.folder}/pid\nbindcmdaddress /\n"
        )
        return [self._program, "-d", "-x", "-u", "root", "-f", str(settings)]

    def answers(self) -> bool:
        """It answers at once, but says at first that its clock is not set (leap indicator 3)."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((HOST, self.port))
            sock.settimeout(1)
            sock.send(_QUESTION)
            return sock.recv(1024)[0] >> 6 != 3
