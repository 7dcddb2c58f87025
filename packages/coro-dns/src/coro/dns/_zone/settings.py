"""The zones of `python -m coro.dns serve --zones FILE`: a TOML file.

    keys = ["transfer.key"]                        # files as tsig-keygen(8) writes them

    [zone."example.org"]                           # a zone of ours
    file = "example.org.zone"
    transfer = ["192.0.2.0/24", "transfer.key"]    # networks, and names of keys
    update = ["transfer.key"]
    notify = ["192.0.2.2", "[2001:db8::2]:5353"]

    [zone."example.net"]                           # a copy
    primaries = ["192.0.2.9"]
    key = "transfer.key"
    file = "example.net.copy"

Names of files are relative to the file that they are in. What is unknown is an error: a word that is misspelt must not
leave a zone open.
"""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Any

from coro.dns.exceptions import DNS_Zone_Error
from coro.dns.tsig import Key
from coro.dns.zone import Primary, Secondary, Zone

__all__ = ["address", "load", "split"]

BOTH = {"file", "transfer", "notify", "notify_key", "ask", "source"}
PRIMARY = BOTH | {"update"}
SECONDARY = BOTH | {"primaries", "key", "notified_by"}
LISTS = {"transfer", "notify", "ask", "update", "primaries", "notified_by"}


def split(text: str, port: int = 53) -> tuple[str, int]:
    """``host``, ``host:5353``, ``2001:db8::1`` or ``[2001:db8::1]:5353``. Raises ValueError."""
    host, number = text, ""
    if text.startswith("["):
        host, bracket, number = text[1:].partition("]")
        if not bracket or number and not number.startswith(":"):
            raise ValueError(f"expected an address such as [::1]:53, not {text!r}")
        number = number[1:]
    elif text.count(":") == 1:
        host, _, number = text.partition(":")
    if number and not (number.isascii() and number.isdigit() and int(number) < 65536):
        raise ValueError(f"expected a port from 0 to 65535, not {number!r}")
    return host, int(number or port)


def address(text: str) -> tuple[str, int]:
    """The same; the host has to be a numeric address."""
    host, port = split(text)
    ipaddress.ip_address(host.partition("%")[0])
    return host, port


def _key(keys: dict[str, Key], name: str) -> Key:
    found = keys.get(name.rstrip(".").lower())
    if found is None:
        raise ValueError(f"no key {name!r} in the files that `keys` names ({', '.join(keys) or 'none'})")
    return found


def _sender(keys: dict[str, Key], text: str) -> str | Key:
    """A network, or else the name of a key."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return _key(keys, text)
    return text


def _zone(name: str, table: dict[str, Any], keys: dict[str, Key], folder: Path) -> Primary | Secondary:
    follows = "primaries" in table
    known = SECONDARY if follows else PRIMARY
    for word, value in table.items():
        if word not in known:
            raise ValueError(f"{word!r} is not known; expected some of {', '.join(sorted(known))}")
        if word in LISTS and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            raise ValueError(f"{word} has to be a list of strings")
        if word not in LISTS and not isinstance(value, str):
            raise ValueError(f"{word} has to be a string")
    settings: dict[str, Any] = {}
    for word, value in table.items():
        if word in ("primaries", "notify"):
            settings[word] = [address(one) for one in value]
        elif word == "update":
            settings[word] = [_key(keys, one) for one in value]
        elif word in LISTS:
            settings[word] = [_sender(keys, one) for one in value]
        elif word in ("key", "notify_key"):
            settings[word] = _key(keys, value)
        elif word != "file":
            settings[word] = value
    path = folder / table["file"] if "file" in table else None
    if follows:
        return Secondary(name, settings.pop("primaries"), path=path, **settings)
    if path is None:
        raise ValueError("expected `file` or `primaries`: where its records come from")
    # A file that nobody can change from outside is left as somebody wrote it.
    return Primary(Zone.read(path, name), path=path if settings.get("update") else None, **settings)


def load(path: Path) -> list[Primary | Secondary]:
    """The zones. Raises DNS_Zone_Error with the file, OSError."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except ValueError as e:
        raise DNS_Zone_Error(str(e), str(path)) from e
    zones = table.get("zone", {})
    if not table.keys() <= {"keys", "zone"} or not isinstance(zones, dict):
        raise DNS_Zone_Error(f"expected `keys` and tables [zone.NAME], got {', '.join(table)}", str(path))
    keys: dict[str, Key] = {}
    try:
        for name in table.get("keys", []):
            key = Key.read(path.parent / name)
            keys[key.name] = key
    except ValueError as e:
        raise DNS_Zone_Error(str(e), str(path)) from e
    found = []
    for name, settings in zones.items():
        try:
            found.append(_zone(name, settings, keys, path.parent))
        except DNS_Zone_Error:
            raise
        except (ValueError, TypeError, AttributeError) as e:
            raise DNS_Zone_Error(f"the zone {name}: {e}", str(path)) from e
    return found
