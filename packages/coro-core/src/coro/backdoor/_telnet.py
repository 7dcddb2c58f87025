"""Bytes from a terminal program become lines: the TELNET part of the back door, without any input or output.

A person may come with telnet, with nc or socat, or with our own client. The three differ in how a line ends (CR LF,
CR NUL, LF, CR) and in what else they send: telnet mixes commands into the text, which begin with the byte 255 and are
taken out here (RFC 854). Byte 255 never occurs in UTF-8, so nothing is ambiguous.

Our own client and the server talk through subnegotiations (RFC 854, RFC 855) of an option number that nobody has
registered. The client speaks first; a server that was not spoken to sends none, so that telnet and nc never see one.

The grammar, with DATA any byte but IAC:

    stream      = *( DATA / IAC IAC / command / option / message )
    command     = IAC (NOP / BRK / IP / AO / ... )
    option      = IAC (WILL / WONT / DO / DONT) BYTE
    message     = IAC SB BYTE *( DATA / IAC IAC ) IAC SE

Cost: one pass over the bytes; a chunk without IAC and control characters is only searched for line ends. What is kept
between two chunks is bounded by ``limit``.
"""

from __future__ import annotations

__all__ = [
    "DO",
    "DONT",
    "ECHO",
    "END",
    "IAC",
    "INTERRUPT",
    "OPTION",
    "SB",
    "SE",
    "WILL",
    "WONT",
    "Decoder",
    "Line",
    "Message",
    "TooLong",
    "message",
]

IAC, DONT, DO, WONT, WILL, SB, SE = 255, 254, 253, 252, 251, 250, 240
INTERRUPT_PROCESS, BREAK, EOF_COMMAND = 244, 243, 236
ECHO = 1  # RFC 857
#: The option number of our own messages: not in IANA's registry of TELNET options.
OPTION = 192
#: A longer line (or message) ends the session: Linux's own terminal driver stops at 4096 bytes, and a line is typed.
MAX_LINE = 64 * 1024
#: Answers to a peer's wishes for options: a real telnet has about ten.
MAX_ANSWERS = 100

_DATA, _COMMAND, _OPTION, _SUB, _SUB_COMMAND = range(5)


class TooLong(Exception):
    """The peer sent a line or message longer than the limit; the session cannot go on, because its end is unknown."""


class Line(str):
    """A complete line, without its end."""


class Message(bytes):
    """What our own client has to say apart from text: the first byte is the kind."""


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


#: The user wants to interrupt what runs: TELNET's "interrupt process" or "break", or the character Ctrl-C.
INTERRUPT = _Mark("INTERRUPT")
#: The user wants to end the session: Ctrl-D at the beginning of a line, or TELNET's end of file.
END = _Mark("END")

Event = Line | Message | _Mark


def message(kind: bytes, payload: bytes = b"") -> bytes:
    """The bytes of a message of our own. ``kind`` is one byte; neither may contain the byte 255."""
    if b"\xff" in payload:
        raise ValueError("a message is text in UTF-8 and cannot contain the byte 255")
    return bytes([IAC, SB, OPTION]) + kind + payload + bytes([IAC, SE])


class Decoder:
    """Feed it bytes, get events. ``answers`` collects what telnet expects to be sent back.

    Invariant: the unfinished line and the unfinished message are together at most ``limit`` bytes.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self.answers = bytearray()
        self._answered = 0
        self._asked: set[int] = set()
        self._state = _DATA
        self._line = bytearray()
        self._message = bytearray()
        self._option = 0
        self._after_return = False

    def ask(self, verb: int, option: int) -> bytes:
        """The bytes that offer (or withdraw) an option; the peer's answer to it gets no answer."""
        self._asked.add(option)
        return bytes([IAC, verb, option])

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete, in order. TooLong when a line or message passes the limit."""
        events: list[Event] = []
        for byte in data:
            if self._state == _DATA:
                if byte == IAC:
                    self._state = _COMMAND
                else:
                    self._data(byte, events)
            elif self._state == _COMMAND:
                self._command(byte, events)
            elif self._state == _OPTION:
                self._answer(byte)
                self._state = _DATA
            elif self._state == _SUB:
                if byte == IAC:
                    self._state = _SUB_COMMAND
                else:
                    self._keep(self._message, byte)
            elif byte == IAC:  # an escaped one inside a message
                self._keep(self._message, byte)
                self._state = _SUB
            else:  # SE, or anything else: the message is over
                self._state = _DATA
                if byte == SE and self._message[:1] == bytes([OPTION]) and len(self._message) > 1:
                    events.append(Message(self._message[1:]))
                self._message.clear()
        return events

    def finish(self) -> list[Event]:
        """The stream has ended: what is left is a line, too."""
        if self._line:
            return [self._end_line()]
        return []

    def _keep(self, where: bytearray, byte: int) -> None:
        if len(self._line) + len(self._message) >= self.limit:
            raise TooLong(f"more than {self.limit} bytes without a line end")
        where.append(byte)

    def _end_line(self) -> Line:
        line = Line(self._line.decode("utf-8", "replace"))
        self._line.clear()
        return line

    def _data(self, byte: int, events: list[Event]) -> None:
        after_return, self._after_return = self._after_return, False
        if byte == 0x0A or byte == 0x00:
            if not after_return and byte == 0x0A:
                events.append(self._end_line())
        elif byte == 0x0D:
            self._after_return = True
            events.append(self._end_line())
        elif byte == 0x03:
            self._line.clear()
            events.append(INTERRUPT)
        elif byte == 0x04 and not self._line:
            events.append(END)
        else:
            self._keep(self._line, byte)

    def _command(self, byte: int, events: list[Event]) -> None:
        self._state = _DATA
        if byte in (WILL, WONT, DO, DONT):
            self._option = byte
            self._state = _OPTION
        elif byte == SB:
            self._state = _SUB
        elif byte in (INTERRUPT_PROCESS, BREAK):
            self._line.clear()
            events.append(INTERRUPT)
        elif byte == EOF_COMMAND:
            events.append(END)
        elif byte == IAC:
            self._data(byte, events)

    def _answer(self, option: int) -> None:
        """Refuse every wish, as RFC 854 asks for; never answer an answer."""
        if option in self._asked or self._answered >= MAX_ANSWERS:
            return
        if self._option == WILL:
            self.answers += bytes([IAC, DONT, option])
        elif self._option == DO:
            self.answers += bytes([IAC, WONT, option])
        else:
            return
        self._answered += 1
