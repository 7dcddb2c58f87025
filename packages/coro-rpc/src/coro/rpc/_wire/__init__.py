"""The codec: frames, and the values in them. No sockets, no clock, nothing of coro."""
