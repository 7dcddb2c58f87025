"""The entries of a directory, in memory: a tree with indexes for some attributes.

    directory = Directory("dc=example,dc=org")
    directory.load(open("init.ldif", "rb"))
    directory.modify("uid=fred,dc=example,dc=org", [("replace", "title", [b"boss"])])
    [entry.dn for entry in directory.search("dc=example,dc=org", "(uid=f*)")]

A change is checked wholly before anything is altered, and no step of it lets other threads run: it happens or it does
not.  Each change tells its `Record`s, in the form of LDIF, to whoever keeps them (journal.py): a record holds the whole
entry as it is afterwards, so that reading it twice does no harm.

An index is a dict of values, in the form that is compared, to the entries that have them.  A search takes the smallest
set that the filter leaves, or walks the subtree, and then looks at each entry.

Cost: 0.3 ms to read an entry of fifteen attributes from LDIF; renaming costs a visit to each entry below.  Rejected:
indexes for pieces of text.  A look at each of ten thousand entries takes 10 ms; who has a million wants a database.

Longer than most files because the rules of RFC 4511 for changes stand together.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from coro.ldap import filters, ldif, query
from coro.ldap.dn import DN
from coro.ldap.exceptions import DNError, LDIFError
from coro.ldap.server._refusal import Refused
from coro.ldap.server.access import Name
from coro.ldap.server.matching import COMPUTED, Matcher
from coro.ldap.server.schema import Schema

__all__ = ["DEFAULT_INDEXES", "Directory", "Node"]

#: Attributes with an index unless the caller names others.
DEFAULT_INDEXES = (
    "objectClass", "uid", "cn", "sn", "givenName", "mail", "member", "uniqueMember", "memberUid", "ou", "o", "dc",
    "uidNumber", "gidNumber", "employeeNumber", "entryUUID",
)  # fmt: skip

_DESCRIPTION = re.compile(r"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+)(?:;[A-Za-z0-9-]+)*", re.ASCII)
#: Entries of indexes that are put together for one search; more are found by a walk, which lets other threads run.
_CANDIDATES = 1 << 16
_KINDS = {"add": 0, "delete": 1, "replace": 2, "increment": 3}

Values = Sequence[bytes | str]
Record = ldif.Entry | ldif.Delete | ldif.ModifyDN


class Node:
    """An entry of the tree.

    dn: its name as it was written.  name: what is compared of it.  attributes: keys of the schema to values.
    """

    __slots__ = (
        "_compared", "attributes", "children", "directory", "dn", "encoded", "described", "name", "parent",
    )  # fmt: skip

    def __init__(self, directory: Directory, dn: str, name: Name, attributes: dict[str, list[bytes]]) -> None:
        self.directory = directory
        self.dn = dn
        self.name = name
        self.parent: Node | None = None
        self.children: dict[Name, Node] = {}
        self.set(attributes)

    def set(self, attributes: dict[str, list[bytes]]) -> None:
        """Give it other attributes."""
        self.attributes = attributes
        #: The descriptions of each type, if one of them has options.
        self.described: dict[str, list[str]] | None = None
        if any(";" in key for key in attributes):
            self.described = {}
            for key in attributes:
                self.described.setdefault(key.partition(";")[0], []).append(key)
        self._compared: dict[str, list[Any]] = {}
        #: What was sent last: what was asked for, and the bytes.
        self.encoded: tuple[object, bytes] | None = None

    def values(self, key: str) -> list[Any]:
        """The values of an attribute in the form that is compared; of computed ones, too."""
        found = self._compared.get(key)
        if found is None:
            held = self.attributes.get(key)
            if held is None:
                held = self.computed().get(key, [])
                return [self.directory.schema.types[key].normalize(value) for value in held]
            type = self.directory.schema.learn(key.partition(";")[0])
            found = self._compared[key] = [type.normalize(value) for value in held]
        return found

    def computed(self) -> dict[str, list[bytes]]:
        """Operational attributes that are not kept (RFC 4512, 3.4; RFC 5020)."""
        return {
            "entrydn": [self.dn.encode()],
            "hassubordinates": [b"TRUE" if self.children else b"FALSE"],
            "subschemasubentry": [b"cn=Subschema"],
        }

    def parsed(self) -> DN:
        """Its name."""
        return DN.parse(self.dn)

    def __repr__(self) -> str:
        return f"<Node {self.dn!r}>"


def _now() -> bytes:
    return datetime.now(UTC).strftime("%Y%m%d%H%M%SZ").encode()


def _raw(values: Iterable[bytes | str]) -> list[bytes]:
    return [value.encode("utf-8") if isinstance(value, str) else bytes(value) for value in values]


class Directory:
    """The entries below one or more names.

    suffixes: the names of the highest entries, such as "dc=example,dc=org".  indexes: attributes to keep an index for.
    schema: the attributes that are known.

    Changes raise `Refused`, with the code that a client gets.
    """

    def __init__(self, *suffixes: str, indexes: Iterable[str] = DEFAULT_INDEXES, schema: Schema | None = None) -> None:
        if not suffixes:
            raise ValueError("expected the name of the highest entry, such as 'dc=example,dc=org', got none")
        self.schema = schema if schema is not None else Schema()
        self.suffixes = tuple(str(DN.parse(suffix)) for suffix in suffixes)
        self._tops = {DN.parse(suffix).normalized for suffix in suffixes}
        self.nodes: dict[Name, Node] = {}
        self._index: dict[str, dict[Any, dict[Node, None]]] = {
            key: {} for key in map(self.schema.key, indexes) if key not in COMPUTED
        }
        self._record: Callable[[Sequence[Record]], object] | None = None
        #: Counts changes.
        self.changes = 0
        #: Why changes are refused at the moment; None if they are not.
        self.refusal: Refused | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<Directory {', '.join(self.suffixes)} with {len(self.nodes)} entries>"

    # -- names

    def _parse(self, dn: str | DN) -> DN:
        try:
            found = DN.parse(dn) if isinstance(dn, str) else dn
        except DNError as exc:
            raise Refused(34, str(exc)) from None
        if len(found) > 100:
            raise Refused(34, f"expected a name of at most 100 parts, got {len(found)}")
        return found

    def node(self, dn: str | DN) -> Node:
        """The entry of a name.  Raises Refused."""
        name = self._parse(dn).normalized
        node = self.nodes.get(name)
        if node is None:
            raise Refused(32, f"there is no entry {str(dn)!r:.200}", self._matched(name))
        return node

    def _matched(self, name: Name) -> str:
        while name:
            name = name[1:]
            if name in self.nodes:
                return self.nodes[name].dn
        return ""

    def get(self, dn: str) -> ldif.Entry | None:
        """The entry of a name, a copy; None if there is none.  Raises Refused for what is no name."""
        node = self.nodes.get(self._parse(dn).normalized)
        return None if node is None else self._copy(node)

    def _copy(self, node: Node) -> ldif.Entry:
        shown = self.schema.shown
        return ldif.Entry(node.dn, {shown(key): list(values) for key, values in node.attributes.items()})

    # -- reading

    def dump(self) -> Iterator[ldif.Entry]:
        """All entries, those above first."""
        for top in [node for node in self.nodes.values() if node.parent is None]:
            for node in self.walk(top):
                yield self._copy(node)

    @staticmethod
    def walk(top: Node) -> Iterator[Node]:
        """An entry and all below it.  The tree may change meanwhile."""
        waiting = [top]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(list(node.children.values())))

    def candidates(self, filter: filters.Filter) -> dict[Node, None] | None:
        """The entries that may match, as far as the indexes tell; None if they do not."""
        return self._candidates(filter, [_CANDIDATES])

    def _candidates(self, filter: filters.Filter, room: list[int]) -> dict[Node, None] | None:
        """room: how many entries may still be put together; behind that, the indexes tell nothing."""
        if isinstance(filter, filters.And):
            best = None
            for part in filter.filters:
                some = self._candidates(part, room)
                if some is not None and (best is None or len(some) < len(best)):
                    best = some
            return best
        if isinstance(filter, filters.Or):
            union: dict[Node, None] = {}
            for part in filter.filters:
                some = self._candidates(part, room)
                if some is None or not self._unite(union, some, room):
                    return None
            return union
        if isinstance(filter, filters.Equal):
            base, _ = self.schema.split(filter.attribute)
            type = self.schema.types.get(base)
            if type is None:
                return {}
            found: dict[Node, None] = {}
            kinds = self.schema.kinds(base)
            for kind in kinds:
                index = self._index.get(kind)
                if index is None:
                    return None
                try:
                    some = index.get(self.schema.types[kind].normalize(filter.value), {})
                except (ValueError, UnicodeDecodeError):
                    continue
                if len(kinds) == 1:
                    return some
                if not self._unite(found, some, room):
                    return None
            return found
        return None

    @staticmethod
    def _unite(union: dict[Node, None], more: dict[Node, None], room: list[int]) -> bool:
        room[0] -= len(more)
        if room[0] < 0:
            return False
        union.update(more)
        return True

    def scan(self, base: Node, scope: int, filter: filters.Filter) -> Iterator[Node]:
        """The entries within a scope that may match the filter; the caller looks at each."""
        if scope == 0:
            return iter((base,))
        some = self.candidates(filter)
        if some is not None and (scope != 1 or len(some) < len(base.children)):
            name, size = base.name, len(base.name)
            if scope == 1:
                return (node for node in list(some) if node.parent is base)
            least = size + (scope == 3)
            return (
                node for node in list(some) if len(node.name) >= least and node.name[len(node.name) - size :] == name
            )
        if scope == 1:
            return iter(list(base.children.values()))
        found = self.walk(base)
        if scope == 3:
            next(found)
        return found

    def search(
        self, base: str, filter: str | filters.Filter = "(objectClass=*)", scope: int = 2
    ) -> Iterator[ldif.Entry]:
        """The entries that match, without any access rule.

        base: a name.  filter: text of RFC 4515 or a filter.  scope: 0 the entry, 1 those right below it, 2 all, 3 all
        but the entry.  Raises Refused, and QuerySyntaxError for a malformed filter.
        """
        parsed = query.parse(filter) if isinstance(filter, str) else filter
        matches = Matcher(self.schema).compile(parsed)
        for node in self.scan(self.node(base), scope, parsed):
            if matches(node, ()):
                yield self._copy(node)

    def members(self, name: Name) -> frozenset[Name]:
        """The names of the members of a group."""
        node = self.nodes.get(name)
        if node is None:
            return frozenset()
        return frozenset(
            value for key in ("member", "uniquemember") if key in node.attributes for value in node.values(key)
        )

    # -- changing

    def load(self, source: Iterable[bytes | str]) -> int:
        """Add the entries of LDIF, those above first; returns how many.  Raises LDIFError and Refused."""
        count = 0
        for record in ldif.read(source):
            if isinstance(record, ldif.Delete | ldif.Modify | ldif.ModifyDN):
                raise LDIFError(f"expected entries, got a change of {record.dn!r:.100}")
            try:
                self.add(record.dn, record.attributes, operational=True)
            except Refused as exc:
                exc.args = (exc.code, f"{record.dn!r:.100}: {exc.diagnostic}", exc.matched)
                exc.diagnostic = exc.args[1]
                raise
            count += 1
        return count

    def _key(self, description: str) -> str:
        if _DESCRIPTION.fullmatch(description) is None:
            raise Refused(17, f"expected the name of an attribute, got {description!r:.60}")
        if len(description) > 200:
            raise Refused(17, "expected the name of an attribute of at most 200 characters")
        self.schema.learn(description.partition(";")[0])
        return self.schema.key(description)

    def _checked(self, key: str, values: list[bytes]) -> list[Any]:
        """The values in the form that is compared.  Raises Refused if the syntax forbids one, or it is there twice."""
        type = self.schema.types[key.partition(";")[0]]
        try:
            compared = [type.normalize(value) for value in values]
        except (ValueError, UnicodeDecodeError) as exc:
            raise Refused(21, f"{type.names[0]}: {exc}") from None
        if len(compared) > 1:
            if type.single:
                raise Refused(19, f"{type.names[0]} has one value at most, got {len(values)}")
            if len(set(compared)) != len(compared):
                raise Refused(20, f"{type.names[0]}: a value is there twice")
        return compared

    def _ready(self) -> None:
        if self.refusal is not None:
            raise Refused(self.refusal.code, self.refusal.diagnostic)

    def _tell(self, *records: Record) -> None:
        self.changes += 1
        if self._record is not None:
            self._record(records)

    def add(
        self,
        dn: str,
        attributes: Mapping[str, Values] | Iterable[tuple[str, Values]],
        by: str = "",
        operational: bool = False,
    ) -> None:
        """Add an entry.

        attributes: names to values.  by: who does it.  operational: take over what the server else sets by itself.
        Raises Refused.
        """
        self._ready()
        parsed = self._parse(dn)
        name = parsed.normalized
        if name in self.nodes:
            raise Refused(68, f"there is an entry {dn!r:.200} already")
        parent = self.nodes.get(name[1:])
        if name not in self._tops and parent is None:
            raise Refused(32, "the entry above is missing", self._matched(name))
        held: dict[str, list[bytes]] = {}
        for description, values in attributes.items() if isinstance(attributes, Mapping) else attributes:
            key = self._key(description)
            if self.schema.types[key.partition(";")[0]].operational and not operational:
                raise Refused(19, f"{description} is kept by the server")
            if key in COMPUTED:
                continue
            if not values:
                raise Refused(21, f"{description}: expected one value at least")
            held.setdefault(key, []).extend(_raw(values))
        if not held.get("objectclass"):
            raise Refused(65, "an entry has one object class at least")
        for key, some in held.items():
            self._checked(key, some)
        self._name_values(parsed, held)
        now = _now()
        held.setdefault("entryuuid", [str(uuid.uuid4()).encode()])
        held.setdefault("creatorsname", [by.encode()])
        held.setdefault("createtimestamp", [now])
        held.setdefault("modifiersname", [by.encode()])
        held.setdefault("modifytimestamp", [now])
        node = self._put(parsed, held)
        self._tell(self._copy(node))

    def _name_values(self, dn: DN, held: dict[str, list[bytes]]) -> None:
        """See that the values of the relative name are in the entry (RFC 4511, 4.7)."""
        if not dn:
            raise Refused(64, "expected a name that is not empty")
        for attribute, value in dn.rdns[0]:
            key = self._key(attribute)
            if isinstance(value, bytes):
                raise Refused(64, "expected a value as text in the name of an entry, got BER")
            raw = value.encode("utf-8")
            there = held.get(key, [])
            compared = self._checked(key, there)
            (wanted,) = self._checked(key, [raw])
            if wanted not in compared:
                held[key] = [*there, raw]
                self._checked(key, held[key])

    def _put(self, dn: DN, held: dict[str, list[bytes]]) -> Node:
        # The upper part of the name is spelt as that of the entry above.
        name = dn.normalized
        parent = self.nodes.get(name[1:])
        node = Node(self, str(dn) if parent is None else f"{dn.rdn},{parent.dn}", name, held)
        node.parent = parent
        if node.parent is not None:
            node.parent.children[node.name] = node
        self.nodes[node.name] = node
        self._enter(node)
        return node

    def _enter(self, node: Node) -> None:
        for key in node.attributes:
            index = self._index.get(key.partition(";")[0])
            if index is not None:
                for value in node.values(key):
                    index.setdefault(value, {})[node] = None

    def _leave(self, node: Node) -> None:
        for key in node.attributes:
            index = self._index.get(key.partition(";")[0])
            if index is not None:
                for value in node.values(key):
                    there = index.get(value)
                    if there is not None:
                        there.pop(node, None)
                        if not there:
                            del index[value]

    def delete(self, dn: str, tree: bool = False) -> None:
        """Delete an entry; with `tree`, also all below it.  Raises Refused."""
        self._ready()
        node = self.node(dn)
        if node.children and not tree:
            raise Refused(66, f"there are entries below {node.dn!r:.200}")
        gone = list(self.walk(node))[::-1]
        for one in gone:
            self._remove(one)
        self._tell(*(ldif.Delete(one.dn) for one in gone))

    def _remove(self, node: Node) -> None:
        self._leave(node)
        del self.nodes[node.name]
        if node.parent is not None:
            node.parent.children.pop(node.name, None)

    def modify(
        self, dn: str, changes: Iterable[tuple[str | int, str, Values]], by: str = "", operational: bool = False
    ) -> None:
        """Change an entry.

        changes: triples of add, delete, replace or increment (RFC 4525), the attribute, and values.  by: who does it.
        operational: also attributes that the server keeps.  Raises Refused; then nothing has changed.
        """
        self._ready()
        node = self.node(dn)
        held = {key: list(values) for key, values in node.attributes.items()}
        for change, description, given in changes:
            self._change(held, change, description, _raw(given), operational)
        if not held.get("objectclass"):
            raise Refused(65, "an entry has one object class at least")
        for attribute, value in node.parsed().rdns[0]:
            key = self._key(attribute)
            assert isinstance(value, str)  # `_name_values` takes no other
            if self._checked(key, [value.encode()])[0] not in self._checked(key, held.get(key, [])):
                raise Refused(67, f"the value of {attribute} is a part of the entry's name")
        held["modifiersname"] = [by.encode()]
        held["modifytimestamp"] = [_now()]
        self._replace(node, held)
        self._tell(self._copy(node))

    def _replace(self, node: Node, held: dict[str, list[bytes]]) -> None:
        self._leave(node)
        node.set(held)
        self._enter(node)

    def _change(
        self,
        held: dict[str, list[bytes]],
        change: str | int,
        description: str,
        values: list[bytes],
        operational: bool,
    ) -> None:
        kind = _KINDS.get(change) if isinstance(change, str) else change
        key = self._key(description)
        type = self.schema.types[key.partition(";")[0]]
        if type.operational and not operational:
            raise Refused(19, f"{description} is kept by the server")
        there = held.get(key, [])
        if kind == 0:
            if not values:
                raise Refused(2, f"{description}: expected values to add")
            held[key] = there + values
            self._checked(key, held[key])
        elif kind == 2:
            self._checked(key, values)
            if values:
                held[key] = values
            else:
                held.pop(key, None)
        elif kind == 1:
            if not there:
                raise Refused(16, f"there is no {description}")
            gone = self._checked(key, values) if values else None
            left = []
            if gone is not None:
                wanted = set(gone)
                compared = self._checked(key, there)
                if not wanted <= set(compared):
                    raise Refused(16, f"{description} has no such value")
                left = [value for value, one in zip(there, compared, strict=True) if one not in wanted]
            if left:
                held[key] = left
            else:
                del held[key]
        elif kind == 3:
            if type.equality is None or type.equality.name != "integerMatch":
                raise Refused(19, f"{description} is no number")
            if len(values) != 1:
                raise Refused(2, f"{description}: expected one number to add, got {len(values)}")
            if not there:
                raise Refused(16, f"there is no {description}")
            (step,) = self._checked(key, values)
            held[key] = [str(number + step).encode() for number in self._checked(key, there)]
        else:
            raise Refused(2, f"expected add, delete, replace or increment, got {change!r:.40}")

    def rename(
        self, dn: str, new_rdn: str, delete_old: bool = True, new_superior: str | None = None, by: str = ""
    ) -> None:
        """Give an entry another relative name, or another place; all below it move with it.

        delete_old: the values of the old relative name go.  new_superior: the entry below which it is to be.  by: who
        does it.  Raises Refused; then nothing has changed.
        """
        self._ready()
        node = self.node(dn)
        first = self._parse(new_rdn)
        if len(first) != 1:
            raise Refused(34, f"expected one relative name, got {new_rdn!r:.100}")
        if new_superior is None:
            above = DN(*node.parsed().rdns[1:])
        else:
            above = self._parse(self.node(new_superior).dn)
        target = first + above
        name = target.normalized
        size = len(node.name)
        if above.normalized[max(0, len(above) - size) :] == node.name:
            raise Refused(53, "an entry cannot be below itself")
        if name != node.name and name in self.nodes:
            raise Refused(68, f"there is an entry {str(target)!r:.200} already")
        if node.parent is None and name not in self._tops and name[1:] not in self.nodes:
            raise Refused(71, "the highest entry of this directory cannot leave it")
        held = {key: list(values) for key, values in node.attributes.items()}
        if delete_old:
            keep = {(self._key(attribute), value) for attribute, value in first.rdns[0]}
            for attribute, value in node.parsed().rdns[0]:
                key = self._key(attribute)
                assert isinstance(value, str)  # `_name_values` takes no other
                if (key, value) not in keep:
                    (wanted,) = self._checked(key, [value.encode()])
                    there = held.get(key, [])
                    left = [one for one, c in zip(there, self._checked(key, there), strict=True) if c != wanted]
                    if left:
                        held[key] = left
                    else:
                        held.pop(key, None)
        self._name_values(target, held)
        held["modifiersname"] = [by.encode()]
        held["modifytimestamp"] = [_now()]
        old = node.dn
        self._move(node, target)
        self._replace(node, held)
        self._tell(ldif.ModifyDN(old, new_rdn, delete_old, str(above)), self._copy(node))

    def _move(self, top: Node, target: DN) -> None:
        moved = list(self.walk(top))
        if top.parent is not None:
            top.parent.children.pop(top.name, None)
        old, text = len(top.name), len(top.dn)
        above, written = target.normalized, str(target)
        for node in moved:
            del self.nodes[node.name]
        for node in moved:
            node.name = node.name[: len(node.name) - old] + above
            # Texts are those of `DN`, so the lower part of the name is the same text.
            node.dn = node.dn[: len(node.dn) - text] + written
            node.encoded = None
            self.nodes[node.name] = node
        top.parent = self.nodes.get(above[1:])
        for node in moved:
            node.children = {child.name: child for child in node.children.values()}
        if top.parent is not None:
            top.parent.children[top.name] = top

    def replay(self, record: ldif.Record) -> None:
        """Do what a record of this directory says, again (journal.py).  Raises Refused if it does not fit."""
        if isinstance(record, ldif.Delete):
            node = self.nodes.get(self._parse(record.dn).normalized)
            if node is not None:
                self._remove(node)
        elif isinstance(record, ldif.ModifyDN):
            node = self.node(record.dn)
            self._leave(node)
            self._move(node, self._parse(record.newrdn) + self._parse(record.newsuperior or ""))
            self._enter(node)
        elif isinstance(record, ldif.Entry):
            parsed = self._parse(record.dn)
            held = {self._key(name): list(values) for name, values in record.attributes.items()}
            there = self.nodes.get(parsed.normalized)
            if there is None:
                self._put(parsed, held)
            else:
                self._replace(there, held)
        else:
            raise Refused(80, f"expected a record of a journal, got {record!r:.100}")
