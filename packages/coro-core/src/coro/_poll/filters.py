"""The numbers of the event interface: what to wait for, how, and the details.

One interface serves every system, and it is the one of the BSDs' kqueue, so the values are those of FreeBSD's
``<sys/event.h>`` (kqueue(2)); programs that print or store them see the same numbers everywhere.  The
exceptional-condition filter has the number macOS gives it.

``NOTE`` is a plain name space and not a flag type, because one bit means different things to different
filters (1 is ``LOWAT``, ``DELETE``, ``TRACK`` and ``SECONDS``), which an enumeration would show as aliases.
"""

from enum import IntEnum, IntFlag

__all__ = ["EFILT", "EV", "EVFILT", "NOTE"]


class EVFILT(IntEnum):
    """What an event is about.  The meaning of ``ident`` follows from it.

    ``READ``, ``WRITE``: a descriptor can be read (or its peer ended), written.  ``EXCEPT``: a descriptor has
    an exceptional condition, for instance urgent TCP data.  ``VNODE``: an open file or directory changed.
    ``PROC``: a child process ended.  ``SIGNAL``: a signal came.  ``TIMER``: time passed; ``ident`` is any
    integer of yours.  ``AIO``, ``FS`` and ``USER`` are here for their numbers only.
    """

    READ = -1
    WRITE = -2
    AIO = -3
    VNODE = -4
    PROC = -5
    SIGNAL = -6
    TIMER = -7
    FS = -9
    USER = -11
    EXCEPT = -15


EFILT = EVFILT


class EV(IntFlag):
    """Flags of a registration (``ADD``, ``ONESHOT``, ...) and of an event (``EOF``, ``ERROR``)."""

    ADD = 0x0001
    DELETE = 0x0002
    ENABLE = 0x0004
    DISABLE = 0x0008
    ONESHOT = 0x0010
    CLEAR = 0x0020
    RECEIPT = 0x0040
    DISPATCH = 0x0080
    SYSFLAGS = 0xF000
    FLAG1 = 0x2000
    ERROR = 0x4000
    EOF = 0x8000


class NOTE:
    """Details of a filter, the ``fflags`` of a registration and of its event (plain integers)."""

    # READ and WRITE
    LOWAT = 0x00000001
    # VNODE
    DELETE = 0x00000001
    WRITE = 0x00000002
    EXTEND = 0x00000004
    ATTRIB = 0x00000008
    LINK = 0x00000010
    RENAME = 0x00000020
    REVOKE = 0x00000040
    # PROC
    EXIT = 0x80000000
    FORK = 0x40000000
    EXEC = 0x20000000
    PCTRLMASK = 0xF0000000
    PDATAMASK = 0x000FFFFF
    TRACK = 0x00000001
    TRACKERR = 0x00000002
    CHILD = 0x00000004
    # TIMER: the unit of its period (none: milliseconds)
    SECONDS = 0x00000001
    MSECONDS = 0x00000002
    USECONDS = 0x00000004
    NSECONDS = 0x00000008
