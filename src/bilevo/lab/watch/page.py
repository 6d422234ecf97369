"""The page of `bilevo watch`: the live one, and one with everything in it, to keep or to send."""

from __future__ import annotations

from pathlib import Path
from time import time

from bilevo.lab.show.page.assemble import assemble
from bilevo.lab.show.palette import COLOURS, NIGHT_COLOURS
from bilevo.lab.watch.watcher import Watcher
from bilevo.safe_files import replacing

SCRIPTS = ("charts.js", "watch_parts.js", "watch_run.js", "watch_campaign.js", "watch.js")
MAX_GROUPS = 12  # The most groups of a campaign's runs that an exported page has.


def live_page() -> str:
    """Return the HTML of the page that asks its server for what it shows."""
    return _page({}, connects=True)


def export(watcher: Watcher, path: Path) -> None:
    """Write all that a watcher knows as one file that needs no server."""
    rows, _, _ = watcher.rows_since(0)
    details = {id: detail for id in watcher.ids() if (detail := watcher.detail(id)) is not None}
    for id, detail in list(details.items()):
        for group in range(1, min(len(detail.get("groups", [])), MAX_GROUPS)):
            details[f"{id}/{group}"] = watcher.detail(id, group) or {}
    text = _page({"rows": rows, "details": details, "now": time()}, connects=False)
    with replacing(path) as file:
        file.write(text.encode())


def _page(data: dict[str, object], connects: bool) -> str:
    return assemble(
        "watch.html.jinja",
        data={**data, "palette": list(zip(COLOURS, NIGHT_COLOURS, strict=True))},
        scripts=SCRIPTS,
        styles=("watch.css",),
        connects=connects,
    )
