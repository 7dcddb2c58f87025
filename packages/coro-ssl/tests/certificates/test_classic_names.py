"""The classic names for certificates and keys, against the openssl program and the vectors of the original's tests."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest
from real_programs import find_program

from coro.ssl import openssl, testing


def program(*args: str, data: bytes = b"") -> bytes:
    command = [find_program("openssl", "openssl"), *args]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def key() -> openssl.pkey:
    return openssl.pkey(openssl.rsa(2048))


def made(key: openssl.pkey, name: str = "example.test") -> openssl.x509:
    cert = openssl.x509("")
    cert.get_subject_name().add_entries_by_txt({"C": "NL", "O": "coro", "CN": name})
    cert.set_serialNumber()
    cert.set_hosts([name, "192.0.2.1", "::1"])
    cert.get_notBefore().gmtime_adj(-3600)
    cert.get_notAfter().gmtime_adj(86400)
    cert.set_pubkey(key)
    return cert


class TestECDSA:
    def test_generate_sign_and_verify(self) -> None:
        k = openssl.ecdsa("prime256v1")
        k.generate()
        digest = b"0123456789abcdef0123456789abcdef"
        sig = k.sign(digest)
        assert k.verify(digest, sig) == 1
        assert k.verify(digest[::-1], sig) == 0

    def test_a_public_key_travels(self) -> None:
        k, other = openssl.ecdsa("prime256v1"), openssl.ecdsa("prime256v1")
        k.generate()
        other.set_pubkey(k.get_pubkey())
        sig = k.sign(b"d" * 32)
        assert other.verify(b"d" * 32, sig) == 1
        with pytest.raises(openssl.Error, match="needs a private key"):
            other.sign(b"d" * 32)

    def test_the_curve_comes_with_the_key_or_by_its_number(self) -> None:
        k = openssl.ecdsa("secp256k1")
        k.generate()
        der = k.get_privkey()
        unnamed, numbered = openssl.ecdsa(None), openssl.ecdsa(714)
        unnamed.set_privkey(der)
        numbered.set_privkey(der)
        assert unnamed.get_pubkey() == numbered.get_pubkey() == k.get_pubkey()
        assert numbered.verify(b"x" * 20, unnamed.sign(b"x" * 20)) == 1
        with pytest.raises(openssl.Error, match="curve"):
            openssl.ecdsa("prime256v1").set_privkey(der)

    def test_forms_of_a_public_key(self) -> None:
        k = openssl.ecdsa("secp256k1")
        k.generate()
        assert k.get_pubkey()[0] == 4 and len(k.get_pubkey()) == 65
        k.set_compressed(True)
        assert k.get_pubkey()[0] in (2, 3) and len(k.get_pubkey()) == 33

    def test_the_form_of_a_known_point_changes(self) -> None:
        x = bytes.fromhex("875a41657e777b0d13f89aa765f954f78eb47d25c831de472b38e2e6792792bf")
        k = openssl.ecdsa(714)
        k.set_pubkey(b"\2" + x)
        k.set_compressed(False)
        full = k.get_pubkey()
        assert full[:33] == b"\4" + x
        other = openssl.ecdsa(714)
        other.set_pubkey(full)
        assert other.get_pubkey() == full
        other.set_compressed(True)
        assert other.get_pubkey() == b"\2" + x

    @pytest.mark.parametrize("curve", ["prime256v1", "secp256k1", "secp384r1", "secp521r1"])
    def test_openssl_verifies_what_we_sign_and_the_other_way_round(self, curve: str, tmp_path: Path) -> None:
        k = openssl.ecdsa(curve)
        k.generate()
        (tmp_path / "key.der").write_bytes(k.get_privkey())
        program("ec", "-inform", "DER", "-in", str(tmp_path / "key.der"), "-out", str(tmp_path / "key.pem"))
        digest = openssl.digest("SHA256")
        digest.update(b"a message")
        value = digest.final()
        (tmp_path / "digest").write_bytes(value)
        (tmp_path / "sig").write_bytes(k.sign(value))
        files = ["-inkey", str(tmp_path / "key.pem"), "-in", str(tmp_path / "digest")]
        out = program("pkeyutl", "-verify", *files, "-sigfile", str(tmp_path / "sig"))
        assert b"Verified Successfully" in out
        theirs = program("pkeyutl", "-sign", *files)
        assert k.verify(value, theirs) == 1
        assert k.verify(value[::-1], theirs) == 0

    @pytest.mark.parametrize("curve", ["secp224r1", "prime256v1", "secp384r1", "secp521r1", "brainpoolP256r1"])
    @pytest.mark.parametrize("size", [1, 16, 20, 28, 32, 48, 64])
    def test_digests_of_all_sizes(self, curve: str, size: int) -> None:
        k = openssl.ecdsa(curve)
        k.generate()
        assert k.verify(b"\xa5" * size, k.sign(b"\xa5" * size)) == 1

    def test_unknown_curve_and_point_not_on_it(self) -> None:
        with pytest.raises(openssl.Error, match="no curve is called"):
            openssl.ecdsa("secret1")
        with pytest.raises(openssl.Error, match="public key"):
            openssl.ecdsa(714).set_pubkey(b"\4" + bytes(64))


class TestKeys:
    def test_there_and_back(self, key: openssl.pkey) -> None:
        again = openssl.pkey(key.get_private(), "", True)
        assert again == key and again.bits() == 2048 and again.size() == 256
        public = openssl.pkey(key.get_public())
        assert not public.is_private
        with pytest.raises(openssl.Error, match="public"):
            public.get_private()

    def test_an_encrypted_key_needs_its_password(self, key: openssl.pkey) -> None:
        pem = program("rsa", "-aes256", "-passout", "pass:geheim", data=key.get_private())
        assert openssl.read_pem_key(pem, "geheim") == key
        with pytest.raises(openssl.Error, match="encrypted; pass its password"):
            openssl.read_pem_key(pem)
        with pytest.raises(openssl.Error):
            openssl.read_pem_key(pem, "wrong")

    def test_encryption_is_for_the_owner_of_the_key(self, key: openssl.pkey, tmp_path: Path) -> None:
        public = openssl.pkey(key.get_public())
        secret = public.encrypt(b"attack at dawn")
        assert key.decrypt(secret) == b"attack at dawn"
        (tmp_path / "key").write_bytes(key.get_private())
        options = ["-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256"]
        out = program("pkeyutl", "-decrypt", "-inkey", str(tmp_path / "key"), *options, data=secret)
        assert out == b"attack at dawn"
        with pytest.raises(openssl.Error, match="not for this key, or damaged"):
            key.decrypt(secret[:-1] + bytes([secret[-1] ^ 1]))

    @pytest.mark.parametrize("e", [2, 3, 65536, 65539])
    def test_other_exponents_are_refused(self, e: int) -> None:
        with pytest.raises(ValueError, match="exponent"):
            openssl.rsa(2048, e)

    def test_short_keys_are_refused(self) -> None:
        with pytest.raises(ValueError, match="1024 bits"):
            openssl.rsa(1024)

    def test_check(self) -> None:
        assert openssl.rsa(2048).check() is True

    def test_no_secret_in_a_repr(self, key: openssl.pkey) -> None:
        assert repr(key) == "<pkey private, RSA of 2048 bits>"

    @pytest.mark.parametrize("data", ["", "garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
    def test_what_is_no_key(self, data: str | bytes) -> None:
        with pytest.raises(openssl.Error):
            openssl.read_pem_key(data)


class TestCertificates:
    def test_openssl_reads_and_trusts_ours(self, key: openssl.pkey, tmp_path: Path) -> None:
        cert = made(key)
        cert.sign(key, ca=True)
        path = tmp_path / "cert.pem"
        path.write_bytes(cert.as_pem())
        text = program("x509", "-in", str(path), "-noout", "-text").decode()
        assert "DNS:example.test, IP Address:192.0.2.1, IP Address:0:0:0:0:0:0:0:1" in text
        assert "sha256WithRSAEncryption" in text and "Version: 3" in text
        assert program("verify", "-x509_strict", "-CAfile", str(path), str(path)).endswith(b": OK\n")

    def test_a_chain(self, key: openssl.pkey, tmp_path: Path) -> None:
        root = made(key, "root.test")
        root.sign(key, ca=True)
        leaf_key = openssl.pkey(openssl.rsa(2048))
        leaf = made(leaf_key, "leaf.test")
        leaf.sign(key, issuer=root)
        (tmp_path / "root").write_bytes(root.as_pem())
        (tmp_path / "leaf").write_bytes(leaf.as_pem())
        out = program("verify", "-x509_strict", "-CAfile", str(tmp_path / "root"), str(tmp_path / "leaf"))
        assert out.endswith(b": OK\n")
        assert leaf.is_signed_by(root) and not root.is_signed_by(leaf)
        with pytest.raises(openssl.Error, match="not that of the issuer"):
            made(leaf_key).sign(leaf_key, issuer=root)

    def test_names(self, key: openssl.pkey) -> None:
        cert = made(key)
        name = cert.get_subject_name()
        assert name.get_entries() == {"C": "NL", "O": "coro", "CN": "example.test"}
        assert name.entry_count() == 3
        entry = name.get_entry(0)
        assert entry.get_object() == "C" and entry.get_object().ln == "countryName" and entry.get_object().nid == 14
        assert entry.get_data().to_UTF8() == "NL"
        assert {entry.get_object(): 1} == {openssl.asn1_object("countryName"): 1}
        assert name.print_ex() == "C=NL, O=coro, CN=example.test"
        with pytest.raises(IndexError):
            name.get_entry(3)
        with pytest.raises(openssl.Error, match="no attribute is called"):
            name.add_entry_by_txt("nonsense", "x")
        with pytest.raises(openssl.Error, match="countryName cannot be"):
            name.add_entry_by_txt("C", "Netherlands")

    def test_a_change_takes_the_signature_away(self, key: openssl.pkey) -> None:
        cert = made(key)
        cert.sign(key)
        before = cert.as_pem()
        cert.get_subject_name().add_entry_by_txt("OU", "more")
        with pytest.raises(openssl.Error, match="call sign"):
            cert.as_pem()
        cert.sign(key)
        assert cert.as_pem() != before

    def test_times_and_serial_numbers(self, key: openssl.pkey) -> None:
        cert = made(key)
        cert.get_serialNumber().set(0x1234)
        assert cert.get_serialNumber().get() == 0x1234 and cert.get_serialNumber().to_hex() == "1234"
        assert cert.get_notBefore().cmp_current_time() == -1
        assert cert.get_notAfter().cmp_current_time() == 1
        when = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
        assert openssl.asn1_time(when).to_string() == "Jan  2 03:04:05 2030 GMT"
        for bad in (0, -1, 1 << 160):
            with pytest.raises(ValueError, match="serial number"):
                cert.set_serialNumber(bad)
        cert.set_serialNumber()
        assert cert.get_serialNumber().get().bit_length() == 64

    def test_weak_digests_are_refused(self, key: openssl.pkey) -> None:
        for name in ("SHA1", "MD5"):
            with pytest.raises(openssl.Error, match="can be forged"):
                made(key).sign(key, name)

    def test_requests(self, key: openssl.pkey, tmp_path: Path) -> None:
        cert = made(key)
        cert.sign(key)
        request = cert.to_x509_req("SHA256", key)
        (tmp_path / "req").write_bytes(request.as_pem())
        program("req", "-in", str(tmp_path / "req"), "-verify", "-noout")
        again = openssl.x509_req(request.as_pem())
        assert again.get_subject_name().get_entries()["CN"] == "example.test"
        assert again.get_hosts() == ["example.test", "192.0.2.1", "::1"]
        assert again.get_pubkey().get_public() == key.get_public()

    def test_theirs_is_read(self, tmp_path: Path) -> None:
        options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost/O=x"]
        files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
        program("req", "-x509", *options, "-days", "3", "-addext", "subjectAltName=DNS:localhost", *files)
        cert = openssl.read_pem_cert((tmp_path / "cert").read_bytes())
        secret = openssl.read_pem_key((tmp_path / "key").read_bytes())
        assert cert.get_hosts() == ["localhost"]
        assert cert.get_pubkey().get_public() == secret.get_public()
        fingerprint = program("x509", "-in", str(tmp_path / "cert"), "-noout", "-fingerprint", "-sha256").decode()
        assert fingerprint.strip().partition("=")[2] == cert.fingerprint()

    def test_accessors_of_an_empty_certificate_say_so(self) -> None:
        cert = openssl.x509()
        for call in (cert.as_pem, cert.as_der, cert.get_pubkey, cert.fingerprint):
            with pytest.raises(openssl.Error):
                call()
        with pytest.raises(openssl.Error):
            openssl.x509("no certificate")

    def test_pkcs12(self, key: openssl.pkey, tmp_path: Path) -> None:
        cert = made(key)
        cert.sign(key)
        ca = testing.CA()
        data = openssl.pkcs12().create("geheim", key, cert, [ca.cert], "mine").as_data()
        got_key, got_cert, others = openssl.pkcs12(data).parse("geheim")
        assert got_key == key and got_cert == cert and others == [ca.cert]
        (tmp_path / "p12").write_bytes(data)
        out = program("pkcs12", "-in", str(tmp_path / "p12"), "-passin", "pass:geheim", "-nodes")
        assert out.count(b"BEGIN CERTIFICATE") == 2 and b"friendlyName: mine" in out
        with pytest.raises(openssl.Error, match="password"):
            openssl.pkcs12(data).parse("wrong")
        with pytest.raises(ValueError, match="password"):
            openssl.pkcs12().create("", key, cert)


class TestDigestsAndCiphers:
    @pytest.mark.parametrize("name", ["SHA256", "sha384", "SHA-512", "sha1", "MD5"])
    def test_digests(self, name: str) -> None:
        digest = openssl.digest(name)
        digest.update(b"ab")
        digest.update(b"c")
        plain = name.lower().replace("-", "")
        assert digest.final().hex().encode() == program("dgst", f"-{plain}", "-r", data=b"abc").split()[0]

    def test_unknown_names(self) -> None:
        with pytest.raises(openssl.UnknownDigestType, match="MD2"):
            openssl.digest("MD2")
        with pytest.raises(openssl.UnknownCipherType, match="DES"):
            openssl.cipher("DES-CBC")

    def test_signatures(self, key: openssl.pkey, tmp_path: Path) -> None:
        digest = openssl.digest("SHA256")
        digest.update(b"a message")
        sig = digest.sign(key)
        assert digest.verify(openssl.pkey(key.get_public()), sig)
        assert not digest.verify(key, sig[::-1])
        (tmp_path / "sig").write_bytes(sig)
        (tmp_path / "pub").write_bytes(key.get_public())
        files = ["-verify", str(tmp_path / "pub"), "-signature", str(tmp_path / "sig")]
        assert b"Verified OK" in program("dgst", "-sha256", *files, data=b"a message")
        with pytest.raises(openssl.Error, match="too weak"):
            openssl.digest("SHA1").sign(key)

    @pytest.mark.parametrize("name", ["AES-128-CBC", "AES-256-CBC", "AES-256-CTR", "AES-128-ECB"])
    def test_ciphers(self, name: str) -> None:
        there = openssl.cipher(name, encrypt=1)
        secret, iv = bytes(range(there.get_key_length())), bytes(range(there.get_iv_length()))
        there.set_key(secret)
        there.set_iv(iv)
        text = b"the quick brown fox"
        out = there.update(text[:5]) + there.update(text[5:]) + there.final()
        options = ["-K", secret.hex(), *(["-iv", iv.hex()] if iv else [])]
        assert out == program("enc", f"-{name.lower()}", *options, data=text)
        back = openssl.cipher(name, secret, iv)
        assert back.update(out) + back.final() == text
        with pytest.raises(openssl.Error, match="has ended"):
            back.update(b"more")
        if there.block_size() > 1:
            damaged = openssl.cipher(name, secret, iv)
            damaged.update(out[:-1])
            with pytest.raises(openssl.Error, match="wrong"):
                damaged.final()

    def test_the_rest(self) -> None:
        assert len(openssl.random_bytes(16)) == 16 and openssl.random_bytes(16) != openssl.random_bytes(16)
        assert openssl.random_status() == 1
        assert openssl.openssl_version.startswith("OpenSSL")
        assert "TLS_AES_256_GCM_SHA384" in openssl.get_all_ciphers()


class TestContextAndConnection:
    def test_a_handshake_by_hand(self, tmp_path: Path) -> None:
        import socket

        ca = testing.CA()
        one = ca.intermediate().issue("localhost")
        server, client = openssl.ssl_ctx(), openssl.ssl_ctx()
        server.use_cert(one.cert, one._chain)
        server.use_key(one.key)
        server.check_key()
        server.set_next_protos([b"h2", b"http/1.1"])
        client.set_next_protos([b"http/1.1"])
        client.set_verify(openssl.SSL_VERIFY.PEER)
        client.load_verify_locations(ca.write(tmp_path))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            a, b = client.ssl(), server.ssl()
            a.set_fd(ours.fileno())
            b.set_fd(theirs.fileno())
            _alternate(a.connect, b.accept)
            assert a.get_next_protos_negotiated() == b.get_next_protos_negotiated() == b"http/1.1"
            assert a.get_cipher() == b.get_cipher() and a.get_cipher() in a.get_ciphers()
            assert a.get_peer_cert() == one.cert and b.get_peer_cert() is None
            assert a.get_verify_result() == (0, "ok")
            assert a.write(b"hello") == 5 and b.read(100) == b"hello"
            with pytest.raises(openssl.WantRead):
                b.read(1)
            assert a.shutdown() == 0
            with pytest.raises(openssl.WantRead):
                a.shutdown()
            with pytest.raises(openssl.Error, match="shutdown"):
                a.write(b"more")
            assert b.read(1) == b"" and b.shutdown() == 1
            assert a.shutdown() == 1 and a.read(1) == b""

    def test_settings_of_one_connection(self, key: openssl.pkey, tmp_path: Path) -> None:
        """They leave the context, and its other connections, alone."""
        import socket

        ca = testing.CA()
        one = ca.issue("localhost")
        server, client = openssl.ssl_ctx(), openssl.ssl_ctx()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            a, b = client.ssl(), server.ssl()
            a.set_fd(ours.fileno())
            b.set_fd(theirs.fileno())
            with pytest.raises(openssl.Error, match="no certificate"):
                b.check_key()
            b.use_cert(one.cert)
            b.use_key(key)
            with pytest.raises(openssl.Error, match="not that of"):
                b.check_key()
            b.use_key(one.key)
            b.check_key()
            b.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
            assert b.set_options(openssl.SSL_OP.SINGLE_DH_USE) == b.get_options() == openssl.SSL_OP.SINGLE_DH_USE
            assert b.cert is one.cert and b.key is one.key and b.dh is None
            assert not a.verify_cert(one.cert)
            a.load_verify_locations(ca.write(tmp_path))
            assert a.verify_cert(one.cert)
            a.set_next_protos([b"h2", b"http/1.1"])
            b.set_next_protos([b"http/1.1"])
            b.set_ecdh_auto(1)
            with pytest.raises(ValueError, match="forward secrecy"):
                b.set_ecdh_auto(0)
            a.set_options(0x20000000)  # no TLS 1.3; Python warns of such options
            _alternate(a.connect, b.accept)
            assert a.get_cipher() == "ECDHE-ECDSA-CHACHA20-POLY1305"
            assert a.get_peer_cert() == one.cert and a.get_verify_result() == (0, "ok")
            assert a.get_next_protos_negotiated() == b.get_next_protos_negotiated() == b"http/1.1"
            with pytest.raises(openssl.Error, match="has begun"):
                a.set_verify(openssl.SSL_VERIFY.PEER)
        assert server.cert is None and server.get_options() == client.get_options() == 0
        assert not client.verify_cert(one.cert)
        assert not client.ssl().verify_cert(one.cert)

    def test_a_connection_that_has_failed(self, tmp_path: Path) -> None:
        """Each call raises an Error, none of the standard library's."""
        import socket

        ca = testing.CA()
        one = ca.issue("localhost")
        server, client = openssl.ssl_ctx(), openssl.ssl_ctx()
        server.use_cert(one.cert)
        server.use_key(one.key)
        client.load_verify_locations(ca.write(tmp_path))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            a, b = client.ssl(), server.ssl()
            a.set_fd(ours.fileno())
            b.set_fd(theirs.fileno())
            _alternate(a.connect, b.accept)
            ours.send(b"nonsense" * 50)
            for call in (lambda: b.read(1), lambda: b.write(b"x"), b.shutdown):
                with pytest.raises(openssl.Error):
                    call()
            with pytest.raises(openssl.Error, match="alert"):
                a.read(1)
            theirs.close()
            with pytest.raises(openssl.Error):
                a.write(b"x")

    def test_what_is_not_trusted_is_refused(self) -> None:
        import socket

        one = testing.CA().issue("localhost")
        server, client = openssl.ssl_ctx(), openssl.ssl_ctx()
        server.use_cert(one.cert)
        server.use_key(one.key)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            a, b = client.ssl(), server.ssl()
            a.set_fd(ours.fileno())
            b.set_fd(theirs.fileno())
            with pytest.raises(openssl.Error, match="unable to get local issuer"):
                _alternate(a.connect, b.accept)
            assert a.get_verify_result()[0] == 20

    def test_mistakes(self, key: openssl.pkey) -> None:
        context = openssl.ssl_ctx()
        with pytest.raises(ValueError, match="file or the folder"):
            context.load_verify_locations()
        with pytest.raises(openssl.Error, match="ciphers"):
            context.set_ciphers("nonsense")
        context.use_cert(testing.CA().issue("x.test").cert)
        context.use_key(key)
        with pytest.raises(openssl.Error, match="not that of the certificate"):
            context.check_key()

    def test_verify_cert(self, tmp_path: Path) -> None:
        ca = testing.CA()
        context = openssl.ssl_ctx()
        context.load_verify_locations(ca.write(tmp_path))
        assert context.verify_cert(ca.issue("a.test").cert)
        assert not context.verify_cert(testing.CA().issue("a.test").cert)
        assert not context.verify_cert(ca.issue("a.test", starts_in=-10, days=5).cert)

    def test_verify_cert_overlooks_authorities_that_cannot_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those of a system may have numbers that are not allowed any more."""
        ca, old = testing.CA(), testing.CA("old")
        (tmp_path / "both.pem").write_bytes(old.pem + ca.pem)
        context = openssl.ssl_ctx()
        context.load_verify_locations(str(tmp_path / "both.pem"))
        real = openssl.x509.from_der

        def strict(der: bytes) -> openssl.x509:
            if der == old.der:
                raise openssl.Error(0, "cannot read the certificate")
            return real(der)

        monkeypatch.setattr(openssl.x509, "from_der", strict)
        assert context.verify_cert(ca.issue("a.test").cert)
        assert not context.verify_cert(old.issue("a.test").cert)


def _alternate(*calls: object) -> None:
    waiting = list(calls)
    for _ in range(20):
        for call in waiting[:]:
            try:
                call()  # type: ignore[operator]
            except openssl.WantRead:
                continue
            waiting.remove(call)
        if not waiting:
            return
    raise AssertionError("the handshake does not come to its end")
