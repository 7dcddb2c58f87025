"""The build hook: hatchling calls it for a wheel or an editable install, it compiles and says what to pack.

Two classes for that. `CompilingHook` is what both kinds of users share; coro-core's hatch_build.py puts its checks of
the target on top. `CoroHook` is the plugin for distributions that are compiled against an installed coro-core: the one
that this file came with, whose .pxd files and headers lie beside it.

For a wheel nothing is written beside the sources: a `.so` of another Python lying there must not find its way into the
wheel. For an editable install the modules are put in place, because that is where Python will look for them.

`ReadmeHook` is for the metadata: it makes the description that a package index shows from the README, see readme.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from hatchling.plugin import hookimpl

from . import compiling, readme, table

#: Here for those who load this file by its path.
BuildError = table.BuildError


class CompilingHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles the modules of the hook's table; the sources are in `src/` of the project."""

    def core(self) -> str:
        """The package folder of coro-core that is compiled against.  Raises BuildError."""
        raise NotImplementedError

    def check_target(self) -> None:
        """Raise BuildError if this Python is none that can be built for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what to pack.  `version` is "editable" or "standard"."""
        if self.target_name != "wheel":
            return
        try:
            self.check_target()
            compiled = self.compile(version == "editable")
        except table.BuildError as e:
            self.app.abort(f"{self.metadata.name}: {e}")
            return
        if version != "editable":
            build_data["force_include"].update({path: relative for relative, path in compiled.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def clean(self, versions: list[str]) -> None:
        """Remove what earlier builds left (called by `hatch clean`)."""
        shutil.rmtree(os.path.join(self.root, "build"), ignore_errors=True)

    def compile(self, editable: bool) -> dict[str, str]:
        """Compile what the table asks for.

        Returns the path inside the wheel -> the absolute path of each compiled module.  Raises BuildError.
        """
        source = os.path.join(self.root, "src")
        modules = table.read(self.config, source)
        compiling.check_tools()
        builder = compiling.Builder(
            self.metadata.name, source, self.core(), os.path.join(self.root, "build"), say=self.say
        )
        compiled = builder.build(modules)
        if editable:
            for relative, path in compiled.items():
                # Replace, never overwrite: a running program may have the old file mapped.
                place = os.path.join(source, relative)
                shutil.copy2(path, place + ".new")
                os.replace(place + ".new", place)
        return compiled

    @property
    def say(self) -> Callable[[str], None]:
        """Shows a line of progress; installers show it if they are asked to be verbose (`pip -v`)."""

        def say(line: str) -> None:
            self.app.display_info(line)
            sys.stderr.flush()

        return say


class CoroHook(CompilingHook):
    """`[tool.hatch.build.hooks.coro]`: for distributions that add to the package of an installed coro-core."""

    PLUGIN_NAME = "coro"

    def core(self) -> str:
        """The package folder of the coro-core that this plugin came with."""
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "coro")
        if not os.path.exists(os.path.join(folder, "__init__.py")):
            raise table.BuildError(
                f"expected coro-core's package beside its build hook, found no {folder}; install coro-core again"
            )
        return folder


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """`[tool.hatch.metadata.hooks.coro]`: README.md becomes the description, its relative links made absolute.

    The key `folder` says where the distribution lies in its repository, whose address is "Source" in `project.urls`.
    """

    PLUGIN_NAME = "coro"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, which `project.dynamic` has to name.  Raises BuildError."""
        repository = metadata.get("urls", {}).get("Source", "")
        folder = self.config.get("folder", "")
        if not repository.startswith("https://") or not folder:
            raise table.BuildError(
                'expected an address "https://..." as Source in project.urls and a key "folder" in the table of the '
                f"metadata hook, got {repository!r} and {folder!r}; links in the README are made absolute with them"
            )
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as f:
            text = readme.absolute_links(f.read(), repository, folder)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_metadata_hook() -> type[ReadmeHook]:
    """Called by hatchling when a pyproject.toml names a metadata hook that it does not know itself."""
    return ReadmeHook


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[CompilingHook]:
    """Called by hatchling when a pyproject.toml names a hook that it does not know itself."""
    return CoroHook
