"""Servers of files: FTP, and HTTP with and without TLS."""

from __future__ import annotations

import socket
import ssl

from .running import HOST, Server, find_program, free_port


class Vsftpd(Server):
    """vsftpd; an anonymous user may do everything in the folder `files`, where the file `gate` is."""

    name = "vsftpd"

    def find(self) -> None:
        self._program = find_program("vsftpd", "vsftpd")

    def prepare(self) -> None:
        for name in ("root/files", "empty"):
            (self.folder / name).mkdir(parents=True)
        self.gate = self.folder / "root" / "files" / "gate"
        self.gate.write_bytes(b"open")

    def command(self) -> list[str]:
        settings = {
            "listen": "YES",
            "listen_address": HOST,
            "listen_port": self.port,
            "background": "NO",
            "run_as_launching_user": "YES",
            "seccomp_sandbox": "NO",
            "secure_chroot_dir": self.folder / "empty",
            "anonymous_enable": "YES",
            "no_anon_password": "YES",
            "anon_root": self.folder / "root",
            "anon_upload_enable": "YES",
            "anon_other_write_enable": "YES",
            "anon_world_readable_only": "NO",
            "anon_umask": "022",
            "write_enable": "YES",
            "max_clients": "0",
            "max_per_ip": "0",
            "xferlog_enable": "NO",
            "vsftpd_log_file": self.folder / "vsftpd.log",
        }
        path = self.folder / "vsftpd.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [self._program, str(path)]

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 5) as sock:
            return sock.recv(100).startswith(b"220")


class Nginx(Server):
    """nginx on a plain port and one with TLS (self.tls_port), serving self.root. `certificate` is what to trust."""

    name = "nginx"

    def find(self) -> None:
        self._program = find_program("nginx", "nginx-light")
        self._openssl = find_program("openssl", "openssl")

    def prepare(self) -> None:
        self.root = self.folder / "root"
        self.root.mkdir()
        # Under root the workers are somebody else.
        self.folder.chmod(0o755)
        self.certificate, self._key = self.folder / "certificate.pem", self.folder / "key.pem"
        self.run(
            *(self._openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def command(self) -> list[str]:
        self.tls_port = free_port()
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        path = self.folder / "nginx.conf"
        path.write_text(f"""
            daemon off;
            worker_processes 1;
            pid {self.folder}/pid;
            error_log stderr;
            events {{ worker_connections 1024; }}
            http {{
                {temporary}
                access_log off;
                keepalive_requests 100000;
                server {{
                    listen {HOST}:{self.port} backlog=511;
                    listen {HOST}:{self.tls_port} ssl backlog=511;
                    ssl_certificate {self.certificate};
                    ssl_certificate_key {self._key};
                    root {self.root};
                }}
            }}
        """)
        return [self._program, "-e", "stderr", "-c", str(path)]

    def answers(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.certificate))
        with (
            socket.create_connection((HOST, self.tls_port), 5) as sock,
            context.wrap_socket(sock, server_hostname=HOST),
        ):
            return super().answers()
