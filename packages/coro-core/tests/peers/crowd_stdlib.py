"""CPython's own library in 200 emulated threads, servers among them. Argument: the name of a part.

Where a server or a pool has 200 threads, a barrier proves that all of them are at work at the same time.
"""

import concurrent.futures
import http.client
import http.server
import logging
import queue
import socket
import socketserver
import sys
import threading

import crowd

LIMIT = 60


def socketserver_part():
    together = threading.Barrier(crowd.THREADS)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                together.wait(LIMIT)
                self.wfile.write(line[:-1][::-1] + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = crowd.THREADS

    def work(number):
        with socket.create_connection(server.server_address, LIMIT) as sock, sock.makefile("rb") as answers:
            for size in (10, 20_000):
                text = crowd.payload(number, size).hex().encode()
                sock.sendall(text + b"\n")
                assert answers.readline() == text[::-1] + b"\n"

    with Server(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        crowd.run(work, crowd.ticks)
        server.shutdown()
        serving.join()


def http_server_part():
    together = threading.Barrier(crowd.THREADS)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            together.wait(LIMIT)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[::-1])

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = crowd.THREADS

    def work(number):
        client = http.client.HTTPConnection(*server.server_address, timeout=LIMIT)
        for size in (10, 20_000):
            data = crowd.payload(number, size)
            client.request("POST", f"/{number}", body=data)
            answer = client.getresponse()
            assert answer.status == 200 and answer.read() == data[::-1]
        client.close()

    with Server(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        crowd.run(work, crowd.ticks)
        server.shutdown()
        serving.join()


def executor_part():
    together = threading.Barrier(crowd.THREADS)

    def work(number):
        together.wait(LIMIT)
        return crowd.payload(number, 1000)

    with concurrent.futures.ThreadPoolExecutor(crowd.THREADS) as pool:
        results = list(pool.map(work, range(crowd.THREADS)))
        assert results == [crowd.payload(number, 1000) for number in range(crowd.THREADS)]
        futures = {pool.submit(work, number): number for number in range(crowd.THREADS)}
        for future in concurrent.futures.as_completed(futures, LIMIT):
            assert future.result() == crowd.payload(futures[future], 1000)


def queue_part():
    items, done = queue.Queue(maxsize=5), queue.SimpleQueue()
    half, each = crowd.THREADS // 2, 50

    def work(number):
        if number < half:
            for item in range(each):
                items.put((number, item), timeout=LIMIT)
        else:
            taken = []
            for _ in range(each):
                taken.append(items.get(timeout=LIMIT))
                items.task_done()
            done.put(taken)

    crowd.run(work, items.join)
    got = [done.get() for _ in range(half)]
    assert done.empty()
    assert sorted(item for taken in got for item in taken) == [
        (number, item) for number in range(half) for item in range(each)
    ]
    for taken in got:
        for number in range(half):
            # Of each consumer: another one may be held up between taking an item and noting it.
            in_order = [item for producer, item in taken if producer == number]
            assert in_order == sorted(in_order), "a queue keeps the order"


def logging_part():
    together = threading.Barrier(crowd.THREADS)
    # Far less room than is written: the thread that holds the lock of `logging` is suspended again and again.
    ours, theirs = socket.socketpair()
    lines = []

    def collect():
        with theirs, theirs.makefile("r") as source:
            lines.extend(source)

    reader = threading.Thread(target=collect)
    reader.start()
    stream = ours.makefile("w")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(threadName)s %(message)s"))
    logger = logging.getLogger("crowd")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def work(number):
        together.wait(LIMIT)
        for line in range(20):
            logger.info("%d %d %s", number, line, crowd.payload(number, 500).hex())

    crowd.run(work)
    logger.removeHandler(handler)
    stream.close()
    ours.close()
    reader.join()
    seen = {number: [] for number in range(crowd.THREADS)}
    names = {}
    for line in lines:
        name, number, place, text = line.rsplit(" ", 3)
        assert text == crowd.payload(int(number), 500).hex() + "\n"
        assert names.setdefault(name, number) == number
        seen[int(number)].append(int(place))
    assert len(names) == crowd.THREADS
    assert all(places == list(range(20)) for places in seen.values())


def program():
    globals()[f"{sys.argv[1]}_part"]()
    print(sys.argv[1])


crowd.main(program)
