"""The warning of the emulation, apart from everything else so that naming it loads nothing."""

from __future__ import annotations

__all__ = ["EmulationWarning"]


class EmulationWarning(RuntimeWarning):
    """Something existed before the emulation was installed, and cannot be changed; the text names it."""
