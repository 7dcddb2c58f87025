"""Filters made into functions of an entry, and into the few entries that can match at all.

    matches = Matcher(schema).compile(filter)
    matches(node, forbidden)              # True, False, or None for "undefined" (RFC 4511, 4.5.1.7)

`forbidden` are the attributes that who asks may not search by: a part that names one is undefined, whatever the entry
has, so nobody learns a value by asking for it.  An attribute that no entry ever had, a value that the syntax forbids
and a comparison that the attribute has no rule for are undefined, too.

A filter may have thousands of parts and a value a megabyte, so the functions count what they do in `Work.spent`, and
call `Work.rest` when that is much: the one who searches lets other threads run there. An entry may change meanwhile.

Cost: 0.5 µs for each part and entry; values in the form that is compared are kept with the entry once they were needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from coro.ldap import filters
from coro.ldap.server.schema import AttributeType, MatchingRule, Schema

if TYPE_CHECKING:
    from coro.ldap.server.tree import Node

__all__ = ["Matcher", "Matches", "Work"]

Matches = Callable[["Node", Collection[str]], "bool | None"]


#: Units of work, each about a part of a filter and 64 bytes of a value, after which `Work.rest` is called.
UNITS = 100


class Work:
    """Counts the work of comparing. `rest` is called when `spent` is above UNITS, and sets it back."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    def rest(self) -> None:
        """Here nothing waits; a search lets other threads run."""
        self.spent = 0


def _undefined(node: Node, forbidden: Collection[str]) -> bool | None:
    return None


class Matcher:
    """Compiles filters.  One is made for each search; it holds nothing but the schema.  work: counts what is done."""

    def __init__(self, schema: Schema, work: Work | None = None) -> None:
        self.schema = schema
        self.work = work if work is not None else Work()
        #: The attributes that the filters name.
        self.attributes: set[str] = set()

    def compile(self, filter: filters.Filter) -> Matches:
        """A function of an entry and the attributes that may not be asked for."""
        self.work.spent += 4
        if self.work.spent > UNITS:
            self.work.rest()
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
            return _pieces(filter, type.equality, self.work)
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

    def _and(self, parts: list[Matches]) -> Matches:
        if len(parts) == 1:
            return parts[0]
        work = self.work

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            found: bool | None = True
            for part in parts:
                work.spent += 1
                if work.spent > UNITS:
                    work.rest()
                one = part(node, forbidden)
                if one is False:
                    return False
                if one is None:
                    found = None
            return found

        return matches

    def _or(self, parts: list[Matches]) -> Matches:
        if len(parts) == 1:
            return parts[0]
        work = self.work

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            found: bool | None = False
            for part in parts:
                work.spent += 1
                if work.spent > UNITS:
                    work.rest()
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
        if filter.attribute is not None:
            base, options = schema.split(filter.attribute)
            type = schema.types.get(base)
            if type is None:
                return _undefined
            used = rule if rule is not None else type.equality
            keys = schema.kinds(base)
        else:
            options, used = (), rule  # a filter names one of the two
            keys = frozenset(one.key for one in schema.types.values() if one.equality is rule)
            self.work.spent += len(schema.types) >> 4
        test = None if used is None else self._rule_test(used, filter.value)
        if test is None:
            return _undefined
        self.attributes |= keys
        raw = self._raw(keys, options, test)
        return self._or([raw, self._in_name(keys, test)]) if filter.dn else raw

    def _rule_test(self, used: MatchingRule, value: bytes) -> Callable[[bytes], bool] | None:
        """A function of one value as it is kept; None if the rule cannot compare with this value."""
        normalize = used.normalize
        try:
            if used.kind == "substrings":
                text = value.split(b"*")
                pieces = filters.Substrings("x", text[0] or None, [one for one in text[1:-1] if one], text[-1] or None)
                inside = _pieces(pieces, used, self.work)
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

    def _raw(self, keys: frozenset[str], options: tuple[str, ...], test: Callable[[bytes], bool]) -> Matches:
        wanted = set(options)
        work = self.work

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            for key, values in node.attributes.items():
                name, _, rest = key.partition(";")
                if name in keys and name not in forbidden and wanted <= set(rest.split(";")):
                    for value in values:
                        # It is made comparable each time.
                        work.spent += 4 + (len(value) >> 4)
                        if work.spent > UNITS:
                            work.rest()
                        try:
                            if test(value):
                                return True
                        except ValueError:
                            continue
            return False if keys.isdisjoint(forbidden) else None

        return matches

    def _in_name(self, keys: frozenset[str], test: Callable[[bytes], bool]) -> Matches:
        find = self.schema.find
        work = self.work

        def matches(node: Node, forbidden: Collection[str]) -> bool | None:
            work.spent += 20
            for rdn in node.parsed().rdns:
                for attribute, value in rdn:
                    type = find(attribute)
                    if type is None or type.key not in keys or type.key in forbidden or not isinstance(value, str):
                        continue
                    try:
                        if test(value.encode("utf-8")):
                            return True
                    except ValueError:
                        continue
            return False if keys.isdisjoint(forbidden) else None

        return matches


#: Attributes that are computed: `Node.values` gives them.
COMPUTED = frozenset({"entrydn", "hassubordinates", "subschemasubentry"})


def _pieces(filter: filters.Substrings, rule: MatchingRule, work: Work) -> Callable[[Any], bool]:
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
        work.spent += len(value) >> 6
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
