"""Where mail for domains goes: python mail_servers.py python.org debian.org [--server 192.0.2.53:53]

All domains are asked for at the same time, by threads of one loop; no OS thread is started.
"""

import argparse

import coro
from coro.dns import DNS_Error
from coro.dns.stub_resolver import stub_resolver


def mail_servers(resolver: stub_resolver, domain: str) -> str:
    lines = []
    try:
        for preference, host in resolver.mx(domain):
            addresses = [answer[4][0] for answer in resolver.getaddrinfo(host, 25, type=coro.SOCK.STREAM)]
            lines.append(f"  {preference} {host}: {', '.join(addresses)}")
    except (DNS_Error, OSError) as e:
        lines.append(f"  {e}")
    return "\n".join([domain, *lines])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("domains", nargs="+")
    parser.add_argument("--server", help="ask this name server instead of the system's")
    options = parser.parse_args()
    servers = None
    if options.server:
        host, _, port = options.server.partition(":")
        servers = [(host, int(port or 53))]
    resolver = stub_resolver(servers)
    with coro.group() as group:
        threads = [group.spawn(mail_servers, resolver, domain) for domain in options.domains]
    for thread in threads:
        print(thread.get())


coro.run(main)
