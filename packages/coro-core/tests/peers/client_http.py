"""requests and urllib3 in 200 emulated threads. Arguments: nginx's port, that with TLS, the certificate, the folder it
serves, the port of server_http.

The gate is server_http: a request to /together is answered when 200 of them are there.
"""

import os
import sys

import crowd
import requests
import urllib3

HOST = "127.0.0.1"


def program():
    port, tls_port, certificate, folder, gate_port = sys.argv[1:]
    for number in range(crowd.THREADS):
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(crowd.payload(number, 50_000))

    def with_requests(number):
        with requests.Session() as session:
            session.verify = certificate
            for scheme, chosen in (("https", tls_port), ("http", port)):
                for other in (number, (number + 1) % crowd.THREADS):
                    answer = session.get(f"{scheme}://{HOST}:{chosen}/{other}", timeout=60)
                    assert answer.status_code == 200 and answer.content == crowd.payload(other, 50_000)
            with session.get(f"https://{HOST}:{tls_port}/{number}", timeout=60, stream=True) as answer:
                assert b"".join(answer.iter_content(7000)) == crowd.payload(number, 50_000)
            assert session.get(f"http://{HOST}:{port}/nowhere", timeout=60).status_code == 404
            answer = session.get(f"http://{HOST}:{gate_port}/together/{number}", timeout=60)
            assert answer.text == f"together {number}"
            data = crowd.payload(number, 20_000)
            assert session.post(f"http://{HOST}:{gate_port}/echo", data=data, timeout=60).content == data

    crowd.run(with_requests, crowd.ticks)
    print("requests")

    # One pool for everybody: at most twenty connections, the others wait for one in a queue.
    with urllib3.HTTPConnectionPool(HOST, int(port), maxsize=20, block=True, timeout=60) as pool:

        def with_urllib3(number):
            for other in (number, (number + 7) % crowd.THREADS):
                answer = pool.request("GET", f"/{other}")
                assert answer.status == 200 and answer.data == crowd.payload(other, 50_000)

        crowd.run(with_urllib3)
        assert pool.num_connections <= 20
        print(f"urllib3, {pool.num_requests} requests")


crowd.main(program)
