"""Certificates, keys and digests under the names of the original Shrapnel, over the distribution `cryptography`.

This file holds names only. `coro.ssl.openssl` gives them to programs.
"""
