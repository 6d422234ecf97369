"""A real browser for tests: Debian's chromium, driven by selenium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="no browser to test with: apt-get install chromium chromium-driver",
)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1200,900"),
    *("--disable-dev-shm-usage", "--force-prefers-reduced-motion"),
)


class Page:
    """A browser, and what is asked of a page in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, place: Path | str) -> None:
        """Load a file or an address; the logs begin with it."""
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(place if isinstance(place, str) else place.as_uri())

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        code = "return Array.from(document.querySelectorAll(arguments[0]), e => e.textContent)"
        return list(self.js(code, selector))

    def column(self, table: str, number: int) -> list[str]:
        """The values or names in a column, counted from 1, from the top."""
        cells = f"#{table} tbody tr > :nth-child({number})"
        return self.texts(f"{cells} > span, {cells}:not(:has(span))")

    def requests(self) -> set[str]:
        """What the page has asked for since it was opened, itself included."""
        events = [
            json.loads(row["message"])["message"] for row in self.driver.get_log("performance")
        ]
        sent = [each for each in events if each["method"] == "Network.requestWillBeSent"]
        return {each["params"]["request"]["url"] for each in sent}

    @contextmanager
    def window(self, width: int, height: int = 900, mobile: bool = False) -> Iterator[None]:
        """Show pages in a window of this size for a while."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1 + mobile, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def complaints(self) -> list[Any]:
        return list(self.driver.get_log("browser"))


@contextmanager
def opened_browser(profile: Path) -> Iterator[Page]:
    """A browser without a past: its profile is an empty folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Page(driver)
    finally:
        driver.quit()
