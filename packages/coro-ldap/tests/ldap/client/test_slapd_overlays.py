"""The client and what overlays of OpenLDAP's server do: rules for passwords, and searches that are cancelled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ldap_client_support import HANG, in_loop
from ldap_server_support import ADMIN, BASE, PASSWORD, Slapd, entries

import coro
from coro.asn1 import ber
from coro.ldap import Client, controls
from coro.ldap.controls import PasswordPolicy, PasswordPolicyResponse, SyncRequest
from coro.ldap.exceptions import (
    Canceled,
    ConstraintViolation,
    InsufficientAccessRights,
    InvalidCredentials,
    LDAPError,
    NoSuchOperation,
)
from coro.ldap.filters import And, Or
from coro.ldap.protocol import Control, SearchRequest

pytestmark = pytest.mark.slow  # real servers
PEOPLE = f"ou=people,{BASE}"
POLICIES = f"""
dn: ou=policies,{BASE}
objectClass: organizationalUnit
ou: policies

dn: cn=default,ou=policies,{BASE}
objectClass: organizationalRole
objectClass: pwdPolicy
cn: default
pwdAttribute: userPassword
pwdMaxAge: 10000
pwdExpireWarning: 10001
pwdGraceAuthNLimit: 2
pwdMinLength: 5
pwdCheckQuality: 2
pwdInHistory: 2
pwdLockout: TRUE
pwdMaxFailure: 3
pwdMustChange: TRUE
pwdSafeModify: TRUE
"""


class Strict(Slapd):
    """slapd with the overlays ppolicy and syncprov.  The password of u1 has expired, that of u2 was set by somebody."""

    def __init__(self) -> None:
        ldif = entries(5) + POLICIES
        for number, more in ((1, "pwdChangedTime: 20200101000000Z"), (2, "pwdReset: TRUE")):
            ldif = ldif.replace(f"userPassword: pw{number}\n", f"userPassword: pw{number}\n{more}\n")
        super().__init__(ldif)

    def prepare(self) -> None:
        # slapadd knows these attributes only with the overlay, so the configuration has to be there before.
        self._ldif, ldif = "", self._ldif
        super().prepare()
        (self.folder / "init.ldif").write_text(ldif)
        path = self.folder / "slapd.conf"
        text = path.read_text().replace(
            "moduleload back_mdb\n",
            "moduleload back_mdb\nmoduleload ppolicy\nmoduleload syncprov\nmoduleload deref\n",
        )
        overlays = (
            f"overlay ppolicy\nppolicy_default cn=default,ou=policies,{BASE}\nppolicy_use_lockout\n"
            "overlay syncprov\noverlay deref\n"
            "access to attrs=userPassword by self write by anonymous auth by * none\n"
        )
        path.write_text(text.replace("access to *", overlays + "access to *"))
        self.run(self._add, "-q", "-f", str(path), "-l", str(self.folder / "init.ldif"))


@pytest.fixture(scope="module")
def slapd() -> Iterator[Strict]:
    with Strict() as running:
        yield running


def user(number: int) -> str:
    return f"uid=u{number},{PEOPLE}"


def state(found) -> PasswordPolicyResponse:
    answer = controls.find(found, PasswordPolicyResponse)
    assert answer is not None
    return answer


def refused(kind: type[LDAPError], call, *args) -> PasswordPolicyResponse:
    with pytest.raises(kind) as caught:
        call(*args, controls=[PasswordPolicy()])
    return state(caught.value.result)


def test_password_policy(slapd: Strict) -> None:
    @in_loop
    def run() -> None:
        ask = [PasswordPolicy()]
        with Client(slapd.url, timeout=HANG) as client:
            # Nothing is to be told about a password that was never changed.
            found = state(client.simple_bind(user(0), "pw0", controls=ask))
            assert found == PasswordPolicyResponse()
            change = client.change_password
            assert refused(ConstraintViolation, change, user(0), "pw0", "abc").reason == "passwordTooShort"
            assert refused(InsufficientAccessRights, change, user(0), None, "long enough").reason == (
                "mustSupplyOldPassword"
            )
            change(user(0), "pw0", "long enough", controls=ask)
            assert refused(ConstraintViolation, change, user(0), "long enough", "long enough").reason == (
                "passwordInHistory"
            )
            found = state(client.simple_bind(user(0), "long enough", controls=ask))
            assert found.grace is None and found.error is None and 9000 < found.expires <= 10_000

            # It has expired: two more logins.
            for left in (1, 0):
                found = state(client.simple_bind(user(1), "pw1", controls=ask))
                assert (found.grace, found.error) == (left, None)
            assert refused(InvalidCredentials, client.simple_bind, user(1), "pw1").reason == "passwordExpired"

            # Somebody else has set it: nothing but changing it is allowed.
            found = state(client.simple_bind(user(2), "pw2", controls=ask))
            assert found.reason == "changeAfterReset"
            with pytest.raises(InsufficientAccessRights, match="restricted"):
                client.read(BASE)
            assert refused(InsufficientAccessRights, client.modify, user(2), {"title": ["x"]}).reason == (
                "changeAfterReset"
            )
            change(user(2), "pw2", "my own one")
            assert client.read(BASE).text("dc") == "example"

            # Too many wrong ones.
            for _ in range(3):
                refused(InvalidCredentials, client.simple_bind, user(3), "wrong")
            assert refused(InvalidCredentials, client.simple_bind, user(3), "pw3").reason == "accountLocked"
            # Who does not ask is told nothing.
            with pytest.raises(InvalidCredentials) as caught:
                client.simple_bind(user(3), "pw3")
            assert caught.value.result.controls == ()

    run()


def test_cancel(slapd: Strict) -> None:
    """RFC 3909: the server confirms that the search has ended, and the search says that it was cancelled."""

    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            client.simple_bind(ADMIN, PASSWORD)
            begun = coro.event()
            seen = []

            def listen() -> None:
                for item in search:
                    seen.append(item)
                    begun.set()

            search = client.stream(SearchRequest(PEOPLE), [SyncRequest(mode=3)], timeout=HANG)
            listener = coro.spawn(listen)
            begun.wait(HANG)
            client.cancel(search)
            with pytest.raises(Canceled):
                listener.get()
            assert seen and search.result.code == 118
            for gone in (search, 4711):
                with pytest.raises(NoSuchOperation):
                    client.cancel(gone)
            # The connection goes on, and nothing is left of the search.
            assert client.whoami() == f"dn:{ADMIN}"
            assert client.statistics()[1:4] == (0, 0, 0)
            client.modify(user(4), {"title": ["changed"]})

    run()


def test_account_usability(slapd: Strict) -> None:
    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            client.simple_bind(ADMIN, PASSWORD)
            found = {
                entry.text("uid"): controls.find(entry, controls.AccountUsabilityResponse)
                for entry in client.search_iter(
                    PEOPLE, 1, "(|(uid=u1)(uid=u4))", ["uid"], controls=[controls.AccountUsability()]
                )
            }
            assert found["u4"].usable and found["u4"].expires in (0, -1)
            assert not found["u1"].usable and found["u1"].grace is not None

    run()


def test_dereference(slapd: Strict) -> None:
    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            client.simple_bind(ADMIN, PASSWORD)
            wanted = controls.Dereference({"member": ["mail", "uid"]}, critical=True)
            [group] = client.search_iter(f"ou=groups,{BASE}", 1, "(cn=g0)", controls=[wanted])
            found = controls.find(group, controls.DereferenceResponse).values
            assert [(one.attribute, one.dn) for one in found] == [("member", user(number)) for number in range(5)]
            assert found[3].attributes == {"mail": [b"u3@example.org"], "uid": [b"u3"]}

    run()


def test_transaction(slapd: Strict) -> None:
    """RFC 5805, by the general means: changes that are made together or not at all."""
    begin, end, member = "1.3.6.1.1.21.1", "1.3.6.1.1.21.3", "1.3.6.1.1.21.2"

    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            client.simple_bind(ADMIN, PASSWORD)
            for commit in (False, True):
                number = client.extended(begin).value
                within = [Control(member, True, number)]
                client.modify(user(3), {"title": ["one"]}, controls=within)
                client.modify(user(4), {"title": ["two"]}, controls=within)
                assert client.read(user(3)).text("title") == "Boss"
                client.extended(end, ber.SEQUENCE(ber.BOOLEAN(commit), ber.OCTET_STRING(number)))
            assert [client.read(user(number)).text("title") for number in (3, 4)] == ["one", "two"]

    run()


def test_features(slapd: Strict) -> None:
    """What slapd lists as supportedFeatures (RFC 4525, 3673, 4529, 4526, 3866)."""

    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            client.simple_bind(ADMIN, PASSWORD)
            assert client.read(user(4), ["+"])["entryUUID"]
            assert set(client.read(user(4), ["@person"]).attributes) >= {"cn", "sn"}
            assert "mail" not in client.read(user(4), ["@person"])
            assert len(list(client.search_iter(PEOPLE, 1, And()))) == 5 and not list(
                client.search_iter(PEOPLE, 1, Or())
            )
            assert client.read(user(4)).with_options("cn") == {"cn": [b"User 4"], "cn;lang-de": [b"Benutzer 4"]}
            posix = f"cn=posix,{BASE}"
            client.add(posix, {"objectClass": ["device"], "cn": ["posix"], "serialNumber": ["5"]})
            with pytest.raises(LDAPError):
                client.modify(posix, [("increment", "serialNumber", ["x"])])
            client.delete(posix)

    run()
