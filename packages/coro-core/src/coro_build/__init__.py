"""How extension modules of the `coro` package are built: of coro-core itself, and of every distribution on top of it.

`hook` is the plugin that hatchling finds by the entry point of coro-core (group "hatch", name "coro"), `table` reads
the table of modules in a pyproject.toml, `compiling` calls Cython, the C compiler and the linker. The manual's chapter
on extensions tells packagers how to use it; tests are in `test_build_hook.py`.

It stands beside the package `coro`, not in it, because whatever is imported from `coro` starts with the runtime. A
build has no use for that, and where the runtime is not compiled yet, or for another Python, it cannot even be imported.
coro-core's own hatch_build.py loads this folder by its path, under another name: an installed coro-core may be older.

Needs hatchling, Cython and setuptools, which the build requirements of a package name; nothing of them is imported
before it is used. `import coro` does not import this.
"""
