"""The fuzz targets of this package on damaged messages, without a fuzzer: `python .../mutations.py --seconds 60`.

The seeds are messages of every kind, entries, certificates, filters, names and LDIF.  Beside them, values made at
random are written by this codec and by pyasn1, which have to write the same, and read by both.  An error names the seed
of the random numbers and shows the input.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

from pyasn1.codec.der import decoder as der_decoder
from pyasn1.codec.der import encoder as der_encoder
from pyasn1.type import char, univ

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent),
    str(HERE.parents[1] / "bench"),
    str(HERE.parents[3] / "tools/bench/workloads"),
]

import fuzz_ber  # noqa: E402
import fuzz_ldap  # noqa: E402
from asn1_values import damaged, pyasn1_writes_short  # noqa: E402
from codec import CERTIFICATE  # noqa: E402

from coro.asn1 import ber, python  # noqa: E402
from coro.ldap import controls, protocol  # noqa: E402


def seeds() -> list[bytes]:
    op = protocol
    more = (
        controls.PagedResults(10, b"c").control(), controls.ServerSideSort("cn").control(),
        controls.PasswordPolicyResponse(5, None, 3).control(), controls.SyncRequest(3, b"x").control(),
        controls.Assertion("(cn=x)").control(), controls.DirSync().control(),
    )  # fmt: skip
    kinds = (
        op.BindRequest("cn=x", b"secret"), op.BindRequest("", op.SASLCredentials("SCRAM-SHA-256", b"n,,n=u,r=x")),
        op.BindResponse(14, credentials=b"r=xyz"), op.UnbindRequest(),
        op.SearchRequest("dc=x", 2, "(&(cn=a*b*c)(|(!(x=y))(z:dn:2.5.13.2:=v)(a>=1)(b<=2)(c~=d)(e=*)))", ["cn", "*"]),
        op.SearchResultDone(32, "dc=x", "no such thing"), op.SearchResultReference(("ldap://a/b", "ldap://c")),
        op.SearchResultDone(10, referrals=("ldap://a/b??sub?(x=y)",)),
        op.ModifyRequest("cn=x", [op.Change(op.ADD, "cn", [b"a", b"b"]), op.Change(op.DELETE, "sn")]),
        op.ModifyResponse(), op.AddRequest("cn=x", {"cn": [b"x"], "sn": [b"y", b"z"]}), op.AddResponse(68),
        op.DelRequest("cn=x"), op.DelResponse(), op.ModifyDNRequest("cn=x", "cn=y", False, "dc=z"),
        op.CompareRequest("cn=x", "cn", b"x"), op.CompareResponse(6), op.AbandonRequest(70000),
        op.ExtendedRequest("1.2.3", b"v"), op.ExtendedResponse(0, name="1.2", value=b"x"),
        op.IntermediateResponse("1.2", b"x"),
    )  # fmt: skip
    found = [op.encode(op.Message(n + 1, kind)) for n, kind in enumerate(kinds)]
    found += [op.encode(op.Message(300, kind, more)) for kind in kinds]
    entry = op.encode_entry(5, "cn=x,dc=y", {"cn": [b"x"], "description;lang-de": [b"y" * 200, b"z"], "sn": []})
    found += [entry, entry * 3 + found[5], CERTIFICATE, python.encode([1, "two", b"3", 4.0, (5, {6: 7}), None, True])]
    found += [one[one.index(b"\xa0") :] for one in found if b"\xa0" in one]
    found += [
        b"(&(cn=a\\2a*)(|(x=y)(!(z>=1)))(a:dn:1.2.3:=b))", b"cn=a\\,b+sn=\\C3\\A4,ou=x\\20,dc=#0401ff",
        b"ldaps://h:636/dc=x??sub?(cn=*)?!1.2.3=a%2cb,x", b"version: 1\ndn: cn=x\ncn:: eA==\nsn: y\n z\n\ndn: cn=x\n"
        b"control: 1.2 true: x\nchangetype: modify\nadd: cn\ncn: z\n-\nreplace: sn\n-\n\ndn: a=b\nchangetype: modrdn\n"
        b"newrdn: a=c\ndeleteoldrdn: 1\n",
    ]  # fmt: skip
    return found


def same_as_pyasn1(chance: random.Random) -> None:
    """A SEQUENCE of values, by both."""
    theirs = univ.Sequence()
    ours = []
    for place in range(chance.randrange(1, 8)):
        number = chance.randrange(-(1 << chance.randrange(1, 200)), 1 << chance.randrange(1, 200))
        number += not pyasn1_writes_short(number)
        octets = chance.randbytes(chance.choice((0, 1, 5, 127, 128, 300)))
        arcs = [1, chance.randrange(40), *(chance.randrange(1 << chance.randrange(1, 70)) for _ in range(4))]
        text = "".join(chr(chance.choice((65, 0xE4, 0x20AC, 0x1F600))) for _ in range(chance.randrange(60)))
        kind, item = chance.choice(
            (
                (ber.INTEGER(number), univ.Integer(number)),
                (ber.ENUMERATED(number), univ.Enumerated(number)),
                (ber.BOOLEAN(number > 0), univ.Boolean(number > 0)),
                (ber.OCTET_STRING(octets), univ.OctetString(octets)),
                (ber.UTF8_STRING(text), char.UTF8String(text)),
                (ber.OBJID(arcs), univ.ObjectIdentifier(arcs)),
                (ber.BITSTRING(0, b"x" + octets), univ.BitString(hexValue=(b"x" + octets).hex())),
                (ber.NULL(), univ.Null("")),
            )
        )
        ours.append(kind)
        theirs.setComponentByPosition(place, item)
    data = ber.SEQUENCE(*ours)
    assert data == der_encoder.encode(theirs), data.hex()
    values, end = ber.decode(data, strict=True)
    assert end == len(data) and len(values) == len(ours)
    read, rest = der_decoder.decode(data)
    assert not rest
    for value, item in zip(values, read, strict=True):
        if isinstance(item, univ.Integer):
            assert value == (bool(item) if isinstance(item, univ.Boolean) else int(item)), data.hex()
        elif isinstance(item, univ.Null):
            assert value is None
        elif isinstance(item, univ.OctetString):
            assert value == bytes(item) or value == str(item), data.hex()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    chance = random.Random(arguments.seed)
    corpus = seeds()
    for one in corpus:
        fuzz_ldap.one_input(one)
    inputs = compared = 0
    longest = 0.0
    end = time.monotonic() + arguments.seconds
    said = time.monotonic() + 60
    while (now := time.monotonic()) < end:
        if now > said:
            said += 60
            print(f"{inputs} inputs, {compared} values compared with pyasn1", flush=True)
        for data in damaged(chance.choice(corpus), chance, 50):
            began = time.process_time()
            try:
                fuzz_ber.one_input(data)
                fuzz_ldap.one_input(data)
            except BaseException:
                traceback.print_exc()
                print(f"seed {arguments.seed}, input {data.hex()}", flush=True)
                return 1
            longest = max(longest, time.process_time() - began)
            inputs += 1
        for _ in range(5):
            same_as_pyasn1(chance)
            compared += 1
    print(f"{inputs} damaged inputs, the slowest took {longest * 1000:.0f} ms of processor time")
    print(f"{compared} values compared with pyasn1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
