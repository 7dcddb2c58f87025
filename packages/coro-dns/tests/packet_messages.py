"""Messages by chance: made with dnspython, so that what we read and write is compared with another codec's opinion."""

from __future__ import annotations

import random

import dns.edns
import dns.message
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset

#: Texts of data for each type: a function of a source of chance.
_LABELS = ("www", "mail", "A", "example", "EXAMPLE", "org", "x" * 63, "a-b", "_tcp", r"\000\255", r"dot\.dot", "y")


def name(r: random.Random, most: int = 3) -> str:
    return ".".join(r.choice(_LABELS) for _ in range(r.randint(0, most))) + "."


def hexadecimal(r: random.Random, least: int = 1, most: int = 40) -> str:
    return r.randbytes(r.randint(least, most)).hex()


def b64(r: random.Random) -> str:
    import base64

    return base64.b64encode(r.randbytes(r.randint(1, 100))).decode()


def string(r: random.Random) -> str:
    return '"' + "".join(f"\\{c:03d}" for c in r.randbytes(r.choice((0, 1, 5, 255)))) + '"'


def number(r: random.Random, bits: int) -> int:
    return r.getrandbits(r.choice((1, bits)))


def types(r: random.Random) -> str:
    return " ".join(f"TYPE{n}" for n in sorted({r.choice((1, 2, 15, 46, 47, 257, 40000)) for _ in range(4)}))


DATA = {
    "A": lambda r: ".".join(str(r.randrange(256)) for _ in range(4)),
    "AAAA": lambda r: ":".join(f"{number(r, 16):x}" for _ in range(8)),
    "NS": name,
    "CNAME": name,
    "PTR": name,
    "DNAME": name,
    "SOA": lambda r: f"{name(r)} {name(r)} {' '.join(str(number(r, 31)) for _ in range(5))}",
    "MX": lambda r: f"{number(r, 16)} {name(r)}",
    "TXT": lambda r: " ".join(string(r) for _ in range(r.randint(1, 4))),
    "HINFO": lambda r: f"{string(r)} {string(r)}",
    "RP": lambda r: f"{name(r)} {name(r)}",
    "AFSDB": lambda r: f"{number(r, 16)} {name(r)}",
    "SRV": lambda r: f"{number(r, 16)} {number(r, 16)} {number(r, 16)} {name(r)}",
    "NAPTR": lambda r: f"{number(r, 16)} {number(r, 16)} {string(r)} {string(r)} {string(r)} {name(r)}",
    "KX": lambda r: f"{number(r, 16)} {name(r)}",
    "PX": lambda r: f"{number(r, 16)} {name(r)} {name(r)}",
    "CERT": lambda r: f"{number(r, 16)} {number(r, 16)} {number(r, 8)} {b64(r)}",
    "DS": lambda r: f"{number(r, 16)} 8 2 {hexadecimal(r, 32, 32)}",
    "SSHFP": lambda r: f"{number(r, 8)} {r.randrange(9, 256)} {hexadecimal(r)}",
    "RRSIG": lambda r: (
        f"A 8 {number(r, 8)} {number(r, 31)} 20300101000000 20200101000000 {number(r, 16)} {name(r)} {b64(r)}"
    ),
    "NSEC": lambda r: f"{name(r)} {types(r)}",
    "DNSKEY": lambda r: f"{number(r, 16)} 3 8 {b64(r)}",
    "NSEC3": lambda r: f"1 {number(r, 8)} {number(r, 16)} {r.choice(('-', 'ABCD'))} {32 * 'A'} {types(r)}",
    "NSEC3PARAM": lambda r: f"1 {number(r, 8)} {number(r, 16)} {r.choice(('-', 'ABCD'))}",
    "TLSA": lambda r: f"{number(r, 8)} {number(r, 8)} 0 {hexadecimal(r)}",
    "CDNSKEY": lambda r: f"{number(r, 16)} 3 8 {b64(r)}",
    "OPENPGPKEY": b64,
    "CSYNC": lambda r: f"{number(r, 31)} {number(r, 16)} {types(r)}",
    "HTTPS": lambda r: f'1 {name(r)} alpn="h2,h3" port={number(r, 16)} ipv4hint=192.0.2.1 key65000="abc"',
    "SVCB": lambda r: f"{r.randrange(1, 9)} {name(r)} mandatory=port port=1 ipv6hint=2001:db8::1",
    "URI": lambda r: f'{number(r, 16)} {number(r, 16)} "ftp://example.org/{number(r, 16)}"',
    "CAA": lambda r: f'{r.choice((0, 128))} issue "ca{number(r, 8)}.example"',
    "APL": lambda r: f"1:192.0.2.0/24 !2:2001:db8::/{r.randrange(33, 128)}",
    "LOC": lambda r: (
        f"{r.randrange(90)} {r.randrange(60)} {r.randrange(60)}.{r.randrange(1000):03d} {r.choice('NS')} "
        f"{r.randrange(180)} {r.randrange(60)} {r.randrange(60)}.{r.randrange(1000):03d} {r.choice('EW')} "
        f"{r.randrange(-100_000, 42_849_672)}m {r.choice((0, 1, 9))}m {r.choice((0, 30, 8000000))}m 10m"
    ),
    "WKS": lambda r: f"192.0.2.{r.randrange(256)} {r.choice((6, 17))} {' '.join(str(number(r, 9)) for _ in range(3))}",
    "HIP": lambda r: f"{number(r, 8)} {hexadecimal(r)} {b64(r)} {' '.join(name(r) for _ in range(r.randrange(3)))}",
    "IPSECKEY": lambda r: (
        f"{number(r, 8)} "
        + r.choice(
            (f"0 2 . {b64(r)}", f"1 1 192.0.2.1 {b64(r)}", f"2 2 2001:db8::1 {b64(r)}", f"3 2 {name(r)} {b64(r)}")
        )
    ),
    "EUI48": lambda r: r.randbytes(6).hex("-"),
    "EUI64": lambda r: r.randbytes(8).hex("-"),
    "TYPE65280": lambda r: (lambda data: f"\\# {len(data)} {data.hex()}")(r.randbytes(r.randrange(40))),
}
_PARSED: dict[tuple[str, str], dns.rdata.Rdata] = {}


def message(r: random.Random) -> dns.message.Message:
    """A message with records of up to eight types, and EDNS or not."""
    out = dns.message.Message(r.getrandbits(16))
    out.flags = r.getrandbits(16) & 0x87F0
    asked = name(r)
    out.question.append(dns.rrset.RRset(dns.name.from_text(asked), dns.rdataclass.IN, dns.rdatatype.A))
    owners = [asked, name(r)]
    for section in (out.answer, out.authority, out.additional):
        for _ in range(r.choice((0, 1, 1, 2, 4))):
            kind = r.choice(list(DATA))
            rdata = dns.rdata.from_text("IN", kind, DATA[kind](r))
            owner = dns.name.from_text(r.choice(owners))
            rrset = out.find_rrset(section, owner, rdata.rdclass, rdata.rdtype, rdata.covers(), create=True)
            rrset.add(rdata, number(r, 31))
    if r.random() < 0.5:
        options = [dns.edns.GenericOption(r.choice((3, 10, 12, 65001)), r.randbytes(8)) for _ in range(r.randrange(3))]
        out.use_edns(0, r.choice((0, 0x8000)), r.randrange(512, 5000), options=options)
        out.set_rcode(r.choice((0, 3, 16)))
    return out


def mutated(r: random.Random, data: bytes) -> bytes:
    """The message with some bytes changed, cut off, put in or doubled."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 5))):
        at = r.randrange(len(out)) if out else 0
        what = r.randrange(6)
        if what == 0 and out:
            out[at] = r.getrandbits(8)
        elif what == 1 and out:
            out[at] = r.choice((0, 1, 63, 64, 0xC0, 0xFF))
        elif what == 2:
            del out[at:]
        elif what == 3:
            out[at:at] = r.randbytes(r.randrange(1, 5))
        elif what == 4:
            out[at : at + 4] = b""
        else:
            out[at:at] = out[at : at + r.randrange(1, 30)]
    return bytes(out)
