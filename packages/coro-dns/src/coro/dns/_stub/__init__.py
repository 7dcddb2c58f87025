"""The parts of the stub resolver.

engine         a query over UDP and its reply, the cache, questions under way (compiled)
servers        one question to one server, whatever it takes
streams        queries over TCP and TLS
system         resolv.conf, the hosts file
hosts          host names to addresses and back, for coro-core
destinations   addresses in the order in which to try them
"""
