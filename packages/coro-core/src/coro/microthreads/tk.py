"""A Tk user interface and coro threads in one OS thread.

    def main():
        root = tkinter.Tk()
        window = TkNotifier(root)
        tkinter.Button(root, text="go", command=lambda: coro.spawn(work)).pack()
        window.wait()                    # until the window is closed; other threads run meanwhile

    coro.run(main)

The idea. In place of `mainloop()`, the loop asks Tk for its pending events in every pass, and when there is nothing to
run it waits inside Tk, which is told to watch the descriptor of the kernel's poller, too. Tk's callbacks are called by
the loop itself, so that they must not block (an attempt raises YieldFromMain, which Tk reports like any error of a
callback): whatever takes time is spawned. Any thread may call methods of widgets.

Cost: a call into Tcl for each pass of the loop, and nothing at all while the window is idle.
"""

from __future__ import annotations

import _tkinter
import contextlib
import tkinter
from typing import Any

from coro._runtime import scheduler
from coro.microthreads.notifiers import Notifier, add_notifier, notifiers, remove_notifier

__all__ = ["TkNotifier"]

#: Tk events handled in one look, so that a window that redraws itself without end lets threads run.
AT_ONCE = 100


class TkNotifier(Notifier):
    """Have the loop drive a Tk interface until its root window is destroyed.

    root: the window, made in this OS thread. Registers itself. Raises TypeError for anything but a ``tkinter.Tk``,
    WrongThreadError in another OS thread than the loop's.
    """

    priority = 10  # people notice a slow window sooner than a slow connection

    def __init__(self, root: tkinter.Tk) -> None:
        if not isinstance(root, tkinter.Tk):
            raise TypeError(f"expected the root window, a tkinter.Tk, not {type(root).__name__}: {root!r}")
        self._tk: Any = root.tk
        self._waiting: list[scheduler.coro] = []
        self._open = True
        self._watched = -1
        root.bind("<Destroy>", self._destroyed, add="+")
        self._root: Any = root
        add_notifier(self)

    def _destroyed(self, event: Any) -> None:
        if event.widget is self._root:
            self._open = False

    def wait(self) -> None:
        """Block the calling thread until the window is closed."""
        me = scheduler._running_thread()
        while self._open:
            self._waiting.append(me)
            try:
                super().wait()
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)

    def close(self) -> None:
        """Destroy the window, if it is still there, and stop driving it."""
        if self._open:
            with contextlib.suppress(tkinter.TclError):
                self._root.destroy()
            self._open = False
        self._end()

    def _end(self) -> None:
        if self in notifiers():
            remove_notifier(self)
        self._watch(-1)
        for thread in self._waiting:
            self.wake(thread)
        self._waiting = []

    def _watch(self, fd: int) -> None:
        """Have Tk watch this descriptor, and no other one."""
        if fd == self._watched:
            return
        if self._watched >= 0:
            with contextlib.suppress(tkinter.TclError, RuntimeError):
                self._tk.deletefilehandler(self._watched)
        if fd >= 0:
            self._tk.createfilehandler(fd, _tkinter.READABLE, _nothing)
        self._watched = fd

    def poll(self) -> bool | None:
        """Handle the events that are pending; part of the interface of notifiers."""
        self._watch(-1)  # a descriptor with news would make every look at Tk find something
        count = 0
        while self._open and count < AT_ONCE and self._tk.dooneevent(_tkinter.DONT_WAIT):
            count += 1
        if not self._open:
            self._end()
            return None
        return count > 0

    def wait_with(self, fd: int, seconds: float) -> bool | None:
        """Wait inside Tk for its events, the descriptor, or the end of the time; part of the interface of notifiers."""
        self._watch(fd)
        timer = self._tk.createtimerhandler(max(1, int(seconds * 1000)), _nothing_at_all)
        try:
            self._tk.dooneevent(_tkinter.ALL_EVENTS)
        finally:
            timer.deletetimerhandler()
        return True


def _nothing(fd: int, mask: int) -> None:
    """What Tk calls when the poller's descriptor has news: the loop looks at it right after."""


def _nothing_at_all() -> None:
    """What Tk calls when the time is over."""
