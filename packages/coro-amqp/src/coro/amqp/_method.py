"""What every class of a method in `spec` has in common: comparing, and a readable form."""

from __future__ import annotations

from typing import Any, ClassVar, Self

__all__ = ["REQUIRED", "Method"]

#: The default of an argument that has none in AMQP: it has to be set before the method is packed.
REQUIRED: Any = None


class Method:
    """A method of AMQP: its arguments are attributes. ``spec`` has a subclass for each.

    ``_name`` is "class.method", ``id`` the two numbers. ``synchronous`` says that it is answered, ``content`` that a
    message follows it.
    """

    __slots__ = ()
    _name: ClassVar[str] = ""
    id: ClassVar[tuple[int, int]] = (0, 0)
    synchronous: ClassVar[bool] = False
    content: ClassVar[bool] = False

    def pack(self) -> bytes:
        """Class id, method id and arguments: the payload of a method frame. EncodeError if a value does not fit."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, data: bytes, pos: int = 0) -> Self:
        """A method from the arguments at ``pos``, behind the two numbers. ProtocolError if they are damaged."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """The arguments by name."""
        names: tuple[str, ...] = self.__slots__
        return {name: getattr(self, name) for name in names}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.fields() == other.fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={_shown(name, value)}" for name, value in self.fields().items())
        return f"spec.{self._name}({given})"


def _shown(name: str, value: object) -> str:
    """Secrets are not for logs."""
    return "..." if name in ("response", "new_secret", "challenge") and value is not None else repr(value)
