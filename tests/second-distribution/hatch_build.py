"""Build hook of the throw-away distribution: compiles its one module against the installed coro-core."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = (
    "coro.second._probe"  # in full: without src/coro/__init__.py Cython cannot tell the package from the path
)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Cython finds coro's .pxd files through sys.path; the C compiler is told where its headers are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        spec = importlib.util.find_spec("coro")
        if spec is None or spec.origin is None:
            self.app.abort("expected coro-core in the build environment, found none; install it first")
            return
        out = os.path.join(self.root, "build", sysconfig.get_config_var("SOABI"))
        before = os.getcwd()
        os.chdir(os.path.join(self.root, "src"))
        try:
            extension = Extension(
                MODULE,
                [MODULE.replace(".", "/") + ".pyx"],
                include_dirs=[os.path.dirname(spec.origin)],
                define_macros=[("CYTHON_FAST_THREAD_STATE", "0")],
            )
            # force: objects left by a build against another coro-core look fresh to their time stamps.
            extensions = cythonize(
                [extension], build_dir=os.path.join(out, "c"), language_level=3, force=True
            )
            command = build_ext(Distribution({"name": self.metadata.name, "ext_modules": extensions}))
            command.build_lib = os.path.join(out, "lib")
            command.build_temp = os.path.join(out, "tmp")
            command.inplace = version == "editable"
            command.force = True
            command.ensure_finalized()
            command.run()
            if version != "editable":
                name = command.get_ext_filename(MODULE)
                build_data["force_include"][os.path.join(command.build_lib, name)] = name
        finally:
            os.chdir(before)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
