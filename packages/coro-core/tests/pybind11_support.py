"""Modules made with pybind11, for tests: C++ functions that call Python back. Compiled once for each process."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

NAME = "coro_pybind11_test"
RENAMED = "coro_pybind11_renamed"
_SOURCE = """
#include <pybind11/pybind11.h>
#include <string>
namespace py = pybind11;

struct Caller {
    explicit Caller(py::function f_) : f(f_) {}
    py::object call(const std::string &text) { return f(text); }
    py::function f;
};

struct Number { long value; };

PYBIND11_MODULE(coro_pybind11_test, m) {
    m.def("each", [](py::function f, int n) { long sum = 0; for (int i = 0; i < n; i++) sum += f(i).cast<long>();
                                              return sum; });
    m.def("apply", [](py::object f) { return f(); });
    m.def("plain", [](long n) { return n + 1; });
    m.def("maker", []() { return py::cpp_function([](py::function f) { return f(); }); });
    m.def("value", [](const Number &n) { return n.value; });
    py::class_<Number>(m, "Number").def(py::init([](py::function f) { return Number{f().cast<long>()}; }));
    py::implicitly_convertible<py::function, Number>();
    py::class_<Caller>(m, "Caller").def(py::init<py::function>()).def("call", &Caller::call);
    m.def_submodule("inner").def("apply", [](py::object f) { return f(); });
}
"""

#: All it has is a class that says it is another module's.
_RENAMED = """
#include <pybind11/pybind11.h>
namespace py = pybind11;

struct Caller {
    explicit Caller(py::function f_) : f(f_) {}
    py::object call() { return f(); }
    py::function f;
};

PYBIND11_MODULE(coro_pybind11_renamed, m) {
    py::class_<Caller> caller(m, "Caller");
    caller.def(py::init<py::function>()).def("call", &Caller::call).attr("__module__") = "public";
}
"""


def missing() -> str:
    """What is not there to build it with; an empty text if everything is."""
    if importlib.util.find_spec("pybind11") is None:
        return "needs pybind11: install the dependency group `peers` of coro-core"
    return "" if shutil.which("c++") else "needs a C++ compiler (Debian package g++)"


@functools.cache
def folder() -> str:
    """The folder that the modules are in."""
    import pybind11

    made = Path(tempfile.mkdtemp(prefix="coro-pybind11-"))
    includes = [f"-I{path}" for path in (pybind11.get_include(), sysconfig.get_path("include"))]
    flags = ["-O1", "-shared", "-fPIC", "-std=c++17", "-fvisibility=hidden"]
    for name, source in ((NAME, _SOURCE), (RENAMED, _RENAMED)):
        (made / f"{name}.cpp").write_text(source)
        target = str(made / (name + sysconfig.get_config_var("EXT_SUFFIX")))
        subprocess.run(["c++", *flags, *includes, str(made / f"{name}.cpp"), "-o", target], check=True)
    return str(made)
