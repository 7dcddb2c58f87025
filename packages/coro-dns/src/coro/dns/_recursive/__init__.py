"""The recursive resolver: `store` keeps answers, `network` asks one server, `recursor` finds out whom to ask.

Tests are in tests/recursive and tests/security.
"""
