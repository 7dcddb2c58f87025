"""From ``module:app`` on a command line to a handler: import it, see what it is, wrap it.

An application is WSGI, ASGI, or a handler of this package. Asking it which is not possible, so its form decides: an
`App` is ours; what is called as a coroutine is ASGI; what has ``match`` and ``handle_request`` is ours; two arguments
are WSGI's, one argument is a handler's.

Cost: an import.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

__all__ = ["INTERFACES", "LoadError", "handler_for", "interface_of", "load"]

Interface = Literal["wsgi", "asgi", "http"]
INTERFACES = ("auto", "wsgi", "asgi", "http")


class LoadError(Exception):
    """There is no such application; the text says what to do."""


def load(name: str, *, factory: bool = False, folder: str | None = None) -> Any:
    """The application called ``module:attribute`` (``app`` if no attribute is named; it may have dots).

    ``factory``: the attribute is a function that makes it. ``folder`` is put on the path.

    Raises LoadError when it is not there; what the import or the factory raises otherwise.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise LoadError(f"expected module:app, not {name!r}")
    folder = os.path.abspath(folder or ".")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is None or not (module_name == e.name or module_name.startswith(e.name + ".")):
            raise  # the module is there, and imports one that is not
        raise LoadError(f"there is no module {module_name!r} in {folder} or on the path; see --app-dir") from None
    for part in (attribute or "app").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            hint = "" if attribute else f"; name it as {module_name}:NAME"
            raise LoadError(f"{found!r} has no attribute {part!r}{hint}") from None
    if factory:
        if not callable(found):
            raise LoadError(f"with --factory, {name} has to be a function that returns the application, not {found!r}")
        found = found()
    if not callable(found) and not hasattr(found, "handle_request"):
        raise LoadError(f"{name} is no application: {found!r}; a function that makes one needs --factory")
    return found


def interface_of(app: Any) -> Interface:
    """What an application is. LoadError when its form does not say."""
    from coro.http.routing import App

    if isinstance(app, App):
        return "http"
    call = app if inspect.isfunction(app) or inspect.ismethod(app) or not callable(app) else type(app).__call__
    if _is_coroutine_function(app) or _is_coroutine_function(call):
        return "asgi"
    if _has(app, "handle_request") and _has(app, "match"):
        return "http"  # (frameworks have one of these names, too)
    try:
        parameters = list(inspect.signature(app).parameters.values())
    except Exception:  # what a __getattr__ of the program's raises, too
        raise LoadError(f"cannot tell what {app!r} is: say it with --interface") from None
    needed = [
        p for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if len(needed) == 1:
        return "http"
    if len(needed) == 2:
        return "wsgi"
    if len(needed) == 3:
        return "asgi"
    raise LoadError(f"cannot tell what {app!r} is: say it with --interface")


def _is_coroutine_function(call: Any) -> bool:
    try:
        return inspect.iscoroutinefunction(call)
    except Exception:  # it asks for attributes, and a __getattr__ of the program's may raise anything
        return False


def _has(app: Any, name: str) -> bool:
    """Whether the attribute is there; a ``__getattr__`` that answers to every name does not count."""
    try:
        inspect.getattr_static(app, name)
    except AttributeError:
        return False
    return True


def handler_for(
    app: Any, interface: Interface, *, root_path: str = "", lifespan: Any = "auto", multiprocess: bool = False
) -> Callable[..., Any]:
    """A handler for ``coro.http.server``."""
    if interface == "wsgi":
        from coro.http.wsgi import WSGIHandler

        return WSGIHandler(app, root_path=root_path, multiprocess=multiprocess)
    if interface == "asgi":
        from coro.http.asgi import ASGIHandler

        return ASGIHandler(app, root_path=root_path, lifespan=lifespan)
    found: Callable[..., Any] = app
    return found
