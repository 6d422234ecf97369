"""Reports that several tests open, and a server that must not hear of them."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
from browsing import Page
from made_up import failing, frames
from report_pages import HOSTILE, IMAGE, LINK, SCRIPT, SETTINGS, sized_frames

from bilevo.lab.show import report


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of three methods on three problems, with a run that failed."""
    runs, history = frames(runs=4)  # enough for tests, whose marks are counted below
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write_page(
        path, failing(runs, "ValueError: no"), history, settings={"results": SETTINGS}
    )
    return path


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in which every text that others may choose is hostile."""
    texts = {"machine": IMAGE, "kernel": SCRIPT, "version": LINK}
    runs, history = frames(sorted(HOSTILE), sorted(HOSTILE), **texts)
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    settings = {SCRIPT: {IMAGE: [LINK, IMAGE], "experiments": [{LINK: IMAGE, "methods": [SCRIPT]}]}}
    report.write_page(path, failing(runs, IMAGE), history, settings=settings)
    return path


@pytest.fixture(scope="session")
def sized_runs() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs on problems of several groups and sizes."""
    return sized_frames()


@pytest.fixture(scope="session")
def sized(
    tmp_path_factory: pytest.TempPathFactory, sized_runs: tuple[pl.DataFrame, pl.DataFrame]
) -> Path:
    path = tmp_path_factory.mktemp("sized") / "report.html"
    report.write_page(path, *sized_runs, settings={})
    return path


@pytest.fixture
def page(browser: Page, file: Path) -> Page:
    browser.open(file)
    return browser


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """A server, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
