"""An HTTP server of OS threads. Arguments: port, how many come together.

GET /together/NAME is answered when so many of these requests are there, POST /echo with what was sent.
"""

import http.server
import sys
import threading

PORT, TOGETHER = map(int, sys.argv[1:])
barrier = threading.Barrier(TOGETHER)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        barrier.wait(60)
        self.answer(f"together {name}".encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = TOGETHER


Server(("127.0.0.1", PORT), Handler).serve_forever()
