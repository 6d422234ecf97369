"""Settings of the documentation site; `scripts/docs` builds it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from rich.console import Console
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from bilevo.cli import app as commands
from bilevo.version import __version__

project = "bilevo"
author = "The bilevo developers"
project_copyright = "the bilevo developers, MIT licence"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # links such as laboratory.md#runs, as on GitHub
myst_enable_extensions = ["dollarmath"]  # $x^2$ is a formula, as on GitHub
html_math_renderer = "mathml"  # browsers show MathML themselves: no script, no fonts

napoleon_google_docstring = False
napoleon_use_param = False  # "F, f" stays one entry
napoleon_use_rtype = False
napoleon_preprocess_types = False

default_role = "py:obj"  # text in single backquotes in a docstring is a name of ours, or code
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings describe the arguments in words
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 80

html_theme = "pydata_sphinx_theme"
html_title = f"bilevo {__version__}"
html_favicon = "pictures/icon.svg"
html_show_sourcelink = False
html_static_path = ["static"]
html_search_scorer = str(Path(__file__).with_name("search_order.js"))
# Sections of the site that have only one page.
ALONE = ("quick_start", "concepts", "methods", "examples", "design")
html_sidebars: dict[str, list[str]] = {page: [] for page in ALONE}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is set
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 9,
    "show_prev_next": True,
    "article_header_start": [],  # without the path to a page, with which excerpts would begin
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


ICON_SCRIPT = re.compile(r'<script [^>]*src="[^"]*/fontawesome\.js[^>]*></script>')


class Help(Directive):
    """The help of a command of `bilevo`, as a terminal of 80 columns shows it."""

    has_content: ClassVar[bool] = False
    optional_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        shown = io.StringIO()
        console = Console(file=shown, width=80, no_color=True)
        commands.help_print(self.arguments, console=console)
        return [nodes.literal_block(text=shown.getvalue(), language="text")]


def mathml(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML; a formula that cannot be read is a warning."""
    block = isinstance(node, nodes.math_block)
    try:
        formula = tex2mathml(node.astext(), as_block=block)
    except (MathError, SyntaxError) as error:
        logging.getLogger(__name__).warning("no formula: %s", error, location=node)
        formula = f"<code>{translator.encode(node.astext())}</code>"
    place = '<div class="math" tabindex="0">{}</div>' if block else '<span class="math">{}</span>'
    translator.body.append(place.format(formula))
    raise nodes.SkipNode


def without_icon_script(app: Sphinx, error: Exception | None) -> None:
    """Remove the theme's script of 1.5 MB for icons: its style sheet shows the same icons."""
    if error is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            page.write_text(ICON_SCRIPT.sub("", text), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", without_icon_script)
    app.add_directive("bilevo-help", Help)
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
    app.add_css_file("bilevo.css")
