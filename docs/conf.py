"""Settings of the documentation site; `scripts/docs` builds it."""

from __future__ import annotations

import io
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from rich.console import Console
from sphinx.application import Sphinx

from bilevo.cli import app as commands
from bilevo.version import __version__

project = "bilevo"
author = "The bilevo developers"
project_copyright = "the bilevo developers, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # links such as laboratory.md#runs, as on GitHub

default_role = "py:obj"  # text in single backquotes in a docstring is a name of ours, or code
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings describe the arguments in words
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 80

html_theme = "pydata_sphinx_theme"
html_title = f"bilevo {__version__}"
html_favicon = "pictures/icon.svg"
html_show_sourcelink = False
# Sections of the site that have only one page.
ALONE = ("quick_start", "concepts", "methods", "examples", "design")
html_sidebars: dict[str, list[str]] = {page: [] for page in ALONE}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is set
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 9,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


class Help(Directive):
    """The help of a command of `bilevo`, as a terminal of 80 columns shows it."""

    has_content: ClassVar[bool] = False
    optional_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        shown = io.StringIO()
        console = Console(file=shown, width=80, no_color=True)
        commands.help_print(self.arguments, console=console)
        return [nodes.literal_block(text=shown.getvalue(), language="text")]


def setup(app: Sphinx) -> None:
    app.add_directive("bilevo-help", Help)
