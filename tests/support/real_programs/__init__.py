"""Real programs for tests: a database, a web server, a time server, started for a few tests and thrown away.

The tests of all packages take them from here:

    from real_programs import MariaDB

    def test_something():
        with MariaDB() as server:
            connect(server.port)

Each is a class whose objects are context managers: it makes a folder, starts the program as a child of this process on
a free port of the loopback interface, waits until it answers, and at the end stops it and removes the folder. Nothing
that runs on the machine already is touched. Where the program is not installed the test is skipped, with the name of
the package to install; with CORO_REQUIRE_SERVERS=1, as in CI, it fails. What a failed test was talking to shows the end
of its log with the failure, and all of it is kept in `.dev/log/programs`.

A new program is a subclass of `Server` (running.py) in the file for its kind. The folder is on the path of every
test by `pythonpath` in the root's pyproject.toml.
"""

from .brokers import Epmd, GarageMQ, RabbitMQ, RabbitMQ4, RabbitMQCluster
from .clocks import Chronyd
from .databases import DATABASE, PASSWORD, USER, MariaDB, PostgreSQL, Redis
from .files import Nginx, Vsftpd
from .peers import Script, run_peer
from .running import HOST, LIMIT, Server, find_program, free_port, missing, require_library

__all__ = [
    "DATABASE",
    "HOST",
    "LIMIT",
    "PASSWORD",
    "USER",
    "Chronyd",
    "Epmd",
    "GarageMQ",
    "MariaDB",
    "Nginx",
    "PostgreSQL",
    "RabbitMQ",
    "RabbitMQ4",
    "RabbitMQCluster",
    "Redis",
    "Script",
    "Server",
    "Vsftpd",
    "find_program",
    "free_port",
    "missing",
    "require_library",
    "run_peer",
]
