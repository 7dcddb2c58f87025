"""What `coro.ldap.client` is built on: the connection (link.py) and its parts."""
