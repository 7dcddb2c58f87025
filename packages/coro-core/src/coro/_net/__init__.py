"""Sockets: the class sock, addresses, file objects over socks, listening sockets.

`sock.pyx` states the invariants and includes the halves for receiving and sending. Tests: `tests/net`.
"""
