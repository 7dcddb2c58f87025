"""How Sphinx builds the manual. Warnings are errors (`sphinx-build -W`), broken references included.

Needs all packages of this tree to be importable, because the reference pages are made of their docstrings. Which there
are is found by looking into packages/: a new one brings docs/packages/NAME.rst and docs/reference/NAME.rst, and its
changelog fragments. Nothing is fetched from the network.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import coro

project = "coro"
author = "The coro authors"
copyright = "the coro authors"  # Sphinx looks for this name
version = ".".join(coro.__version__.split(".")[:2])
release = coro.__version__

extensions = ["sphinx.ext.autodoc", "changelog_fragments", "completeness", "docstring_examples"]
exclude_patterns = ["_build"]

# What has the colour of links; the theme has names of the reference in red, which says that something is wrong.
GREEN = ("color-brand-primary", "color-brand-content", "color-api-name", "color-api-pre-name")
html_theme = "furo"  # light and dark, and all it needs lies in the pages' own folder
html_title = f"coro {release}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_theme_options = {
    "navigation_with_keys": True,
    # The green of the charts in docs/images/bench.
    "light_css_variables": dict.fromkeys(GREEN, "#1f6f5c"),
    "dark_css_variables": dict.fromkeys(GREEN, "#63c7ae"),
}
pygments_dark_style = "github-dark"
html_show_sphinx = False
html_copy_source = False

# Docstrings put code in single or double backticks; both are code here.
default_role = "literal"
primary_domain = "py"
highlight_language = "python"
nitpicky = True
nitpick_ignore_regex = [
    # Base classes that autodoc names: the standard library is not linked, so that the build needs no network,
    # and a few base classes of sock are not public.
    (r"py:.*", r"(BaseException|Exception|OSError|object|collections\.abc\..*|typing\..*|types\..*)"),
    (r"py:.*", r"coro\._.*"),
]

autodoc_member_order = "bysource"
# The Python parts are annotated, the compiled ones are not; the docstrings say what matters for both.
autodoc_typehints = "none"
autodoc_preserve_defaults = True
