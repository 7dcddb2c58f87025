"""Filters made into functions of an entry, and into the few entries that can match at all.

    matches = Matcher(schema).compile(filter)
    matches(node, forbidden)              # True, False, or None for "undefined" (RFC 4511, 4.5.1.7)

`forbidden` are the attributes that who asks may not search by: a part that names one is undefined, whatever the entry
has, so nobody learns a value by asking for it.  An attribute that no entry ever had, a value that the syntax forbids
and a comparison that the attribute has no rule for are undefined, too.

Cost: 0.5 µs for each part and entry; values in the form that is compared are kept with the entry once they were needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from coro.ldap import filters
from coro.ldap.server.schema import AttributeType, MatchingRule, Schema

if TYPE_CHECKING:
    from coro.ldap.server.tree import Node

__all__ = ["Matcher", "Matches"]

Matches = Callable[["Node", Collection[str]], "bool | None"]


def _undefined(node: Node, forbidden: Collection[str]) -> bool | None:
    return None


class Matcher:
    """Compiles filters.  One is made for each search; it holds nothing but the schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        #: The attributes that the filters name.
        self.attributes: set[str] = set()

    def compile(self, filter: filters.Filter) -> Matches:
        """A function of an entry and the attributes that may not be asked for."""
        if isinstance(filter, filters.And):
            return self._and([self.compile(part) for part in filter.filters])
        if isinstance(filter, filters.Or):
            return self._or([self.compile(part) for part in filter.filters])
        if isinstance(filter, filters.Not):
            return self._not(self.compile(filter.filter))
        if isinstance(filter, filters.Extensible):
            return self._extensible(filter)
        assert isinstance(
            filter,
            filters.Present
            | filters.Equal
            | filters.Approximate
            | filters.GreaterOrEqual
            | filters.LessOrEqual
            | filters.Substrings,
        )
        base, options = self.schema.split(filter.attribute)
        type = self.schema.types.get(base)
        if type is None:
            return _undefined
        try:
            test = self._test(filter, type)
        except (ValueError, UnicodeDecodeError):
            return _undefined
        if test is None and not isinstance(filter, filters.Present):
            return _undefined
        return self._on(base, options, test)

    def _test(self, filter: filters.Filter, type: AttributeType) -> Callable[[Any], bool] | None:
        """A function of one value in the form that is compared; None for any value, or if there is no rule."""
        if isinstance(filter, filters.Equal | filters.Approximate):
            if type.equality is None:
                return None
            wanted = type.normalize(filter.value)
            return lambda value: bool(value == wanted)
        if isinstance(filter, filters.GreaterOrEqual | filters.LessOrEqual):
            if not type.ordering:
                return None
            limit = type.normalize(filter.value)
            if isinstance(filter, filters.GreaterOrEqual):
                return lambda value: bool(value >= limit)
            return lambda value: bool(value <= limit)
        if isinstance(filter, filters.Substrings):
            if not type.substrings or type.equality is None:
                return None
            return _pieces(filter, type.equality)
        return None

    def _on(
        self, base: str, options: tuple[str, ...], test: Callable[[Any], bool] | None, equal: Any = None
    ) -> Matches:
        """The test for each value of the attribute, of its kinds, and of these with options."""
        kinds = self.schema.kinds(base)
        self.attributes |= kinds
        alone = len(kinds) == 1 and not options

        wanted = set(options)

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            described = node.described
            if alone and described is None:
                if base in forbidden:
                    return None
                if test is None:
                    return base in node.attributes or base in COMPUTED
                if base in node.attributes or base in COMPUTED:
                    for value in node.values(base):
                        if test(value):
                            return True
                return False
            hidden = False
            for kind in kinds:
                if kind in forbidden:
                    # Whether the entry has it or not: the answer must not tell.
                    hidden = True
                    continue
                for key in (kind,) if described is None else described.get(kind, (kind,)):
                    if wanted and not wanted <= set(key.split(";")[1:]):
                        continue
                    if key not in node.attributes and key not in COMPUTED:
                        continue
                    if test is None or any(map(test, node.values(key))):
                        return True
            return None if hidden else False

        return matches

    @staticmethod
    def _and(parts: list[Matches]) -> Matches:
        if len(parts) == 1:
            return parts[0]

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            found: bool | None = True
            for part in parts:
                one = part(node, forbidden)
                if one is False:
                    return False
                if one is None:
                    found = None
            return found

        return matches

    @staticmethod
    def _or(parts: list[Matches]) -> Matches:
        if len(parts) == 1:
            return parts[0]

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            found: bool | None = False
            for part in parts:
                one = part(node, forbidden)
                if one:
                    return True
                if one is None:
                    found = None
            return found

        return matches

    @staticmethod
    def _not(part: Matches) -> Matches:
        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            one = part(node, forbidden)
            return None if one is None else not one

        return matches

    def _extensible(self, filter: filters.Extensible) -> Matches:
        schema = self.schema
        rule = None if filter.rule is None else schema.rule(filter.rule)
        if filter.rule is not None and rule is None:
            return _undefined
        found: list[Matches] = []
        types: list[AttributeType] = []
        if filter.attribute is not None:
            base, options = schema.split(filter.attribute)
            type = schema.types.get(base)
            if type is None or (rule is None and type.equality is None):
                return _undefined
            types = [schema.types[key] for key in schema.kinds(base)]
        else:
            assert rule is not None  # a filter names one of the two
            options = ()
            types = [one for one in schema.types.values() if one.equality is rule]
        self.attributes |= {one.key for one in types}
        for one in types:
            test = self._rule_test(one, rule, filter.value)
            if test is not None:
                found.append(self._raw(one, options, test))
                if filter.dn:
                    found.append(self._in_name(one, test))
        return self._or(found) if found else _undefined

    def _rule_test(
        self, type: AttributeType, rule: MatchingRule | None, value: bytes
    ) -> Callable[[bytes], bool] | None:
        """A function of one value as it is kept; None if the rule cannot compare the attribute with this value."""
        used = rule if rule is not None else type.equality
        if used is None:
            return None
        normalize = used.normalize
        try:
            if used.kind == "substrings":
                text = value.split(b"*")
                pieces = filters.Substrings("x", text[0] or None, [one for one in text[1:-1] if one], text[-1] or None)
                inside = _pieces(pieces, used)
                return lambda held: inside(normalize(held))
            wanted = normalize(value)
        except (ValueError, UnicodeDecodeError):
            return None
        if used.kind == "ordering":
            # RFC 4517, 4.2: an ordering rule by itself asks for values that come before.
            return lambda held: bool(normalize(held) < wanted)
        if used.kind == "words":
            return lambda held: wanted in str(normalize(held)).split(" ")
        return lambda held: bool(normalize(held) == wanted)

    def _raw(self, type: AttributeType, options: tuple[str, ...], test: Callable[[bytes], bool]) -> Matches:
        wanted = set(options)

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            if type.key in forbidden:
                return None
            for key, values in node.attributes.items():
                name, _, rest = key.partition(";")
                if name == type.key and wanted <= set(rest.split(";")):
                    for value in values:
                        try:
                            if test(value):
                                return True
                        except ValueError:
                            continue
            return False

        return matches

    def _in_name(self, type: AttributeType, test: Callable[[bytes], bool]) -> Matches:
        find = self.schema.find

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            if type.key in forbidden:
                return None
            for rdn in node.parsed().rdns:
                for attribute, value in rdn:
                    if find(attribute) is type and isinstance(value, str):
                        try:
                            if test(value.encode("utf-8")):
                                return True
                        except ValueError:
                            continue
            return False

        return matches


#: Attributes that are computed: `Node.values` gives them.
COMPUTED = frozenset({"entrydn", "hassubordinates", "subschemasubentry"})


def _pieces(filter: filters.Substrings, rule: MatchingRule) -> Callable[[Any], bool]:
    """Initial, any and final, in the form that is compared; blanks at the ends of pieces count."""
    normalize = rule.normalize

    def piece(data: bytes) -> Any:
        found = normalize(data)
        if isinstance(found, str) and found and rule.name not in _WITHOUT_BLANKS:
            return (" " if data[:1] == b" " else "") + found + (" " if data[-1:] == b" " else "")
        return found

    initial = None if filter.initial is None else normalize(filter.initial.lstrip(b" ") or b" ")
    if filter.initial is not None and filter.initial.endswith(b" ") and rule.name not in _WITHOUT_BLANKS:
        initial = f"{initial} " if initial else initial
    final = None if filter.final is None else normalize(filter.final)
    if filter.final is not None and filter.final.startswith(b" ") and rule.name not in _WITHOUT_BLANKS:
        final = f" {final}" if final else final
    middle = [piece(data) for data in filter.any]

    def test(value: Any) -> bool:
        at = 0
        end = len(value)
        if initial is not None:
            if not value.startswith(initial):
                return False
            at = len(initial)
        if final is not None:
            if not value.endswith(final):
                return False
            end -= len(final)
        for one in middle:
            found = value.find(one, at, end)
            if found < 0:
                return False
            at = found + len(one)
        return at <= end

    return test


_WITHOUT_BLANKS = frozenset(
    {"telephoneNumberMatch", "telephoneNumberSubstringsMatch", "numericStringMatch", "octetStringMatch"}
)
