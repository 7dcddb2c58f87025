"""Fuzz target for what reads what a stranger sends in coro.ldap: `python .../tests/fuzz/fuzz_ldap.py [options]`.

Needs atheris (PyPI).  Whatever a peer sends, each reader gives a value or the one error that it documents; messages are
the same in whatever pieces they arrive; the short way to a result says what the complete one says; and what was read is
written so that it means the same.
"""

from __future__ import annotations

import sys


def messages(data: bytes, cuts: list[int]) -> tuple[list[object], bool]:
    """What a stream of these bytes, cut at these places, holds; and whether it ended in an error."""
    from coro.ldap.exceptions import ProtocolError
    from coro.ldap.protocol import Framer

    framer = Framer(100_000)
    found: list[object] = []
    try:
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if begin == end:
                continue
            for number, tag, payload in framer.receive(data[begin:end]):
                if isinstance(payload, list):
                    found += [(number, tag, one.dn, one.attributes, one.controls) for one in payload]
                else:
                    found.append((number, tag, payload))
        framer.close()
    except ProtocolError:
        return found, True
    return found, False


def read(data: bytes) -> object:
    from coro.ldap import protocol
    from coro.ldap.exceptions import ProtocolError

    try:
        return protocol.decode(data)
    except ProtocolError as exc:
        return str(exc)


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.ldap import LDAPUrl, controls, dn, ldif, protocol, query
    from coro.ldap.exceptions import LDAPError, LocalError, ProtocolError

    cuts = sorted({byte % (len(data) + 1) for byte in data[:3]})
    whole, broken = messages(data, [])
    pieces, again = messages(data, cuts)
    # An error may hide messages before it that came with it, never those behind; nor may it depend on the pieces.
    assert broken == again and (pieces == whole or broken)

    found = read(data)
    short, protocol.plain_result = protocol.plain_result, lambda data: None  # type: ignore[assignment]
    try:
        assert read(data) == found
    finally:
        protocol.plain_result = short
    if isinstance(found, protocol.Message):
        for request in (False, True):
            try:
                controls.parse(found.controls, request)
            except ProtocolError:
                pass
        try:
            assert protocol.decode(protocol.encode(found)).op == found.op
        except LocalError:
            pass
    try:
        wanted = protocol.decode_filter(data)
        assert query.parse(str(wanted)) == wanted or protocol.decode_filter(wanted.encode()) == wanted
    except (ProtocolError, LocalError):
        pass
    text = data.decode("utf-8", "replace")
    for reader in (
        query.parse,
        lambda text: str(dn.DN.parse(text)),
        lambda text: str(LDAPUrl(text)),
        lambda text: list(ldif.read(text.splitlines(True))),
    ):
        try:
            reader(text)
        except LDAPError:
            pass


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.ldap"]):
        from coro.ldap import protocol  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
