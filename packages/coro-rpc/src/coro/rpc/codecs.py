"""How values become bytes: pickle through an allow-list, JSON, MessagePack.

A codec has a ``name``, which both sides agree on when they connect, ``encode(value) -> (bytes, buffers)`` and
``decode(bytes, buffers) -> value``. ``buffers`` are large pieces that travel beside the encoded value, so that nobody
copies them into it.

Pickle is what Python writes and reads fastest, and a program for a machine that can call anything. So what comes is
looked through first (_wire/values.pyx): plain values go to ``pickle.loads``, which then has no way to find a name; with
registered classes, an Unpickler whose ``find_class`` looks into a dictionary and imports nothing.

Cost: see _wire/values.pyx. Rejected: marshal (crashes on hostile input, says its documentation), signed pickles (a
signature says who wrote it, not that he means well).
"""

from __future__ import annotations

import enum
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from coro.rpc._wire import values
from coro.rpc.exceptions import DecodeError, EncodeError

__all__ = ["JSON", "MAX_DEPTH", "MAX_MEMORY", "OUT_OF_BAND", "Codec", "MessagePack", "Pickle"]

#: Bytes objects (and buffers) from this size on travel beside the pickle.
OUT_OF_BAND = 65536
#: How deep values may be nested, and how many bytes of memory the objects of a message may take, roughly.
MAX_DEPTH = 100
MAX_MEMORY = 268435456

Encoded = tuple[bytes, "Sequence[bytes | bytearray | memoryview]"]


class Codec(Protocol):
    """What a codec has; any object with these can be given to a client and a server."""

    @property
    def name(self) -> str:
        """What both sides agree on."""

    def encode(self, value: Any, /) -> Encoded:
        """The value as bytes, and buffers that belong to it. Raises EncodeError, and nothing else."""

    def decode(self, data: bytes, buffers: Sequence[Any], /) -> Any:
        """The value. Raises DecodeError, and nothing else, whatever the bytes are."""


def _name(thing: Any) -> tuple[str, str]:
    return thing.__module__, thing.__qualname__


class Pickle:
    """Pickle, protocol 5. ``Pickle(classes=[Point, Colour])`` also passes instances of these classes.

    classes: classes (or module-level functions that classes name in ``__reduce__``) that may be in messages. Plain
    values need no entry: None, bool, int, float, str, bytes, bytearray, tuple, list, dict, set, frozenset. An instance
    is made by calling its class, or by ``__new__``, and its state is set by ``__setstate__`` or as attributes:
    register classes for which any such values are harmless. Subclasses of list, dict and set cannot be sent as such.
    max_depth, max_memory:
    limits for what comes. unrestricted: load any pickle. It lets the other side execute anything here, and is refused
    unless that side has authenticated itself.
    """

    def __init__(
        self,
        classes: Iterable[Any] = (),
        *,
        max_depth: int = MAX_DEPTH,
        max_memory: int = MAX_MEMORY,
        unrestricted: bool = False,
    ) -> None:
        self.max_depth, self.max_memory, self.unrestricted = max_depth, max_memory, bool(unrestricted)
        self._known: dict[tuple[str, str], Any] = {}
        self._allowed: set[int] = set()
        for one in classes:
            self.register(one)

    @property
    def name(self) -> str:
        """ "pickle5", or "pickle5-unrestricted"."""
        return "pickle5-unrestricted" if self.unrestricted else "pickle5"

    @property
    def plain(self) -> bool:
        """No classes are registered, and it is not unrestricted."""
        return not self._known and not self.unrestricted

    def register(self, thing: Any) -> Any:
        """Let instances of a class be in messages, in both directions; usable as a decorator. The name has to be the
        same on both sides. TypeError for what has no module and qualified name, or is local to a function."""
        if not callable(thing) or not hasattr(thing, "__qualname__") or "<" in thing.__qualname__:
            raise TypeError(f"expected a class at the top of a module, got {thing!r}")
        self._known[_name(thing)] = thing
        self._allowed.add(id(thing))
        return thing

    def encode(self, value: Any, /) -> Encoded:
        """See Codec."""
        try:
            if self.unrestricted:
                buffers: list[Any] = []
                data = pickle.dumps(value, 5, buffer_callback=_collector(buffers))
                return data, buffers
            if not self._known:
                return self.encode_plain(_out_of_band(value))
            out = io.BytesIO()
            buffers = []
            _Pickler(out, buffers, self._allowed).dump(_out_of_band(value))
            data = out.getvalue()
            values.check(data, len(buffers), self.max_depth, self.max_memory)
            return data, buffers
        except EncodeError:
            raise
        except DecodeError as e:
            raise EncodeError(f"the other side would refuse this value: {e}") from None
        except Exception as e:
            raise EncodeError(f"expected a value that can be sent, got {_short(value)}: {type(e).__name__}: {e}") from e

    def encode_plain(self, value: Any) -> Encoded:
        """For values without registered classes; large bytes are PickleBuffers already."""
        buffers: list[Any] = []
        data = pickle.dumps(value, 5, buffer_callback=_collector(buffers))
        if values.check(data, len(buffers), self.max_depth, self.max_memory):
            raise EncodeError(
                f"expected plain values, got {_short(value)}; register its class on both sides: "
                "Pickle(classes=[...]), or send what it consists of"
            )
        return data, buffers

    def decode(self, data: bytes, buffers: Sequence[Any], /) -> Any:
        """See Codec."""
        try:
            if self.unrestricted:
                return pickle.loads(data, buffers=buffers)
            if not values.check(data, len(buffers), self.max_depth, self.max_memory):
                return pickle.loads(data, buffers=buffers)
            return _Unpickler(data, buffers, self._known).load()
        except DecodeError:
            raise
        except Exception as e:
            raise DecodeError(f"expected a pickle of known values: {type(e).__name__}: {e}") from e


def _collector(buffers: list[Any]) -> Callable[[pickle.PickleBuffer], bool]:
    def callback(buffer: pickle.PickleBuffer) -> bool:
        """True: into the pickle."""
        try:
            view = buffer.raw()
        except BufferError:
            return True
        if view.nbytes < OUT_OF_BAND:
            return True
        # What is mutable may change before it is sent.
        buffers.append(view if view.readonly else bytearray(view))
        return False

    return callback


def _out_of_band(value: Any, depth: int = 2) -> Any:
    """Large bytes that are the value, or are found in it not too deep, wrapped so that they travel beside the
    pickle."""
    kind = type(value)
    if kind is bytes:
        return pickle.PickleBuffer(value) if len(value) >= OUT_OF_BAND else value
    if depth and (kind is tuple or kind is list) and len(value) <= 64:
        new = [_out_of_band(one, depth - 1) for one in value]
        # What is the same list before should be the same list behind, unless there is a reason.
        return kind(new) if any(a is not b for a, b in zip(new, value, strict=True)) else value
    if depth and kind is dict and len(value) <= 64:
        named = {key: _out_of_band(one, depth - 1) for key, one in value.items()}
        return named if any(named[key] is not value[key] for key in named) else value
    return value


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, buffers: list[Any], allowed: set[int]) -> None:
        super().__init__(out, 5, buffer_callback=_collector(buffers))
        self._allowed = allowed

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) not in self._allowed and id(type(obj)) not in self._allowed:
            raise EncodeError(
                f"expected plain values and instances of registered classes, got {_short(obj)}; register its class on "
                "both sides: Pickle(classes=[...])"
            )
        if sys.version_info < (3, 12) and isinstance(obj, enum.Enum):
            # Early versions of 3.11 ask for getattr() on the other side, which finds any attribute of anything.
            return type(obj), (obj.value,)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, buffers: Sequence[Any], known: dict[tuple[str, str], Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._known[module, name]
        except KeyError:
            raise DecodeError(
                f"expected a registered class, got {module}.{name}; if its instances are harmless, register it: "
                "Pickle(classes=[...])"
            ) from None


class JSON:
    """JSON (RFC 8259): for programs in other languages. No bytes, no tuples (they come as lists), keys are str."""

    name = "json"

    def __init__(self, *, max_depth: int = MAX_DEPTH, max_memory: int = MAX_MEMORY) -> None:
        self.max_depth, self.max_memory = max_depth, max_memory

    def encode(self, value: Any, /) -> Encoded:
        """See Codec."""
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(), ()
        except Exception as e:
            raise EncodeError(f"expected a value that JSON has, got {_short(value)}: {e}") from e

    def decode(self, data: bytes, buffers: Sequence[Any], /) -> Any:
        """See Codec."""
        if buffers:
            raise DecodeError("expected JSON without buffers beside it")
        values.check_text(data, self.max_depth, self.max_memory)
        try:
            return json.loads(data.decode(), parse_constant=_no_constant)
        except Exception as e:
            raise DecodeError(f"expected JSON: {type(e).__name__}: {e}") from e


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class MessagePack:
    """MessagePack; needs the distribution msgpack. Has bytes; tuples come as lists."""

    name = "msgpack"

    def __init__(self, *, max_depth: int = MAX_DEPTH, max_memory: int = MAX_MEMORY) -> None:
        try:
            import msgpack
        except ImportError as e:
            raise ImportError("the codec MessagePack needs msgpack: pip install coro-rpc[msgpack]") from e
        self.max_depth, self.max_memory = max_depth, max_memory
        self._pack: Callable[[Any], bytes] = msgpack.packb
        self._unpack: Callable[..., Any] = msgpack.unpackb

    def encode(self, value: Any, /) -> Encoded:
        """See Codec."""
        try:
            return self._pack(value), ()
        except Exception as e:
            raise EncodeError(f"expected a value that MessagePack has, got {_short(value)}: {e}") from e

    def decode(self, data: bytes, buffers: Sequence[Any], /) -> Any:
        """See Codec."""
        if buffers:
            raise DecodeError("expected MessagePack without buffers beside it")
        values.check_message_pack(data, self.max_depth, self.max_memory)
        try:
            return self._unpack(data, strict_map_key=False)
        except Exception as e:
            raise DecodeError(f"expected MessagePack: {type(e).__name__}: {e}") from e


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "an object whose repr fails"
    return f"{type(value).__name__}: {text[:80]}{'...' if len(text) > 80 else ''}"
