"""Zones that a server is the authority for: reading, keeping, answering, transferring and changing them. Only the names
of `coro.dns.zone` are public."""
