"""Zones: reading and writing their files, changing them, copying them from servers, and how a server has them.

    zone = Zone.read("example.org.zone", "example.org")
    with Server(zones=[zone]): ...

A `Zone` is data. `Primary` and `Secondary` are a zone in a `coro.dns.server.Server`: who may copy and change it, who is
told of changes. `transfer` copies a zone (AXFR, IXFR), `Update` changes one at its server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coro.dns import _wire
from coro.dns._packet.codec import value_of
from coro.dns._packet.numbers import CLASS_MAP, RCODE_MAP, TYPE_MAP, type_number
from coro.dns._packet.text import rdata_from_text
from coro.dns._packet.words import absolute
from coro.dns._zone import client, master, service
from coro.dns._zone.client import address_of
from coro.dns._zone.data import HISTORY, SOA, Data, Edit, Record, is_newer, text_of, type_of
from coro.dns._zone.service import Primary, Secondary
from coro.dns._zone.transfer import BYTES, RECORDS, difference
from coro.dns._zone.update import bumped
from coro.dns.exceptions import DNS_Update_Error, DNS_Zone_Error
from coro.dns.tsig import Key

__all__ = ["Primary", "Secondary", "Update", "Zone", "ZoneEdit", "notify", "transfer"]

NONE, ANY = 254, 255  # classes
ANY_TYPE = 255


def _type(name: str | int) -> int:
    return name if isinstance(name, int) else type_number(name)


class Zone:
    """A zone in memory. Make one with ``read``, ``from_text`` or ``transfer``."""

    def __init__(self, data: Data) -> None:
        """Not for programs: ``data`` is private."""
        self._data = data

    @classmethod
    def read(
        cls, path: str | Path, origin: str, *, ttl: int | None = None, include: bool = True, limit: int = RECORDS,
        history: int = HISTORY,
    ) -> Zone:  # fmt: skip
        """The zone ``origin`` from a master file (:rfc:`1035`, section 5).

        ``ttl`` is the TTL in seconds of records without one, before the file's ``$TTL``. ``$INCLUDE`` is obeyed if
        ``include`` says so; names of files are relative to the file that they are in. More than ``limit`` records are
        an error. Changes are remembered in ``history`` records, for those who copy the zone (:rfc:`1995`).

        Raises DNS_Zone_Error, which has the file and the line; ValueError if ``origin`` is no name.
        """
        wire = _wire.from_text(origin)
        return cls(master.read(Path(path), wire, ttl=ttl, include=include, limit=limit, history=history))

    @classmethod
    def from_text(cls, text: str, origin: str, *, ttl: int | None = None, limit: int = RECORDS,
                  history: int = HISTORY) -> Zone:  # fmt: skip
        """The same from the text of a file, which cannot have ``$INCLUDE``."""
        data = master.read(text, _wire.from_text(origin), ttl=ttl, include=False, limit=limit, history=history)
        return cls(data)

    @property
    def origin(self) -> str:
        """The name of the zone, without a dot at its end; "." for the root."""
        return _wire.to_text(self._data.origin)

    @property
    def serial(self) -> int:
        """The serial of the SOA record."""
        return self._data.serial

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._data)

    def records(self) -> Iterator[tuple[str, int | str, int | str, int, Any]]:
        """All records, as ``coro.dns.packet.Unpacker.getRR`` has them: ``(name, type, class, ttl, data)``. The SOA
        record is the first one."""
        for name, rtype, klass, ttl, data in self._data.records():
            text = _wire.to_text(name)
            yield (
                "" if text == "." else text, TYPE_MAP.get(rtype, rtype), CLASS_MAP.get(klass, klass), ttl,
                value_of(rtype, data, klass),
            )  # fmt: skip

    def get(self, name: str, type: str | int) -> list[tuple[int, Any]]:
        """The records that a name itself has, of a type: pairs of their TTL in seconds and their data. The name is
        absolute, with or without a dot at its end. Wildcards and delegations are not followed. Raises ValueError for
        what is no name or type."""
        rtype = _type(type)
        node = self._data.node(_wire.from_text(name))
        found = [one for key, one in node.items() if type_of(key) == rtype]
        return [(ttl, value_of(rtype, data, self._data.klass)) for ttl, datas in found for data in datas]

    def to_text(self) -> str:
        """The text of a master file, in the canonical order of names (:rfc:`4034`, section 6.1)."""
        return "".join(master.write(self._data))

    def save(self, path: str | Path) -> None:
        """Write that to a file; at no time there is half a file. Raises OSError."""
        service.save(self._data, Path(path))

    @contextmanager
    def edit(self) -> Iterator[ZoneEdit]:
        """Change the zone: what the ``with`` block has done takes place at its end, all at once, with a new serial
        unless it has set the SOA record itself. If it raises, nothing changes.

        Raises DNS_Zone_Error if the zone cannot be like that.
        """
        edit = ZoneEdit(self._data)
        yield edit
        edit._commit()

    def replace(self, other: Zone) -> None:
        """Take the records of another zone with the same name, for example of a file that was read again. Does nothing
        if there is no difference. Raises ValueError for another name, DNS_Zone_Error unless its serial is newer."""
        if other._data.origin != self._data.origin:
            raise ValueError(f"expected a zone with the name {self.origin}, not {other.origin}")
        plan = difference(self._data, other._data)
        if plan:
            if not is_newer(other.serial, self.serial):
                raise DNS_Zone_Error(f"the zone has changed, but its serial {other.serial} is not newer: raise it")
            self._data.commit(plan)

    def __repr__(self) -> str:
        return f"<coro.dns.zone.Zone {text_of(self._data.origin)} serial {self.serial}>"


class ZoneEdit:
    """Changes to a zone, see ``Zone.edit``. Names are below the zone's unless they end with a dot; ``"@"`` is the
    zone's own."""

    def __init__(self, data: Data) -> None:
        """Not for programs: ``data`` is private."""
        self._zone = data
        self._origin = "" if len(data.origin) == 1 else _wire.to_text(data.origin)
        self._edit = Edit(data)

    def _name(self, text: str) -> bytes:
        name = _wire.from_text(absolute(text, self._origin))
        if not _wire.below(name, self._zone.origin):
            raise DNS_Zone_Error(f"{text_of(name)} is not in the zone {text_of(self._zone.origin)}")
        return name

    def add(self, name: str, type: str | int, data: str, ttl: int) -> None:
        """Add a record: its ``data`` as in a zone file, its ``ttl`` in seconds, which the other records of the same
        name and type get, too. Raises ValueError (DNS_Zone_Error, PackError) for what cannot be in the zone."""
        rtype = _type(type)
        if not 0 <= ttl <= master.TTL_MAX:
            raise DNS_Zone_Error(f"expected a TTL from 0 to {master.TTL_MAX} seconds, not {ttl}")
        wire = rdata_from_text(rtype, data, self._origin)
        if rtype == SOA:
            self._edit.replace(self._name(name), rtype, ttl, wire)
        else:
            self._edit.add(self._name(name), rtype, ttl, wire)

    def remove(self, name: str, type: str | int | None = None, data: str | None = None) -> None:
        """Remove a record; all of the ``type``, without ``data``; all of the name, without both. It is no error if
        there are none."""
        owner = self._name(name)
        if type is not None and data is not None:
            rtype = _type(type)
            self._edit.remove(owner, rtype, rdata_from_text(rtype, data, self._origin))
            return
        for key in list(self._edit.node(owner)):
            if key != SOA and (type is None or type_of(key) == _type(type)):
                self._edit.remove_set(owner, key)

    def _commit(self) -> None:
        zone = self._zone
        if self._edit.plan():
            ttl, (soa,) = self._edit.node(zone.origin)[SOA]
            if soa == zone.soa[1][0]:
                self._edit.replace(zone.origin, SOA, ttl, bumped(soa))
            zone.commit(self._edit.plan())


def transfer(
    origin: str,
    server: str | tuple[str, int],
    *,
    key: Key | None = None,
    zone: Zone | None = None,
    limit: float = 3600.0,
    idle: float = 30.0,
    most: int = RECORDS,
    most_bytes: int = BYTES,
    tls: Any = None,
    tls_name: str = "",
    source: str = "",
) -> Zone:
    """Copy a zone from a server (AXFR, :rfc:`5936`). With a ``zone`` that was copied before, what has changed since is
    asked for (IXFR, :rfc:`1995`) and changed there; that zone is returned.

    ``server`` is an address, or one and a port; ``key`` signs the question and checks the reply. All of it may take
    ``limit`` seconds, each message ``idle`` seconds, and it may have ``most`` records and ``most_bytes`` bytes. With
    ``tls``, a TLS context, it comes over TLS (:rfc:`9103`); ``tls_name`` is what the certificate has to say, the
    address by default. ``source`` is the address to ask from.

    Raises DNS_Transfer_Error, DNS_Signature_Error.
    """
    port = 53 if tls is None else 853
    known = None if zone is None else zone._data
    found = client.receive(
        _wire.from_text(origin), address_of(server, port), key=key, known=known, idle=idle, limit=limit, most=most,
        most_bytes=most_bytes, tls=tls, tls_name=tls_name, source=source, history=HISTORY,
    )  # fmt: skip
    if zone is None:
        assert found is not None and found.zone is not None
        return Zone(found.zone)
    if found is not None:
        if found.zone is None:
            found.apply()
        else:
            zone._data.commit(difference(zone._data, found.zone))
    return zone


def notify(origin: str, server: str | tuple[str, int], *, zone: Zone | None = None, key: Key | None = None,
           source: str = "") -> None:  # fmt: skip
    """Tell a server that a zone has changed (:rfc:`1996`), with the SOA record of ``zone`` if that is given. ``key``
    signs it. Returns when the server has answered; it is told five times within half a minute.

    Raises DNS_Transfer_Error if it does not answer, DNS_Update_Error if it refuses, DNS_Signature_Error.
    """
    soa = None if zone is None else zone._data.soa_record
    code = client.notify(_wire.from_text(origin), address_of(server), soa, key, source)
    if code:
        raise DNS_Update_Error(origin, "NOTIFY", (code, str(RCODE_MAP.get(code, code))))


class Update:
    """Changes to a zone that a server is to make, all or none (:rfc:`2136`)::

        update = Update("example.org")
        update.absent("www")
        update.add("www", "A", "192.0.2.1", ttl=300)
        update.send("192.0.2.53", key=key)

    Names are below ``origin`` unless they end with a dot; ``"@"`` is the zone's own. ``data`` is as in a zone file.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin.rstrip(".")
        self._wire = _wire.from_text(origin)
        self._conditions: list[Record] = []
        self._changes: list[Record] = []

    def _name(self, text: str) -> bytes:
        return _wire.from_text(absolute(text, self.origin))

    def _data(self, rtype: int, data: str) -> bytes:
        return rdata_from_text(rtype, data, self.origin)

    def present(self, name: str, type: str | int | None = None, data: str | Sequence[str] | None = None) -> None:
        """Do it only if there are records of the name; of the ``type``; with exactly this ``data``, of one or several
        records."""
        rtype = ANY_TYPE if type is None else _type(type)
        if data is None:
            self._conditions.append((self._name(name), rtype, ANY, 0, b""))
            return
        for one in [data] if isinstance(data, str) else data:
            self._conditions.append((self._name(name), rtype, 1, 0, self._data(rtype, one)))

    def absent(self, name: str, type: str | int | None = None) -> None:
        """Do it only if there are no records of the name; none of the ``type``."""
        rtype = ANY_TYPE if type is None else _type(type)
        self._conditions.append((self._name(name), rtype, NONE, 0, b""))

    def add(self, name: str, type: str | int, data: str, ttl: int) -> None:
        """Add a record; ``ttl`` is in seconds."""
        rtype = _type(type)
        self._changes.append((self._name(name), rtype, 1, ttl, self._data(rtype, data)))

    def remove(self, name: str, type: str | int | None = None, data: str | None = None) -> None:
        """Remove a record; all of the ``type``, without ``data``; all of the name, without both."""
        rtype = ANY_TYPE if type is None else _type(type)
        if data is None:
            self._changes.append((self._name(name), rtype, ANY, 0, b""))
        else:
            self._changes.append((self._name(name), rtype, NONE, 0, self._data(rtype, data)))

    def send(self, server: str | tuple[str, int], *, key: Key | None = None, limit: float = 10.0, tls: Any = None,
             tls_name: str = "", source: str = "") -> None:  # fmt: skip
        """Have the server make the changes; ``limit`` is in seconds, the others are those of ``transfer``.

        Raises DNS_Update_Error if it does not: ``dnsrcode`` is the response code, for example 8 (NXRRSet) for a
        condition that does not hold, or 5 (Refused). DNS_Transfer_Error if there is no reply, DNS_Signature_Error.
        """
        query = client.update_message(self._wire, self._conditions, self._changes)
        address = address_of(server, 53 if tls is None else 853)
        reply = client.exchange(address, query, self._wire, key, limit, tls, tls_name, source)
        if reply.rcode:
            raise DNS_Update_Error(self.origin, "UPDATE", (reply.rcode, str(RCODE_MAP.get(reply.rcode, reply.rcode))))
