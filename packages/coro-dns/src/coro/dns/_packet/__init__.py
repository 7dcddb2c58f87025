"""The codec behind `coro.dns.packet`: `codec.pyx` between bytes and values, `text.py` between bytes and the text of
zone files, `numbers.py` with the numbers that IANA keeps, `fields.py` with what each type of record consists of."""
