"""How a server has a zone: as its primary, where changes are made, or as a secondary that copies it from others
(RFC 1034, section 4.3.5; RFC 1996).

A secondary has one thread, which waits for the next time to ask or for a notification. A zone that has changed gets a
thread that tells the secondaries and one that writes the file: what changes meanwhile is told and written by the same
ones, once for all changes. The answer to an update waits for the file (RFC 2136, section 3.5), nothing else does.

Nothing is allowed unless it is named: who may transfer the zone, by address or by key, and whose keys may change it.
"""

from __future__ import annotations

import ipaddress
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coro
from coro.dns import _wire
from coro.dns._zone import client, master
from coro.dns._zone.client import Address, address_of
from coro.dns._zone.data import HISTORY, Data, is_newer, text_of
from coro.dns._zone.transfer import BYTES, RECORDS, Receiver, difference
from coro.dns.exceptions import DNS_Error, DNS_Transfer_Error, DNS_Zone_Error
from coro.dns.tsig import Key
from coro.log import Facility

if TYPE_CHECKING:
    from coro.dns.zone import Zone

__all__ = ["Allowed", "Primary", "Secondary", "Service", "save"]

LOG = Facility("coro.dns.zone")
#: Seconds: no zone is asked for more often, nor less often, whatever its SOA record says.
SOONEST, LATEST = 1.0, 14 * 86400.0
#: Until a secondary that has nothing asks again: at first, and at most.
FIRST_RETRY, LAST_RETRY = 2.0, 3600.0


class Allowed:
    """Who may do something: networks and keys."""

    def __init__(self, those: Iterable[str | Key]) -> None:
        those = list(those)
        self.keys = [one for one in those if isinstance(one, Key)]
        self.networks = [ipaddress.ip_network(one) for one in those if not isinstance(one, Key)]

    def __bool__(self) -> bool:
        return bool(self.keys or self.networks)

    def __call__(self, host: str, key: Key | None) -> bool:
        """May the sender at an address, who has signed with this key?"""
        if key is not None and key in self.keys:
            return True
        if not self.networks:
            return False
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.version == 6 and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


def save(zone: Data, path: Path) -> None:
    """Write a zone file. At no time there is half a file. Raises OSError."""
    text = "".join(master.write(zone))

    def write() -> None:
        part = path.with_name(path.name + ".new")
        with open(part, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    if coro.coro_is_running():
        coro.in_thread(write)
    else:
        write()


def _nothing() -> None:
    pass


class _Again:
    """A thread that does something once more for as long as it is asked to, and then ends."""

    def __init__(self, threads: list[coro.coro], work: Callable[[], object]) -> None:
        self._threads = threads
        self._work = work
        self._is_running = False
        self._wanted = 0
        self._done = 0
        self._was_good = False
        self._progress = coro.condition_variable()

    def ask(self) -> None:
        """Have it done, with what is there when it begins."""
        self._wanted += 1
        if not self._is_running:
            self._is_running = True
            self._threads[:] = [thread for thread in self._threads if not thread.dead]
            self._threads.append(coro.spawn(self._run))

    def wait(self) -> bool:
        """Wait until it is done as often as it was asked for. Was it good, the last time?"""
        number = self._wanted
        while self._done < number and self._is_running:
            self._progress.wait()
        return self._done >= number and self._was_good

    def _run(self) -> None:
        try:
            while self._done < self._wanted:
                number = self._wanted
                self._was_good = bool(self._work())
                self._done = number
                self._progress.wake_all()
        finally:
            self._is_running = False
            self._progress.wake_all()


class Service:
    """What is common to both: a zone that a server answers for. `data` is None as long as there is none."""

    data: Data | None

    def __init__(self, origin: bytes, transfer: Iterable[str | Key], notify: Iterable[str | tuple[str, int]],
                 notify_key: Key | None, path: str | Path | None, source: str,
                 ask: Iterable[str | Key] | None) -> None:  # fmt: skip
        self.origin = origin
        self.may_ask = None if ask is None else Allowed(ask)
        self.may_transfer = Allowed(transfer)
        self.notify = [address_of(one) for one in notify]
        self.notify_key = notify_key
        self.path = None if path is None else Path(path)
        self.source = source
        #: Of the server that has it: called when answers may be others than before.
        self.on_change: Callable[[], object] = _nothing
        self._threads: list[coro.coro] = []
        self._saving = _Again(self._threads, self._save)
        self._telling = _Again(self._threads, self._tell)
        self._running = False

    @property
    def name(self) -> str:
        """The name of the zone, without a dot at its end."""
        return _wire.to_text(self.origin)

    @property
    def keys(self) -> list[Key]:
        """All keys that have to be known."""
        asking = self.may_ask.keys if self.may_ask else []
        return [*self.may_transfer.keys, *asking, *([self.notify_key] if self.notify_key else [])]

    def start(self) -> None:
        """Begin; called by the server."""
        self._running = True

    def stop(self) -> None:
        """End all threads, when the last change is in the file; called by the server."""
        self._running = False
        self._saving.wait()
        threads = list(self._threads)
        self._threads.clear()
        for thread in threads:
            if not thread.dead:
                thread.shutdown()
        for thread in threads:
            thread.join()

    def changed(self) -> None:
        """Tell the others and write the file, without waiting here."""
        self.on_change()
        if self._running and self.path is not None:
            self._saving.ask()
        if self._running and self.notify:
            self._telling.ask()

    def is_saved(self) -> bool:
        """Wait until all changes so far are in the file, if there is one. Are they?"""
        return self.path is None or self._saving.wait()

    def _save(self) -> bool:
        if self.data is None or self.path is None:
            return False
        try:
            save(self.data, self.path)
        except OSError as e:
            LOG("zone not written", self.name, str(self.path), str(e))
            return False
        return True

    def _tell(self) -> bool:
        with coro.group() as threads:
            for server in self.notify:
                threads.spawn(self._tell_one, server)
        return True

    def _tell_one(self, server: Address) -> None:
        if self.data is None:
            return
        try:
            code = client.notify(self.origin, server, self.data.soa_record, self.notify_key, self.source)
            if code:
                LOG("notification refused", self.name, server, code)
        except DNS_Error as e:
            LOG("notification not answered", self.name, server, str(e))


class Primary(Service):
    """A zone that is changed here, for a ``Server``.

    ``zone`` is a ``Zone``. ``transfer`` says who may copy it: networks such as ``"192.0.2.0/24"`` and ``Key`` objects;
    ``update`` whose keys may change it (:rfc:`2136`). By default that is nobody. ``notify`` are servers, an address or
    pairs of an address and a port, that are told about each change (:rfc:`1996`), signed with ``notify_key`` if there
    is one, from the address ``source``. With ``path`` the zone is written to that file after each change,
    and an update (:rfc:`2136`) is answered when it is there; if it cannot be written, with SERVFAIL.

    Whoever reaches the server may ask for records of the zone, unless ``ask`` names networks and keys.
    """

    data: Data

    def __init__(
        self,
        zone: Zone,
        *,
        transfer: Iterable[str | Key] = (),
        update: Iterable[Key] = (),
        notify: Iterable[str | tuple[str, int]] = (),
        notify_key: Key | None = None,
        path: str | Path | None = None,
        ask: Iterable[str | Key] | None = None,
        source: str = "",
    ) -> None:
        self.data = zone._data
        super().__init__(self.data.origin, transfer, notify, notify_key, path, source, ask)
        update = list(update)
        if not all(isinstance(one, Key) for one in update):
            raise TypeError("updates are allowed to keys only: addresses can be forged")
        self.may_update = Allowed(update)

    @property
    def keys(self) -> list[Key]:
        """All keys that have to be known."""
        return [*super().keys, *self.may_update.keys]

    def start(self) -> None:
        """Begin; called by the server."""
        super().start()
        self.data.watchers.append(self.changed)

    def stop(self) -> None:
        """End all threads; called by the server."""
        if self.changed in self.data.watchers:
            self.data.watchers.remove(self.changed)
        super().stop()

    def __repr__(self) -> str:
        return f"<coro.dns.zone.Primary {text_of(self.origin)} serial {self.data.serial}>"


class Secondary(Service):
    """A zone that is copied from others, for a ``Server``.

    ``origin`` is its name, ``primaries`` are the servers to copy it from, an address or pairs of an address and a port;
    ``key`` signs what they are asked. With ``tls``, a TLS context, they are asked over TLS (:rfc:`9103`), on port 853
    unless they say another, and ``tls_name`` is what their certificates have to say. What comes may have ``most``
    records and ``most_bytes`` bytes. With ``path`` the zone is kept in that file, and there at the next start.
    Notifications are taken from the primaries, and from whoever ``notified_by`` names. The other parameters are those
    of ``Primary``.

    The zone's SOA record says how often the primaries are asked, and after which time without an answer from them the
    zone is no longer good (:rfc:`1035`); the server then answers SERVFAIL.
    """

    def __init__(
        self,
        origin: str,
        primaries: Iterable[str | tuple[str, int]],
        *,
        key: Key | None = None,
        tls: Any = None,
        tls_name: str = "",
        most: int = RECORDS,
        most_bytes: int = BYTES,
        notified_by: Iterable[str | Key] = (),
        transfer: Iterable[str | Key] = (),
        notify: Iterable[str | tuple[str, int]] = (),
        notify_key: Key | None = None,
        path: str | Path | None = None,
        ask: Iterable[str | Key] | None = None,
        source: str = "",
    ) -> None:
        super().__init__(_wire.from_text(origin), transfer, notify, notify_key, path, source, ask)
        self.data: Data | None = None
        self.primaries = [address_of(one, 53 if tls is None else 853) for one in primaries]
        if not self.primaries:
            raise ValueError(f"expected at least one primary server for the zone {origin}")
        self.key = key
        self.tls = tls
        self.tls_name = tls_name
        self.most = most
        self.most_bytes = most_bytes
        hosts = [host for host, _ in self.primaries]
        self.may_notify = Allowed([*hosts, *([key] if key else []), *notified_by])
        self.transfers = 0
        self._wake = coro.event()
        self._notifier = ""
        self._expires = 0.0

    @property
    def keys(self) -> list[Key]:
        """All keys that have to be known."""
        return [*super().keys, *self.may_notify.keys]

    def start(self) -> None:
        """Begin; called by the server."""
        super().start()
        self._threads.append(coro.spawn(self._follow))

    def notified(self, host: str) -> None:
        """A primary says that the zone has changed."""
        self._notifier = host
        self._wake.set()

    # -- following the primaries

    def _follow(self) -> None:
        if self.data is None:
            self._load()
        retry = FIRST_RETRY
        while True:
            self._wake.clear()
            good = self._refresh()
            now = time.monotonic()
            if self.data is None:
                wait = retry * random.uniform(0.75, 1.25)
                retry = min(2 * retry, LAST_RETRY)
            else:
                refresh, again, expire, _ = self.data.timers()
                if good:
                    self._expires = now + expire
                    retry = FIRST_RETRY
                wait = min(refresh if good else again, max(self._expires - now, 0.0))
            coro.sleep_relative(SOONEST)  # whoever notifies all the time does not make us ask all the time
            with coro.move_on_after(min(max(wait - SOONEST, 0.0), LATEST)):
                self._wake.wait()
            if self.data is not None and time.monotonic() >= self._expires:
                LOG("zone expired", self.name)
                self.data = None
                self.on_change()

    def _load(self) -> None:
        """The zone from the file, if it is there and still good."""
        if self.path is None or not self.path.exists():
            return
        try:
            data = master.read(self.path, self.origin, include=False)
            age = max(time.time() - self.path.stat().st_mtime, 0.0)
        except (OSError, DNS_Zone_Error) as e:
            LOG("zone not read", self.name, str(e))
            return
        left = data.timers()[2] - age
        if left > 0:
            self._expires = time.monotonic() + left
            self._take(data)

    def _take(self, data: Data) -> None:
        self.data = data
        data.watchers.append(self.changed)

    def _refresh(self) -> bool:
        """Ask the primaries, the one that has notified first. Does one of them say that the zone is the newest now?"""
        for server in sorted(self.primaries, key=lambda one: one[0] != self._notifier):
            try:
                if self._refresh_from(server):
                    self._notifier = ""
                    if self.path is not None and self.path.exists():
                        os.utime(self.path)  # by its age a later start knows whether it is still good
                    return True
            except (DNS_Error, OSError) as e:
                LOG("zone not refreshed", self.name, server, str(e))
        return False

    def _refresh_from(self, server: Address) -> bool:
        known = self.data
        if known is not None:
            serial = client.serial_at(self.origin, server, self.key, self.source, self.tls, self.tls_name)
            if not is_newer(serial, known.serial):
                return serial == known.serial
            try:
                found = self._received(server, known)
                if found is None:
                    return True
                if found.zone is None:
                    found.apply()
                    return True
            except DNS_Transfer_Error as e:
                LOG("zone not transferred by differences", self.name, server, str(e))
                found = self._received(server, None)
        else:
            found = self._received(server, None)
        assert found is not None and found.zone is not None
        if known is None:
            self._take(found.zone)
            self.changed()
        else:
            known.commit(difference(known, found.zone))
        return True

    def _received(self, server: Address, known: Data | None) -> Receiver | None:
        found = client.receive(
            self.origin, server, key=self.key, known=known, most=self.most, most_bytes=self.most_bytes, tls=self.tls,
            tls_name=self.tls_name, source=self.source, history=HISTORY,
        )  # fmt: skip
        self.transfers += found is not None
        return found

    def __repr__(self) -> str:
        what = "nothing yet" if self.data is None else f"serial {self.data.serial}"
        return f"<coro.dns.zone.Secondary {text_of(self.origin)} {what}>"
