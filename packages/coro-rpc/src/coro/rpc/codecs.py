"""How values become bytes: pickle through an allow-list, JSON, MessagePack.

A codec has a ``name``, which both sides agree on when they connect, ``encode(value) -> (bytes, buffers)`` and
``decode(bytes, buffers) -> value``. ``buffers`` are large pieces that travel beside the encoded value, so that nobody
copies them into it.

Pickle is what Python writes and reads fastest, and a program for a machine that can call anything. So what comes is
looked through first (_wire/values.pyx): plain values go to ``pickle.loads``, which then has no way to find a name; with
registered classes, an Unpickler whose ``find_class`` looks into a dictionary and imports nothing.

An instance is written as a call of its class with values, and nothing else makes or changes one: the opcodes that skip
``__init__`` or set attributes of what a class has returned (which may have existed before) are refused. What is called
is never the class itself but a function that takes these values as they were registered: all fields of a dataclass or a
NamedTuple, attributes with given names, or the whole state of an object that was made just now.

Cost: see _wire/values.pyx. Rejected: marshal (crashes on hostile input, says its documentation), signed pickles (a
signature says who wrote it, not that he means well).
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import io
import json
import pickle
import types
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

    classes: classes (or module-level functions that classes name in ``__reduce__``) that may be in messages, see
    ``register``. Plain values need no entry: None, bool, int, float, str, bytes, bytearray, tuple, list, dict, set,
    frozenset. An instance is made by calling its class with the values that came: dataclasses with their fields, checks
    in ``__post_init__`` included, NamedTuples with their items, members of an Enum by their value, others with what
    their ``__reduce__`` says. Register classes for which any such values are harmless. Subclasses of list, dict and set
    cannot be sent as such.
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
        self._allowed: dict[int, tuple[Any, _Reduce | None]] = {}
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

    def register(self, thing: Any, *, fields: Iterable[str] | None = None, state: bool = False) -> Any:
        """Let instances of a class be in messages, in both directions; usable as a decorator. The name has to be the
        same on both sides; returns the class.

        fields: names of attributes; an instance is made by ``cls(name=value, ...)`` with all of them. Dataclasses take
        their own. state: send ``__dict__`` and slots of any class, and set them on an object that ``object.__new__``
        made, without ``__init__``: the other side chooses all attributes. Names of methods, properties and others that
        the class has are refused, those with two underscores in front, too; a class with ``__setstate__`` gets the
        state there.

        TypeError for what has no module and qualified name, is local to a function, or, with ``state``, has a
        ``__new__`` of its own, because what that returns may have existed before; for a dataclass with an ``InitVar``,
        whose fields do not make it again."""
        if not callable(thing) or not hasattr(thing, "__qualname__") or "<" in thing.__qualname__:
            raise TypeError(f"expected a class at the top of a module, got {thing!r}")
        make, reduce = _maker(thing, None if fields is None else tuple(fields), state)
        self._known[_name(thing)] = make
        self._allowed[id(thing)] = (thing, reduce)
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
        try:
            needs_classes = values.check(data, len(buffers), self.max_depth, self.max_memory)
        except DecodeError as e:
            if "NEWOBJ" not in str(e):
                raise
            needs_classes = True
        if needs_classes:
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


_Reduce = Callable[[Any], tuple[Any, ...]]


def _maker(thing: Any, fields: tuple[str, ...] | None, state: bool) -> tuple[Callable[..., Any], _Reduce | None]:
    """What makes an instance from the values that came, and what takes these from an instance; None: its
    ``__reduce__``."""
    if not isinstance(thing, type):
        if state or fields is not None:
            raise TypeError(f"expected a class with fields or state, got {thing!r}")
        return lambda *values: thing(*values), None
    if state:
        return _of_state(thing)
    if fields is None and issubclass(thing, enum.Enum):
        return _of_enum(thing), lambda member: (member.value,)
    if fields is None and issubclass(thing, tuple) and hasattr(thing, "_fields"):
        names = thing._fields

        def make_tuple(*values: Any) -> Any:
            _count(thing, values, names)
            return thing(*values)

        return make_tuple, tuple
    if fields is None and dataclasses.is_dataclass(thing):
        initial = thing.__dataclass_fields__.values()
        if any(getattr(one, "_field_type", None) is dataclasses._FIELD_INITVAR for one in initial):  # type: ignore[attr-defined]
            raise TypeError(f"expected a dataclass that its fields make, {thing.__qualname__} has an InitVar")
        fields = tuple(one.name for one in dataclasses.fields(thing) if one.init)
    if fields is None:
        return lambda *values: thing(*values), None
    named = fields

    def make(*values: Any) -> Any:
        _count(thing, values, named)
        return thing(**dict(zip(named, values, strict=True)))

    return make, lambda one: tuple(getattr(one, name) for name in named)


def _count(thing: Any, values: tuple[Any, ...], names: Sequence[str]) -> None:
    if len(values) != len(names):
        raise DecodeError(
            f"expected {len(names)} fields of {thing.__qualname__}, got {len(values)}: is it the same class?"
        )


def _of_enum(thing: type[enum.Enum]) -> Callable[..., Any]:
    def make(*values: Any) -> Any:
        (value,) = values
        # A flag that keeps unknown bits would remember each number that comes.
        if issubclass(thing, enum.Flag) and (type(value) is not int or value & ~thing._flag_mask_):  # type: ignore[attr-defined]
            raise DecodeError(f"expected flags that {thing.__qualname__} has, got {_short(value)}")
        return thing(value)

    return make


def _of_state(thing: type) -> tuple[Callable[..., Any], _Reduce]:
    if getattr(thing, "__new__") is not object.__new__ or issubclass(thing, type):  # noqa: B009 - for mypy
        raise TypeError(
            f"expected a class whose instances object.__new__ makes, {thing.__qualname__} has a __new__ of its own, "
            "which may return what existed before; register it with fields=[...], or give it a __reduce__"
        )

    def make(*values: Any) -> Any:
        (state,) = values
        new = object.__new__(thing)
        restore = getattr(new, "__setstate__", None)
        if restore is not None:
            restore(state)
            return new
        if type(state) is not dict:
            raise DecodeError(f"expected the state of {thing.__qualname__} as a dict, got {_short(state)}")
        for name, value in state.items():
            if type(name) is not str or name.startswith("__") or not _is_free(thing, name):
                raise DecodeError(f"expected names of attributes that {thing.__qualname__} leaves free, got {name!r}")
            object.__setattr__(new, name, value)
        return new

    def reduce(one: Any) -> tuple[Any, ...]:
        state = one.__getstate__()
        if type(state) is tuple and len(state) == 2 and not hasattr(one, "__setstate__"):
            state = {**(state[0] or {}), **(state[1] or {})}
        return (state if state is not None else {},)

    return make, reduce


def _is_free(thing: type, name: str) -> bool:
    """May an instance have an attribute of this name: is it a slot, or nothing that the class computes?"""
    for kind in thing.__mro__:
        if name in kind.__dict__:
            found = kind.__dict__[name]
            return isinstance(found, types.MemberDescriptorType) or not hasattr(type(found), "__get__")
    return True


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, buffers: list[Any], allowed: dict[int, tuple[Any, _Reduce | None]]) -> None:
        super().__init__(out, 5, buffer_callback=_collector(buffers))
        self._allowed = allowed

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in self._allowed:
            return NotImplemented
        kind = type(obj)
        if id(kind) not in self._allowed:
            raise EncodeError(
                f"expected plain values and instances of registered classes, got {_short(obj)}; register its class on "
                "both sides: Pickle(classes=[...])"
            )
        reduce = self._allowed[id(kind)][1]
        if reduce is not None:
            return kind, reduce(obj)
        reduced = obj.__reduce_ex__(5)
        if isinstance(reduced, str) or any(part is not None for part in reduced[2:]):
            raise EncodeError(
                f"expected an instance that its class makes from values, got {_short(obj)}, which has a state; "
                "codec.register(cls, fields=[...]) names its attributes, codec.register(cls, state=True) sends them all"
            )
        function, values_ = reduced[:2]
        if function is getattr(copyreg, "__newobj__"):  # noqa: B009 - mypy does not know it
            function, values_ = values_[0], values_[1:]
        return function, values_


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
