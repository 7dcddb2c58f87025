"""The broker of `coro.amqp.testing`: `routing` and `queues` are its model, without I/O; `channels` and `sessions` speak
AMQP to one client each. Imports go that way only."""
