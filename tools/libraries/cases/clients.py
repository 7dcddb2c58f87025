"""Clients of HTTP, DNS, LDAP, SSH and other protocols."""

from __future__ import annotations

from typing import Any

from tools.libraries.work import Work, case, library


def _url(work: Work) -> str:
    return f"http://127.0.0.1:{work.ports['nginx']}/file"


@case("requests", servers=["nginx"], quick=True)
def requests(work: Work) -> Any:
    session = library("requests").Session()
    session.trust_env = False
    answers = work.at_once(lambda number: session.get(_url(work), timeout=60).text)
    session.close()
    return answers


@case("urllib3", servers=["nginx"], quick=True)
def urllib3(work: Work) -> Any:
    pool = library("urllib3").PoolManager(maxsize=20, block=True)
    answers = work.at_once(lambda number: pool.request("GET", _url(work)).data.decode())
    pool.clear()
    return answers


@case("httpx", servers=["nginx"])
def httpx(work: Work) -> Any:
    with library("httpx").Client(trust_env=False, timeout=60) as client:
        return work.at_once(lambda number: client.get(_url(work)).text)


@case("aiohttp", compiled=True, servers=["nginx"])
def aiohttp(work: Work) -> Any:
    """A loop of asyncio in each of the threads."""
    module = library("aiohttp")

    async def get() -> str:
        async with module.ClientSession() as session, session.get(_url(work)) as answer:
            return str(await answer.text())

    return work.at_once(lambda number: library("asyncio").run(get()))


@case("tornado", compiled=True, servers=["nginx"])
def tornado(work: Work) -> Any:
    client = library("tornado.httpclient").AsyncHTTPClient

    async def get() -> str:
        answer = await client(force_instance=True).fetch(_url(work))
        return str(answer.body.decode())

    return work.at_once(lambda number: library("asyncio").run(get()))


@case("boto3", servers=[])
def boto3(work: Work) -> Any:
    """With moto's server in this process."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        library("os").environ[name] = "x"
    server = library("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
    client = library("boto3").client("s3", **options)
    client.create_bucket(Bucket="bucket")

    def one(number: int) -> str:
        client.put_object(Bucket="bucket", Key=str(number), Body=str(number).encode())
        return str(client.get_object(Bucket="bucket", Key=str(number))["Body"].read().decode())

    answers = work.at_once(one)
    client.close()
    server.stop()
    return answers


@case("dnspython")
def dns(work: Work) -> Any:
    """Over UDP and TCP, with a server of a few lines that answers slowly."""
    module, query = library("dns.message"), library("dns.query")
    socketserver, threading = library("socketserver"), library("threading")

    class Handler(socketserver.BaseRequestHandler):  # type: ignore[misc, name-defined]
        def handle(self) -> None:
            data, sock = self.request
            library("time").sleep(work.pause)
            answer = module.make_response(module.from_wire(data))
            name = answer.question[0].name
            answer.answer.append(library("dns.rrset").from_text(name, 60, "IN", "A", "192.0.2.1"))
            sock.sendto(answer.to_wire(), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1]

        def one(number: int) -> str:
            asked = module.make_query(f"n{number}.example.", "A")
            return str(query.udp(asked, "127.0.0.1", timeout=60, port=port).answer[0].to_text())

        answers = work.at_once(one)
        server.shutdown()
        thread.join()
    return answers


@case("ldap3", servers=["slapd"])
def ldap3(work: Work) -> Any:
    module = library("ldap3")
    server = module.Server("127.0.0.1", work.ports["slapd"], get_info=module.NONE)

    def one(number: int) -> Any:
        with module.Connection(server, "cn=admin,dc=example,dc=org", "secret", auto_bind=True) as connection:
            entry = f"ou={work.unique}{number},dc=example,dc=org"
            connection.add(entry, "organizationalUnit")
            connection.search(entry, "(objectClass=*)", attributes=["ou"])
            return len(connection.entries)

    return work.at_once(one)


@case("paramiko", compiled=True)
def paramiko(work: Work) -> Any:
    """Its server and its client."""
    module, socket, threading = library("paramiko"), library("socket"), library("threading")
    library("logging").getLogger("paramiko").setLevel("CRITICAL")
    key = module.ECDSAKey.generate()

    class Service(module.ServerInterface):  # type: ignore[misc, name-defined]
        def check_auth_password(self, username: str, password: str) -> Any:
            return module.AUTH_SUCCESSFUL

        def check_channel_request(self, kind: str, number: int) -> Any:
            return module.OPEN_SUCCEEDED

        def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
            threading.Thread(target=answer, args=(channel, command)).start()
            return True

    def answer(channel: Any, command: bytes) -> None:
        channel.sendall(command.upper() + channel.recv(100))  # sent by a client that knows the request was accepted
        channel.send_exit_status(7)
        channel.close()

    listener = socket.create_server(("127.0.0.1", 0), backlog=200)

    def serve() -> None:
        for _ in range(threads):
            transport = module.Transport(listener.accept()[0])
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = 120
            transport.add_server_key(key)
            transport.start_server(threading.Event(), Service())

    def one(number: int) -> list[Any]:
        client = module.SSHClient()
        client.set_missing_host_key_policy(module.AutoAddPolicy())
        options = {"look_for_keys": False, "allow_agent": False, "banner_timeout": 120, "auth_timeout": 120}
        client.connect("127.0.0.1", listener.getsockname()[1], "user", "password", timeout=120, **options)
        entry, output, _ = client.exec_command(f"command {number}")
        entry.write("go")
        entry.flush()
        found = [output.read().decode(), output.channel.recv_exit_status()]
        client.close()
        return found

    threads = 100
    server = threading.Thread(target=serve)
    server.start()
    answers = work.at_once(one, threads)
    server.join()
    listener.close()
    return answers


@case("websockets", "websockets", compiled=True)
def websockets(work: Work) -> Any:
    """Its server and client for threads."""
    serve, connect = library("websockets.sync.server").serve, library("websockets.sync.client").connect

    def echo(connection: Any) -> None:
        for message in connection:
            library("time").sleep(work.pause)
            connection.send(message.upper())

    with serve(echo, "127.0.0.1", 0, open_timeout=60) as server:
        thread = library("threading").Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]

        def one(number: int) -> Any:
            with connect(f"ws://127.0.0.1:{port}", open_timeout=60, proxy=None) as connection:
                connection.send(f"message {number}")
                return connection.recv()

        answers = work.at_once(one)
        server.shutdown()
        thread.join()
    return answers


@case("grpcio", compiled=True, fails="waits in C, in threads of its own; keep it in a process of its own")
def grpc(work: Work) -> Any:
    module = library("grpc")
    pool = library("concurrent.futures").ThreadPoolExecutor(100)
    server = module.server(pool)
    handler = module.unary_unary_rpc_method_handler(lambda request, context: request.upper())
    server.add_generic_rpc_handlers([module.method_handlers_generic_handler("echo", {"echo": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with module.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo = channel.unary_unary("/echo/echo")
        answers = work.at_once(lambda number: echo(f"message {number}".encode(), timeout=10).decode())
    server.stop(None).wait()
    return answers
