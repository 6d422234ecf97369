"""How pages are put together: a template, the look, scripts, and a policy that forbids the rest.

A page is one file that holds everything, plotly included, and needs no network. Its
Content-Security-Policy forbids all requests, and all scripts but its own, which it names by their
hashes. Names of problems and methods and messages of errors may come from anybody. They are escaped
by the templates (jinja2) and in the data (JSON, where < and > are written as numbers); page.js
escapes them for plotly. If that fails, the policy still protects the reader.

`bilevo watch` serves its page itself. Only such a page may `connect`, to where it came from.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from bilevo.core.extras import need
from bilevo.lab.show.page.look import page_file, style_sheet

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)


class Link(NamedTuple):
    """A line of the contents: the id of a section, and its short title."""

    target: str
    title: str


Contents = dict[str, list[Link]]  # by the title of a group of sections


def assemble(
    template: str,
    *,
    data: Any,
    scripts: Sequence[str],
    styles: Sequence[str] = (),
    connects: bool = False,
    **values: Any,
) -> str:
    """Return the HTML of a page.

    `template`, `scripts` and `styles` are names of files in `files`; the template extends
    page.html.jinja and gets `values`. Scripts find `data` as `bilevo.data`. They run after plotly
    and page.js, which every page has.
    """
    jinja = need("reports", "jinja2", "report")
    plotly = need("reports", "plotly.offline", "report").get_plotlyjs()
    texts = [plotly, *map(page_file, ("page.js", *scripts))]
    environment = jinja.Environment(
        autoescape=True,
        undefined=jinja.StrictUndefined,
        loader=jinja.FunctionLoader(page_file),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    policy = POLICY.format(
        scripts=" ".join(map(_hash, texts)), connect="'self'" if connects else "'none'"
    )
    page = environment.get_template(template)
    return str(
        page.render(**values, data=data, policy=policy, style=style_sheet(*styles), scripts=texts)
    )


def _hash(script: str) -> str:
    """Return the hash by which a policy allows a script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
