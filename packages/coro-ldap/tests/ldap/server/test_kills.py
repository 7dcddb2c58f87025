"""The server is killed while clients write; every change that it acknowledged is there when it is started again.

CORO_LDAP_KILLS: how often; the soak `ldap-server-kills` sets it.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, Bare, Ours, bind_request, replace_request

KILLS = int(os.environ.get("CORO_LDAP_KILLS", "20"))
WRITERS = 3


class Writer(threading.Thread):
    """Counts up in an attribute of one entry until the connection breaks."""

    def __init__(self, port: int, number: int, last: int) -> None:
        super().__init__()
        self.dn = f"uid=u{number},ou=people,{BASE}"
        self.port = port
        #: The last value that was acknowledged, and the last that was sent.
        self.acknowledged = self.sent = last
        self.progress = threading.Semaphore(0)
        self.wrong: object = None

    def run(self) -> None:
        try:
            with Bare(self.port) as client:
                assert client.ask(bind_request(ADMIN, PASSWORD))[0] == 0
                while True:
                    self.sent += 1
                    code, content = client.ask(replace_request(self.dn, "employeeNumber", str(self.sent)))
                    if code != 0:
                        self.wrong = content
                        return
                    self.acknowledged = self.sent
                    self.progress.release()
        except (OSError, EOFError):
            return


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_kills(tmp_path: Path) -> None:
    random.seed(4)
    previous: list[Writer] = []
    last = [0] * WRITERS
    for kill in range(KILLS):
        with Ours(data=tmp_path / "data") as server:
            writers = [Writer(server.port, number, last[number]) for number in range(WRITERS)]
            if kill:
                with Bare(server.port) as client:
                    client.ask(bind_request(ADMIN, PASSWORD))
                    for writer, before in zip(writers, previous, strict=True):
                        code, found = client.search(base=writer.dn, scope=0)
                        assert code == 0
                        value = int(found[0].text("employeeNumber", "0"))
                        assert before.acknowledged <= value <= before.sent
                        writer.acknowledged = writer.sent = value
            for writer in writers:
                writer.start()
            for writer in writers:
                for _ in range(random.randrange(1, 8)):
                    assert writer.progress.acquire(timeout=60), writer.wrong
            server.kill()
            for writer in writers:
                writer.join()
                assert writer.wrong is None
            previous = writers
