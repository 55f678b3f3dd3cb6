"""Sphinx configuration. Builds offline: nothing is fetched, every page is made from the sources."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "dualanchor"
author = "The dualanchor developers"
copyright = author
release = version = runpy.run_path(str(HERE.parent / "src/dualanchor/_version.py"))["__version__"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "registry_pages",
]
exclude_patterns = ["_build"]
default_role = "code"  # `name` in a docstring is code

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Strict about this library's public names. Types of other libraries cannot be looked up offline, and
# annotations may name classes of inner modules that have no page.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!dualanchor\b).*"),
    (r"py:(class|obj)", r"dualanchor\.\w+\..*"),
]
suppress_warnings = ["ref.footnote"]  # a reference may stand under References without being cited

# `make docs` runs the scripts of the gallery, `make docs-check` does not (-D plot_gallery=0). A script that has not
# changed since the last build is not run again; `make clean` forgets them.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
    "reset_modules": ("matplotlib", "gallery_style.for_light_and_dark"),
    "capture_repr": (),  # a page shows what its script prints
    "inspect_global_variables": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}

html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme = "furo"
html_title = f"dualanchor {release}"
