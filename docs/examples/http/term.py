"""A Python prompt of a running program, in the browser: python docs/examples/http/term.py CERTIFICATE KEY, then open
https://localhost:8443/ and give the name ``admin`` and the password that the program has printed, or that stands in the
variable CORO_TERM_PASSWORD.

Who has the prompt can do whatever the program can, so there are three locks. TLS keeps others from listening. The page
is for those who know the password (Digest, RFC 7616). Browsers ask nobody for a password before a WebSocket, so the
page has a ticket in it, good for one connection within a minute. And ``accept`` refuses pages of other sites by itself.

The prompt is that of ``coro.backdoor``, at one end of a pair of sockets. Ctrl-C ends a command that takes too long.
A certificate for trying it out, which the browser warns of:

    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout key.pem -out certificate.pem
"""

from __future__ import annotations

import codecs
import os
import secrets
import ssl
import sys
import time
from typing import Any

import coro
from coro import backdoor, http
from coro.http import websocket
from coro.http.handlers import auth_handler

LIFE = 60.0  # seconds that a ticket is good for
MOST_TICKETS = 100

PAGE = """<!doctype html><meta charset="utf-8"><title>Prompt</title>
<style>
  body { background: #222; color: #ddd; font: 15px/1.4 monospace; margin: 1em }
  #out { white-space: pre-wrap; margin: 0; overflow-wrap: anywhere }
  input { background: #333; color: inherit; font: inherit; border: 0; width: 100%; padding: .3em; margin-top: .5em }
</style>
<pre id="out"></pre><input id="line" autofocus autocomplete="off" spellcheck="false">
<script>
  const ws = new WebSocket(location.origin.replace("http", "ws") + "/prompt");
  const out = document.getElementById("out"), line = document.getElementById("line"), past = [];
  let place = 0;
  const show = text => { out.append(text); line.scrollIntoView(); };
  ws.onopen = () => ws.send("TICKET");
  ws.onmessage = event => show(event.data);
  ws.onclose = () => { line.disabled = true; show("\\n(the session is over; load the page again for another)"); };
  line.onkeydown = event => {
    if (event.key === "Enter") {
      show(line.value + "\\n"); ws.send(line.value + "\\n");
      place = past.push(line.value); line.value = "";
    } else if (event.key === "ArrowUp" && place > 0) line.value = past[--place];
    else if (event.key === "ArrowDown" && place < past.length) line.value = past[++place] || "";
    else if (event.key === "c" && event.ctrlKey) ws.send("\\x03");
  };
</script>"""

users: dict[str, str] = {}
tickets: dict[str, float] = {}  # and when they end


def take(ticket: str) -> bool:
    """Is it a ticket that is still good? It is not, the next time."""
    end = tickets.pop(ticket, None)
    return end is not None and time.monotonic() < end


class Page:
    """What is shown to those who are let in."""

    def match(self, request: Any) -> bool:
        return True

    def handle_request(self, request: Any) -> None:
        ticket = secrets.token_urlsafe()
        tickets[ticket] = time.monotonic() + LIFE
        while len(tickets) > MOST_TICKETS:
            del tickets[next(iter(tickets))]
        request["content-type"] = "text/html; charset=utf-8"
        request["cache-control"] = "no-store"
        request["content-security-policy"] = "frame-ancestors 'none'"
        request.push(PAGE.replace("TICKET", ticket))
        request.done()


app = http.App()
guard = auth_handler(users, Page(), realm="prompt")


@app.get("/")
def page(request: http.http_request) -> None:
    guard.handle_request(request)


@app.get("/prompt")
def prompt(request: http.http_request) -> None:
    with websocket.accept(request, max_message=4096) as ws:
        try:
            ticket = str(ws.receive(LIFE))
        except coro.TimeoutError:
            ticket = ""
        if not take(ticket):
            ws.close(1008, "no such ticket")
            return
        ours, theirs = coro.socketpair()
        session = backdoor.backdoor(theirs, "\n")
        coro.spawn(session.read_eval_print_loop, thread_name=f"prompt of {request.remote[0]}", daemon=True)

        def show() -> None:
            decode = codecs.getincrementaldecoder("utf-8")("replace").decode
            try:
                while data := ours.recv(4096):
                    if text := decode(data):
                        ws.send(text)
                ws.close()  # the session has ended
            except (websocket.WebSocketClosed, coro.ClosedError, OSError):
                return

        shows = coro.spawn(show)
        try:
            for message in ws:
                ours.sendall(str(message).encode())
        except OSError:
            pass  # the session has just ended
        finally:
            shows.shutdown()
            ours.close()


def main(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    users["admin"] = os.environ.get("CORO_TERM_PASSWORD") or secrets.token_urlsafe(12)
    print(f"https://localhost:8443/, name admin, password {users['admin']}")
    http.serve(app, ("127.0.0.1", 8443), tls=context)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
