"""A server of ours over a root server that knows all, and programs that ask it."""

from __future__ import annotations

import subprocess

import dns.message
from dns_support import fakes, record, reply, soa
from real_programs import find_program

import coro
from coro.dns import _wire
from coro.dns.cache import dns_cache
from coro.dns.server import Server


def answers(query):
    """A root server that knows all: names with "no" do not exist, "bad" fails, "big" has many addresses."""
    text = _wire.to_text(query.qname)
    if text.startswith("no"):
        return reply(query, authority=[soa(".")], rcode=3)
    if text.startswith("bad"):
        return reply(query, rcode=2)
    if query.qtype != 1:
        return reply(query, authority=[soa(".")])
    count = 100 if text.startswith("big") else 1
    return reply(query, [record(text, 1, f"192.0.2.{i + 1}", 300) for i in range(count)])


class running:
    """A server over such a root."""

    def __init__(self, **settings):
        self.settings = settings

    def __enter__(self):
        self.fakes = fakes({1: answers})
        self.root = self.fakes.__enter__()
        cache = dns_cache(roots=[self.root.root], port=self.root.port, loopback=True)
        self.server = Server(cache, [("127.0.0.1", 0)], **self.settings).start()
        self.address = self.server.addresses[0]
        return self

    def __exit__(self, *error):
        self.server.stop()
        self.fakes.__exit__(*error)

    def ask(self, name, rtype="A", **settings):
        query = dns.message.make_query(name, rtype, **settings)
        answer = dns.message.from_wire(self.raw(query.to_wire()))
        assert query.is_response(answer)
        assert str(answer.question[0].name) == str(query.question[0].name)  # in the same case
        return answer

    def raw(self, data, source=None):
        with coro.udp_sock() as sock, coro.timeout(30):
            if source is not None:
                # not for all: bind() sets SO_REUSEADDR, with which Linux gives two datagram sockets one port at times
                sock.bind((source, 0))
            sock.connect(self.address)
            sock.send(data)
            return sock.recv(65535)


def run(program, package, *arguments):
    path = find_program(program, package)
    done = coro.in_thread(lambda: subprocess.run([path, *arguments], capture_output=True, text=True, timeout=50))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
