"""The documentation: built without a warning, and used in a real browser as people use it."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browsing import Page, needs_browser
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import bilevo

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
BUILD = ("python", "-m", "sphinx", "--fail-on-warning", "--keep-going")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the built site and what Sphinx had to say; built once for all processes."""
    shared = tmp_path_factory.getbasetemp()
    if "popen-gw" in shared.name:  # pytest-xdist: each process has a folder in a common one
        shared = shared.parent
    folder, log = shared / "site", shared / "site.log"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            command = [sys.executable, *BUILD[1:], "-q", str(ROOT / "docs"), str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            log.write_text(f"{done.stdout}{done.stderr}")
    return folder, log.read_text()


@pytest.fixture(scope="module")
def address(site: tuple[Path, str]) -> Iterator[str]:
    """Where the site is served: its search fetches pages, which browsers do not do from files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = partial(Quiet, directory=str(site[0]))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_site_is_built_without_a_warning(site: tuple[Path, str]) -> None:
    folder, log = site
    assert log == ""
    assert (folder / "index.html").exists()


def test_the_script_builds_the_site_as_the_tests_do() -> None:
    assert " ".join(BUILD) in (ROOT / "scripts" / "docs").read_text()


def test_every_public_name_is_in_the_reference(site: tuple[Path, str]) -> None:
    shown = set(re.findall(r'id="(bilevo[\w.]*)"', (site[0] / "api.html").read_text()))
    modules = {"algorithms", "followers", "plot", "problems"}
    places = {f"bilevo.{name}" for name in bilevo.__all__ if name not in {*modules, "__version__"}}
    for module in modules:
        names = getattr(bilevo, module).__dict__.get("__all__", ())
        places |= {f"bilevo.{module}.{name}" for name in names}
    assert places <= shown, places - shown


def test_every_command_is_in_the_reference(site: tuple[Path, str]) -> None:
    page = (site[0] / "cli.html").read_text()
    for option in ("--run-dir", "--on-failure", "--again", "--reference", "--into"):
        assert option in page


@pytest.mark.browser
@needs_browser
def test_the_navigation_leads_to_every_part(browser: Page, address: str) -> None:
    browser.open(f"{address}/index.html")
    parts = browser.texts("header .navbar-nav:first-child .nav-link")
    assert len(parts) >= 7
    for number in range(len(parts)):
        link = browser.all("header .navbar-nav:first-child .nav-link")[number]
        name = link.text
        link.click()
        assert browser.one("h1").text.startswith(name)
        assert browser.all("article a")


@pytest.mark.browser
@needs_browser
def test_a_reader_goes_from_the_first_page_to_the_end_of_a_tutorial(
    browser: Page, address: str
) -> None:
    browser.open(f"{address}/index.html")
    browser.one("article table a[href='tutorial_practitioner.html']").click()
    assert browser.one("h1").text.startswith("Your own problem")
    pictures = browser.js("return Array.from(document.images, i => i.complete && i.naturalWidth)")
    assert pictures and all(pictures)
    browser.one("a[href='concepts.html#why-verify']").click()
    assert browser.driver.current_url.endswith("/concepts.html#why-verify")
    assert "Why verify" in browser.one("#why-verify h2").text


@pytest.mark.browser
@needs_browser
def test_a_search_finds_a_page(browser: Page, address: str) -> None:
    browser.open(f"{address}/index.html")
    browser.one("body").send_keys(Keys.CONTROL, "k")
    browser.one("#pst-search-dialog input[type=search]").send_keys("pessimistic", Keys.ENTER)
    link = WebDriverWait(browser.driver, 20).until(
        lambda _: browser.all("#search-results li a[href^='concepts.html']")
    )[0]
    excerpts = WebDriverWait(browser.driver, 20).until(
        lambda _: browser.texts("#search-results li p.context")
    )
    assert any("pessimistic" in excerpt for excerpt in excerpts)
    link.click()
    assert browser.one("h1").text.startswith("Concepts")


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("whole numbers", "recipe_whole_numbers"),
        ("integer", "recipe_whole_numbers"),
        ("constraints", "howto_constraints"),
        ("multiobjective", "recipe_objectives"),
    ],
)
def test_a_search_shows_the_page_with_this_title_first(
    browser: Page, address: str, words: str, page: str
) -> None:
    browser.open(f"{address}/search.html?q={words.replace(' ', '+')}")
    first = WebDriverWait(browser.driver, 20).until(lambda _: browser.all("#search-results li a"))[
        0
    ]
    assert f"/{page}.html" in first.get_attribute("href")


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("page", ["index", "concepts", "api", "reproduction", "search"])
def test_pages_ask_for_nothing_from_elsewhere(browser: Page, address: str, page: str) -> None:
    browser.open(f"{address}/{page}.html")
    asked = browser.requests()
    assert f"{address}/{page}.html" in asked
    assert {url for url in asked if not url.startswith((address, "data:"))} == set()
    assert [row for row in browser.complaints() if row["level"] in ("SEVERE", "WARNING")] == []


@pytest.mark.browser
@needs_browser
def test_the_landing_page_shows_what_it_is_for_and_loads_less_than_a_megabyte(
    browser: Page, address: str
) -> None:
    browser.open(f"{address}/index.html")
    sizes = "return performance.getEntries().reduce((s, e) => s + (e.encodedBodySize || 0), 0)"
    assert 100_000 < browser.js(sizes) < 1_000_000
    assert "pip install" in browser.texts("article .highlight-console")[0]
    lines = browser.texts("article .highlight-python")[0].strip().splitlines()
    assert len(lines) <= 12
    idea, curve, *gallery = browser.all("article img")
    assert idea.size["width"] > 300 and curve.size["width"] > 300
    assert len(gallery) == len(browser.all("figure.thumb a[href*='.html']")) == 6
    assert all(browser.js("return arguments[0].naturalWidth", picture) for picture in gallery)
    assert not browser.all("article svg animate")
    assert f"bilevo {bilevo.__version__}" in browser.one("header").text


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("page", ["index", "concepts", "drc-plus", "errata"])
def test_formulas_are_mathematics(browser: Page, address: str, page: str) -> None:
    browser.open(f"{address}/{page}.html")
    formulas = browser.all("article math")
    assert formulas and all(formula.size["width"] > 4 for formula in formulas)
    assert "\\varphi" not in browser.one("article").text and "$" not in "".join(
        browser.texts("article p")
    )


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("page", ["index", "concepts", "tutorial_engineer", "recipe_from_others"])
def test_code_tables_formulas_and_pictures_fit_a_phone(
    browser: Page, address: str, page: str
) -> None:
    with browser.window(390, height=800, mobile=True):
        browser.open(f"{address}/{page}.html")
        assert browser.js("return document.documentElement.scrollWidth") <= 390
        for part in browser.all("article div.math math, article img"):
            assert part.rect["x"] >= 0 and part.rect["x"] + part.rect["width"] <= 391
        assert any(icon.is_displayed() for icon in browser.all("header .search-button-field i"))
