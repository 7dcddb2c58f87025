"""The questions that unbound and we are asked about the tree of dns_tree.py."""

EXAMPLE = """
www mail six text zero alias outside nothing elsewhere toself ring1 tolame _sip._tcp _443._tcp.www svc odd a.b.c.d.e.f
b.c.d.e.f f x.f any.wild a.b.wild fixed.wild below.fixed.wild other.fixed.wild wild www.dname dname x.inner inner loc
naptr host ssh rp ptr sub www.sub alias.sub missing.sub chain0 chain1 chain8 big many missing x.missing ns
""".split()
BROKEN = ("lame", "loop1", "loop2", "loop3", "self", "noname", "noaddress")
OTHERS = """
test here.test three.here.test two.three.here.test one.two.three.here.test x.here.test no.test . org example.org
www.example.org back.example.org mail.example.org nosuchtld x.nosuchtld WWW.Example.TEST
""".split()
KINDS = """
example.test/CAA _sip._tcp.example.test/SRV svc.example.test/HTTPS odd.example.test/TYPE65280 dname.example.test/DNAME
alias.example.test/CNAME ptr.example.test/PTR ssh.example.test/SSHFP loc.example.test/LOC naptr.example.test/NAPTR
host.example.test/HINFO sub.example.test/DS rp.example.test/RP _443._tcp.www.example.test/TLSA
""".split()


def questions() -> list[tuple[str, str]]:
    names = ["example.test", *(f"{one}.example.test" for one in EXAMPLE)]
    for zone in ("halflame", "glueless", "glueless2", "aliased", "knotted"):
        names += [f"{zone}.test", f"www.{zone}.test", f"alias.{zone}.test", f"no.{zone}.test"]
    names += [f"www.{zone}.test" for zone in BROKEN]
    names += OTHERS
    asked = [(one, rtype) for one in names for rtype in ("A", "AAAA", "TXT", "MX", "SOA")]
    asked += [(one, "NS") for one in names[:30]]
    return asked + [(one, rtype) for one, _, rtype in (kind.partition("/") for kind in KINDS)]
