"""redis-py in 200 emulated threads, which share one client and its pool of connections. Argument: port.

The library is imported before the emulation is installed. The gate is a list for each thread: everybody waits for
something to come into it, and the server tells how many do.
"""

import sys

import redis

import crowd  # isort: skip


def program():
    client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]), socket_timeout=60, max_connections=300)

    def work(number):
        data = crowd.payload(number, 5000)
        assert client.set(f"data:{number}", data)
        assert client.get(f"data:{number}") == data
        with client.pipeline() as pipeline:
            for line in range(20):
                pipeline.rpush(f"list:{number}", f"{number}/{line}")
            pipeline.lrange(f"list:{number}", 0, -1)
            assert pipeline.execute()[-1] == [b"%d/%d" % (number, line) for line in range(20)]
        assert client.blpop([f"gate:{number}"], timeout=50) == (b"gate:%d" % number, b"open %d" % number)
        with client.lock("counter", timeout=60):
            seen = int(client.get("count") or 0)
            client.set("count", seen + 1)

    def supervise():
        crowd.until(lambda: client.info("clients")["blocked_clients"] == crowd.THREADS, "not all came to wait")
        print(f"{client.info('clients')['blocked_clients']} clients wait")
        crowd.ticks()
        for number in range(crowd.THREADS):
            client.rpush(f"gate:{number}", f"open {number}")

    crowd.run(work, supervise)
    print(f"counted {int(client.get('count'))}")
    client.close()
    with_ten_connections()


def with_ten_connections():
    """Everybody again, with ten connections for all: the others wait in the pool's queue."""
    pool = redis.BlockingConnectionPool(host="127.0.0.1", port=int(sys.argv[1]), max_connections=10, timeout=60)
    client = redis.Redis(connection_pool=pool)
    keeper = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))

    def work(number):
        assert client.get(f"data:{number}") == crowd.payload(number, 5000)
        assert client.blpop([f"gate:{number}"], timeout=50) == (b"gate:%d" % number, b"again %d" % number)

    def supervise():
        crowd.until(lambda: keeper.info("clients")["blocked_clients"] == 10, "the pool does not use its connections")
        crowd.ticks()
        print(f"{keeper.info('clients')['blocked_clients']} clients wait")
        for number in range(crowd.THREADS):
            keeper.rpush(f"gate:{number}", f"again {number}")

    crowd.run(work, supervise)
    keeper.close()
    pool.disconnect()


crowd.main(program)
