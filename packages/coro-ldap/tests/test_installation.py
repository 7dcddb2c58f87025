"""What is said when coro-core is missing, is another project, or does not fit. The imports run in processes that see
nothing but a folder with copies and stand-ins; starting one takes 0.03 s."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import coro.ldap

SOURCE = Path(coro.ldap.__file__).parent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the package's names, and none of its compiled modules."""
    for name in ("__init__.py", "_core.py"):
        write(tmp_path, f"coro/ldap/{name}", (SOURCE / name).read_text())
    return tmp_path


def write(site: Path, name: str, text: str = "") -> None:
    path = site / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def import_error(site: Path) -> str:
    """The last line of the traceback of `import coro.ldap`, with the folder alone on the path."""
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import coro.ldap"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_coro_core_is_missing(site: Path) -> None:
    said = import_error(site)
    assert said.startswith("ImportError: coro.ldap needs the distribution coro-core, which is not installed")
    assert said.endswith(": pip install coro-core")


def test_another_project_of_that_name(site: Path) -> None:
    write(site, "coro/__init__.py")
    said = import_error(site)
    assert f"{site}/coro/__init__.py is another project" in said
    assert said.endswith("pip uninstall coro && pip install --force-reinstall coro-core")


@pytest.mark.parametrize(
    "raised",
    [
        'ValueError("coro._net.sock.sock size changed")',
        'TypeError("C function coro.x has wrong signature")',
        'ImportError("this module was compiled against version 5 of the C interface")',
    ],
)
def test_coro_core_does_not_fit(site: Path, raised: str) -> None:
    write(site, "coro/__init__.py", '__version__ = "0.0.9"')
    write(site, "coro/_runtime/__init__.py")
    write(site, "coro/ldap/filters.py", f"raise {raised}")
    said = import_error(site)
    assert "coro.ldap was compiled against another coro-core than the installed one, which is 0.0.9 (" in said
    assert said.endswith(": pip install --upgrade --force-reinstall coro-core coro-ldap")


def test_it_was_built_for_another_python(site: Path) -> None:
    write(site, "coro/__init__.py", '__version__ = "0.1.0"')
    write(site, "coro/_runtime/__init__.py")
    said = import_error(site)
    assert "coro.ldap has no compiled modules for this Python, 3." in said and "cannot import name" in said
    assert said.endswith(": pip install --force-reinstall coro-ldap")


def test_other_errors_are_left_alone(site: Path) -> None:
    write(site, "coro/__init__.py", '__version__ = "0.1.0"')
    write(site, "coro/_runtime/__init__.py")
    write(site, "coro/ldap/filters.py", "import nowhere_to_be_found")
    # 3.15 has more to say behind it.
    assert import_error(site).startswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'")


def test_what_is_installed_with_it() -> None:
    """coro-core and pure-sasl, and nothing else unless an extra is asked for: no other ASN.1 library, no libldap."""
    needed = {
        re.split(r"[^\w-]", one)[0].lower() for one in metadata.requires("coro-ldap") or () if "extra ==" not in one
    }
    assert needed == {"coro-core", "pure-sasl"}
    compiled = list(SOURCE.parent.glob("ldap/**/*.so")) + list(SOURCE.parent.glob("asn1/**/*.so"))
    assert len(compiled) >= 3
    for path in compiled:
        data = path.read_bytes()
        assert not any(name in data for name in (b"libldap", b"liblber", b"libsasl")), path


def test_it_is_used_without_the_libraries_of_others() -> None:
    """No module of another LDAP or ASN.1 library is loaded by the client, the server and the codec."""
    code = (
        "import sys, coro.asn1.ber, coro.asn1.python, coro.ldap, coro.ldap.server, coro.ldap.sasl\n"
        "others = {'pyasn1', 'ldap', '_ldap', 'ldap3', 'bonsai'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & others))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
