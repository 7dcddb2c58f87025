"""The clients of others against the server: OpenLDAP's programs, ldap3, python-ldap."""

from __future__ import annotations

import gc
import subprocess
import warnings
from collections.abc import Iterator

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours, entries
from real_programs.running import LIMIT, find_program, require_library

pytestmark = pytest.mark.slow
FRED = f"uid=u1,ou=people,{BASE}"


@pytest.fixture(scope="module")
def server() -> Iterator[Ours]:
    with Ours(entries(30)) as running:
        yield running


def tool(
    server: Ours,
    name: str,
    *arguments: str,
    dn: str = ADMIN,
    password: str = PASSWORD,
    text: str = "",
    code: int = 0,
) -> str:
    program = find_program(name, "ldap-utils")
    login = [] if "-Y" in arguments else ["-x", *(["-D", dn, "-w", password] if dn else [])]
    done = subprocess.run(
        [program, "-H", server.url, *login, *arguments], input=text, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_whoami(server: Ours) -> None:
    assert tool(server, "ldapwhoami") == f"dn:{ADMIN}\n"
    assert tool(server, "ldapwhoami", dn=FRED, password="pw1") == f"dn:{FRED}\n"
    assert tool(server, "ldapwhoami", dn="") == "anonymous\n"
    tool(server, "ldapwhoami", dn=FRED, password="pw2", code=49)
    tool(server, "ldapwhoami", dn=f"uid=nobody,{BASE}", password="pw2", code=49)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_scram(server: Ours, mechanism: str) -> None:
    if mechanism not in tool(server, "ldapsearch", "-s", "base", "-b", "", "supportedSASLMechanisms", dn=""):
        pytest.fail("the mechanism is not offered")
    login = ("-Y", mechanism, "-U", "u3", "-Q")
    assert tool(server, "ldapwhoami", *login, "-w", "pw3").endswith(f"dn:uid=u3,ou=people,{BASE}\n")
    tool(server, "ldapwhoami", *login, "-w", "wrong", code=49)


def test_search(server: Ours) -> None:
    out = tool(server, "ldapsearch", "-LLL", "-b", BASE, "(&(objectClass=person)(uid=u1*))", "cn", "uid")
    assert out.count("dn: uid=u1") == 11 and "cn;lang-de: Benutzer 1\n" in out and "mail" not in out
    pages = tool(server, "ldapsearch", "-b", BASE, "-E", "pr=7/noprompt", "(uid=*)", "1.1")
    assert pages.count("dn: uid=") == 30 and pages.count("pagedresults: cookie=") == 5
    assert "numEntries: 4" in tool(server, "ldapsearch", "-b", BASE, "-z", "4", "(uid=*)", code=4)
    types = tool(server, "ldapsearch", "-LLL", "-A", "-b", FRED, "mail", "+")
    assert "mail:\n" in types and "entryUUID:\n" in types
    tool(server, "ldapsearch", "-b", f"ou=none,{BASE}", code=32)
    # A stranger may read the root DSE and nothing else.
    assert "supportedLDAPVersion: 3" in tool(server, "ldapsearch", "-s", "base", "-b", "", "+", dn="")
    tool(server, "ldapsearch", "-b", BASE, dn="", code=32)
    # Others do not see passwords, and cannot ask for them in a filter.
    assert "userPassword" not in tool(server, "ldapsearch", "-b", BASE, dn=FRED, password="pw1").replace(
        f"userPassword:: {'cHcx'}", ""
    )
    as_fred = {"dn": FRED, "password": "pw1"}
    for password, count in (("pw1", 1), ("pw2", 0)):
        out = tool(server, "ldapsearch", "-b", BASE, f"(userPassword={password})", "1.1", **as_fred)
        assert ("numEntries: 1" in out) == bool(count)
    other = f"uid=u2,ou=people,{BASE}"
    assert "numEntries" not in tool(server, "ldapsearch", "-b", other, "(!(userPassword=x))", "1.1", **as_fred)


def test_changes(server: Ours) -> None:
    dn = f"cn=new,ou=groups,{BASE}"
    text = f"dn: {dn}\nobjectClass: groupOfNames\ncn: new\nmember: {FRED}\n"
    tool(server, "ldapadd", text=text)
    tool(server, "ldapadd", text=text, code=68)
    tool(server, "ldapadd", text=text.replace("cn=new", "cn=other"), dn=FRED, password="pw1", code=50)
    change = f"dn: {dn}\nchangetype: modify\nadd: description\ndescription: a\ndescription: b\n-\n"
    tool(server, "ldapmodify", text=change + "replace: ou\nou: x\n-\nadd: gidNumber\ngidNumber: 4\n-\n"
         "increment: gidNumber\ngidNumber: 3\n")  # fmt: skip
    read = tool(server, "ldapmodify", "-e", "preread=description", "-e", "postread=description,gidNumber",
                text=f"dn: {dn}\nchangetype: modify\ndelete: description\ndescription: A\n")  # fmt: skip
    assert "description: a\ndescription: b" in read and "gidNumber: 7" in read
    tool(server, "ldapmodify", "-e", "!assert=(gidNumber=9)", text=f"dn: {dn}\nchangetype: delete\n", code=122)
    assert tool(server, "ldapcompare", dn, "description:B", code=6) == "TRUE\n"
    assert tool(server, "ldapcompare", dn, "description:c", code=5) == "FALSE\n"
    tool(server, "ldapmodrdn", "-r", dn, "cn=renamed")
    tool(server, "ldapmodrdn", "-r", "-s", BASE, f"cn=renamed,ou=groups,{BASE}", "cn=moved")
    tool(server, "ldapdelete", f"ou=groups,{BASE}", code=66)
    tool(server, "ldapdelete", f"cn=moved,{BASE}")
    tool(server, "ldapdelete", f"cn=moved,{BASE}", code=32)
    tool(server, "ldapmodify", "-e", "!1.2.3.4", text=f"dn: {FRED}\nchangetype: delete\n", code=12)


def test_passwd(server: Ours) -> None:
    dn = f"uid=u5,ou=people,{BASE}"
    tool(server, "ldappasswd", "-s", "new5", "-a", "pw5", dn=dn, password="pw5")
    tool(server, "ldapwhoami", dn=dn, password="new5")
    tool(server, "ldapwhoami", dn=dn, password="pw5", code=49)
    tool(server, "ldappasswd", "-s", "x", FRED, dn=dn, password="new5", code=1)
    tool(server, "ldappasswd", "-s", "x", "-a", "wrong", dn=dn, password="new5", code=1)
    made = tool(server, "ldappasswd", dn).split("New password: ")[1].strip()
    tool(server, "ldapwhoami", dn=dn, password=made)


@pytest.mark.filterwarnings("ignore:(tagMap|typeMap) is deprecated:DeprecationWarning")
def test_ldap3(server: Ours) -> None:
    require_library("ldap3")
    import ldap3

    found = ldap3.Server(server.url, get_info=ldap3.ALL)
    with ldap3.Connection(found, ADMIN, PASSWORD, auto_bind=True, raise_exceptions=True) as connection:
        assert found.schema.attribute_types["cn"] is not None and BASE in found.info.naming_contexts
        pages = connection.extend.standard.paged_search(
            BASE, "(uid=*)", attributes=["*"], paged_size=7, generator=False
        )
        assert len(pages) == 30
        dn = f"uid=three,ou=people,{BASE}"
        connection.add(dn, "inetOrgPerson", {"sn": "x", "cn": "three", "jpegPhoto": bytes(range(256))})
        connection.modify(dn, {"sn": [(ldap3.MODIFY_REPLACE, ["y"])]})
        connection.search(dn, "(sn=Y)", attributes=["jpegPhoto"])
        assert connection.entries[0].jpegPhoto.raw_values == [bytes(range(256))]
        assert connection.compare(dn, "sn", "y")
        connection.modify_dn(dn, "uid=drei")
        connection.delete(f"uid=drei,ou=people,{BASE}")
        assert connection.extend.standard.who_am_i() == f"dn:{ADMIN}"
    # It leaves a socket to the collector.
    del connection, found, pages
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def test_python_ldap(server: Ours) -> None:
    require_library("ldap")
    import ldap
    import ldap.modlist
    from ldap.controls import SimplePagedResultsControl

    connection = ldap.initialize(server.url)
    connection.simple_bind_s(ADMIN, PASSWORD)
    control = SimplePagedResultsControl(True, size=11, cookie="")
    total = 0
    while True:
        identity = connection.search_ext(BASE, ldap.SCOPE_SUBTREE, "(uid=*)", serverctrls=[control])
        _, data, _, controls = connection.result3(identity)
        total += len(data)
        control.cookie = controls[0].cookie
        if not control.cookie:
            break
    assert total == 30
    dn = f"uid=py,ou=people,{BASE}"
    connection.add_s(dn, ldap.modlist.addModlist({"objectClass": [b"person"], "sn": [b"x"], "cn": [b"py"]}))
    connection.modify_s(dn, [(ldap.MOD_ADD, "description", [b"one", b"two"])])
    assert connection.compare_s(dn, "description", b"TWO")
    connection.rename_s(dn, "uid=py2", BASE)
    assert connection.search_s(f"uid=py2,{BASE}", ldap.SCOPE_BASE)[0][1]["description"] == [b"one", b"two"]
    connection.delete_s(f"uid=py2,{BASE}")
    with pytest.raises(ldap.NO_SUCH_OBJECT):
        connection.delete_s(f"uid=py2,{BASE}")
    connection.unbind_s()
