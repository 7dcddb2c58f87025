"""The HTTP client's rooms. ``coro.http.client`` has the public names; programs import from there.

From the bottom up, a room uses only those above it in this list: `urls`, `fields`, `limits`, `multipart`, `decoding`,
`cookies`, `auth`, `messages`, `links` (one connection), `proxies`, `pool`, `session` (the Client). `pipelined` is the
classic interface, beside them. Tests are in tests/client/.
"""
