"""Build hook: compiles the extension modules of coro-clocks against the coro-core of the build environment.

Cython finds coro-core's .pxd files through the path of its package, the C compiler its headers in the same folder.
Everything is compiled anew at each build: objects made against another coro-core look fresh to their time stamps, and
there are four small modules.  What a target must be like is coro-core's business: it could not be installed on another.

For a wheel all results go below `build/`; for an editable install the modules are put beside their sources.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# As for coro-core: a switch in the middle of a function replaces the thread's exception state.
MACROS = [("CYTHON_FAST_THREAD_STATE", "0")]
COMPILE_FLAGS = ["-O2", "-g", "-fvisibility=hidden", "-Wno-unused-function"]


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook named in pyproject.toml; its configuration is the table of extension modules there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what to pack.  `version` is "editable" or "standard"."""
        if self.target_name != "wheel":
            return
        spec = importlib.util.find_spec("coro")
        if spec is None or spec.origin is None:
            self.app.abort("coro-clocks is compiled against coro-core, which is not installed here; install it first.")
            return
        compiled = self.compile(os.path.dirname(spec.origin), version == "editable")
        if version != "editable":
            build_data["force_include"].update({path: relative for relative, path in compiled.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def clean(self, versions: list[str]) -> None:
        """Remove what earlier builds left (called by `hatch clean`)."""
        shutil.rmtree(os.path.join(self.root, "build"), ignore_errors=True)

    def compile(self, core: str, editable: bool) -> dict[str, str]:
        """Compile against the package folder `core`.

        Returns the path inside the package -> the absolute path of each compiled module.
        """
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        out = os.path.join(self.root, "build", str(sysconfig.get_config_var("SOABI")))
        before = os.getcwd()
        # Inside src/ the recorded file names are coro/clocks/x.pyx: what linecache finds through sys.path.
        os.chdir(os.path.join(self.root, "src"))
        try:
            extensions = [
                # In full: without src/coro/__init__.py Cython cannot tell the package from the path.
                Extension(name, [path], include_dirs=[core], extra_compile_args=COMPILE_FLAGS, define_macros=MACROS)
                for name, path in self.config["extensions"].items()
            ]
            extensions = cythonize(
                extensions,
                include_path=[os.path.dirname(core)],
                build_dir=os.path.join(out, "c"),
                language_level=3,
                force=True,
            )
            command = build_ext(Distribution({"name": self.metadata.name, "ext_modules": extensions}))
            command.build_lib = os.path.join(out, "lib")
            command.build_temp = os.path.join(out, "tmp")
            command.force = True
            command.parallel = min(4, os.cpu_count() or 1)
            command.ensure_finalized()
            command.run()
            compiled = {}
            for extension in extensions:
                relative = command.get_ext_filename(extension.name)
                path = os.path.join(command.build_lib, relative)
                if editable:
                    # Replace, never overwrite: a running program may have the old file mapped.
                    shutil.copy2(path, relative + ".new")
                    os.replace(relative + ".new", relative)
                compiled[relative] = path
            return compiled
        finally:
            os.chdir(before)
