"""Who may do what with which entries and attributes.

    rules = [
        Rule("self", Level.WRITE, attributes=["userPassword", "telephoneNumber"]),
        Rule("users", Level.READ, subtree="ou=people,dc=example,dc=org"),
    ]

Rules are looked at from the first to the last; the first one that fits the entry, the attribute and who asks decides,
and where none fits nothing is allowed.  A level includes those below it.  Whoever is an administrator of the server may
do everything.

Without rules of one's own, `DEFAULT_RULES` hold: who is logged in reads everything except passwords and may change the
own one; strangers may log in and nothing else.

Cost: for each entry of a search one look at a dict, if no rule speaks of `self` or a subtree; else one for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from coro.ldap.dn import DN
from coro.ldap.exceptions import LocalError
from coro.ldap.server.schema import Schema

__all__ = ["DEFAULT_RULES", "Access", "Level", "Rule"]

Name = tuple[frozenset[tuple[str, Any]], ...]


class Level(IntEnum):
    """What a rule allows; each level includes those before it."""

    #: Nothing; the entry does not seem to exist.
    NONE = 0
    #: To log in with it (userPassword).
    AUTH = 1
    #: To ask whether an attribute has a value.
    COMPARE = 2
    #: To use an attribute in filters.
    SEARCH = 3
    #: To see values.
    READ = 4
    #: To change values; with the attribute "entry", to delete and rename, and with "children", to put entries below.
    WRITE = 5


@dataclass(frozen=True)
class Rule:
    """One rule.

    who: "anyone", "anonymous", "users" (all who are logged in), "self" (the entry itself), "dn:NAME", "subtree:NAME"
    (all at or below that name) or "group:NAME" (values of member or uniqueMember of that entry).  level: what they
    may.
    subtree: the name of the highest entry that this is about, "" for all.  attributes: those that this is about, None
    for all; "entry" stands for the entry itself and "children" for what is put below it.
    """

    who: str
    level: Level
    subtree: str = ""
    attributes: Iterable[str] | None = None


#: The names that hold secrets.
SECRETS = ("userPassword", "authPassword")

DEFAULT_RULES = (
    Rule("self", Level.WRITE, attributes=("userPassword",)),
    Rule("anonymous", Level.AUTH, attributes=SECRETS),
    Rule("anyone", Level.NONE, attributes=SECRETS),
    Rule("users", Level.READ),
)


class _Compiled:
    __slots__ = ("attributes", "level", "name", "subtree", "who")

    def __init__(self, rule: Rule, schema: Schema) -> None:
        self.who, _, name = rule.who.partition(":")
        if self.who not in ("anyone", "anonymous", "users", "self", "dn", "subtree", "group") or (
            bool(name) != (self.who in ("dn", "subtree", "group"))
        ):
            raise LocalError(
                "expected anyone, anonymous, users, self, dn:NAME, subtree:NAME or group:NAME for who, "
                f"got {rule.who!r:.60}"
            )
        self.name: Name = DN.parse(name).normalized
        self.level = Level(rule.level)
        self.subtree: Name = DN.parse(rule.subtree).normalized
        if isinstance(rule.attributes, str):
            raise TypeError(f"expected a list of attributes, not the str {rule.attributes!r:.60}")
        self.attributes = None if rule.attributes is None else frozenset(schema.key(one) for one in rule.attributes)


class View:
    """What one who asks may do with one kind of entry: a level for each attribute."""

    __slots__ = ("_levels", "_rules", "key")

    def __init__(self, rules: tuple[_Compiled, ...], key: object) -> None:
        self._rules = rules
        self._levels: dict[str, Level] = {}
        self.key = key

    def level(self, attribute: str) -> Level:
        """The level for an attribute: its key, options are of no account."""
        found = self._levels.get(attribute)
        if found is None:
            base = attribute.partition(";")[0]
            found = Level.NONE
            for rule in self._rules:
                if rule.attributes is None or base in rule.attributes:
                    found = rule.level
                    break
            if len(self._levels) < 10_000:
                self._levels[attribute] = found
        return found


class _Everything(View):
    __slots__ = ()

    def level(self, attribute: str) -> Level:
        return Level.WRITE


ALL = _Everything((), "all")


class Access:
    """The rules of a server.  members: gives the names of the members of a group."""

    def __init__(
        self,
        rules: Iterable[Rule],
        schema: Schema,
        admins: Iterable[str] = (),
        members: Callable[[Name], frozenset[Name]] = lambda name: frozenset(),
    ) -> None:
        self._rules = tuple(_Compiled(rule, schema) for rule in rules)
        self._admins = frozenset(DN.parse(name).normalized for name in admins)
        self._members = members

    def viewer(self, who: Name | None) -> Viewer:
        """How the directory looks for somebody: a normalised name, () for a stranger, None for the server itself."""
        return Viewer(self, who)


class Viewer:
    """How the directory looks for one who asks.  It lives for one operation: membership of groups is looked up once."""

    __slots__ = ("_everything", "_narrow", "_rules", "_views", "who")

    def __init__(self, access: Access, who: Name | None) -> None:
        self.who = who
        self._everything = who is None or (bool(who) and who in access._admins)
        self._views: dict[tuple[int, ...], View] = {}
        rules = []
        for number, rule in enumerate(access._rules):
            kind, name = rule.who, rule.name
            if self._everything or who is None:
                break
            if (
                kind == "anyone"
                or (kind == "anonymous" and not who)
                or (kind in ("users", "self") and who)
                or (kind == "dn" and who == name)
                or (kind == "subtree" and who and who[len(who) - len(name) :] == name)
                or (kind == "group" and who and who in access._members(name))
            ):
                rules.append((number, rule))
        self._rules = rules
        #: Whether it depends on the entry which rules hold.
        self._narrow = any(rule.who == "self" or rule.subtree for _, rule in rules)

    def view(self, name: Name) -> View:
        """What may be done with the entry of this name."""
        if self._everything:
            return ALL
        if not self._narrow:
            numbers: tuple[int, ...] = ()
            view = self._views.get(numbers)
            if view is None:
                view = self._views[numbers] = View(
                    tuple(rule for _, rule in self._rules), tuple(number for number, _ in self._rules)
                )
            return view
        fits = [
            (number, rule)
            for number, rule in self._rules
            if (rule.who != "self" or name == self.who)
            and (not rule.subtree or name[max(0, len(name) - len(rule.subtree)) :] == rule.subtree)
        ]
        numbers = tuple(number for number, _ in fits)
        view = self._views.get(numbers)
        if view is None:
            view = self._views[numbers] = View(tuple(rule for _, rule in fits), numbers)
        return view
