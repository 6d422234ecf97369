"""The report in a browser: that it can be read and used by everybody, in every window."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import Page, needs_browser
from made_up import METHODS
from report_pages import choose, colours, shown_rows

from bilevo.lab.show.page.look import TEXT_CONTRAST, contrast

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.browser, needs_browser]


def test_figures_are_dark_with_the_page(page: Page) -> None:
    light, dark = colours(page, "light"), colours(page, "dark")
    assert light[0] != dark[0] and light[1] != dark[1]
    for ground, text, ticks, behind in (light, dark):
        assert ticks == text != ground
        assert behind == "rgba(0, 0, 0, 0)"


def test_the_page_fits_a_phone_and_a_sheet_of_paper(browser: Page, file: Path) -> None:
    widths = "return Array.from(document.querySelectorAll('.plot .main-svg'), s => s.clientWidth)"
    with browser.window(390, height=800, mobile=True):
        browser.open(file)
        assert browser.js("return document.documentElement.scrollWidth") <= 390
        assert max(browser.js(widths)) <= 390
        browser.js("window.dispatchEvent(new Event('beforeprint'))")
        assert set(browser.js(widths)) == {680}
        browser.js("window.dispatchEvent(new Event('afterprint'))")
        assert max(browser.js(widths)) <= 390


def test_a_keyboard_is_enough(browser: Page, sized: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        for key in keys:
            browser.driver.switch_to.active_element.send_keys(key)

    def reach(selector: str) -> None:
        for _ in range(200):
            press(Keys.TAB)
            if browser.js("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(f"no way to {selector}")

    browser.open(sized)
    browser.one("body").send_keys(Keys.TAB)
    assert browser.driver.switch_to.active_element.text == "Skip to the content"
    reach("#theme")
    before = browser.js("return getComputedStyle(document.body).backgroundColor")
    press(Keys.ENTER)
    assert browser.js("return getComputedStyle(document.body).backgroundColor") != before
    press(Keys.ENTER)
    reach("nav a[href='#total']")
    reach("[data-picker=problem] > summary")
    press(Keys.SPACE)
    reach("input[value=smd1]")
    press(Keys.SPACE)
    assert "smd1" not in shown_rows(browser, "total")
    press(Keys.ESCAPE)
    assert browser.driver.switch_to.active_element.tag_name == "summary"
    assert not browser.js("return document.querySelector('[data-picker=problem]').open")
    reach("#reset")
    press(Keys.ENTER)
    assert "smd1" in shown_rows(browser, "total")
    for place in ("#menu-ecdf", "#ecdf .modebar-btn", "#best thead button", "#total .scroll"):
        reach(place)


@pytest.mark.parametrize("width", [360, 500, 1000, 1400])
def test_contents_and_page_fit_the_window(browser: Page, file: Path, width: int) -> None:
    with browser.window(width):
        browser.open(file)
        button = browser.one("#open-contents")
        if button.is_displayed():
            assert not browser.one("nav").is_displayed()
            button.click()
        links = browser.all("nav a")
        assert all(link.is_displayed() for link in links)
        edges = browser.js("return arguments[0].map(a => a.getBoundingClientRect().right)", links)
        assert len(links) > 10 and max(edges) <= width
        assert browser.js("return document.documentElement.scrollWidth") <= width
        links[-1].click()
        top = browser.one("#settings").rect["y"] - browser.js("return window.scrollY")
        assert 0 <= top < 900
        wide = "return Array.from(document.querySelectorAll('.plot .main-svg'), s => s.clientWidth)"
        assert max(browser.js(wide)) <= width


def test_three_methods_are_seen_at_500_pixels(browser: Page, file: Path) -> None:
    with browser.window(500):
        browser.open(file)
        for name in ("accuracy", "evaluations", "total"):
            cut = "return arguments[0].scrollWidth - arguments[0].clientWidth"
            assert browser.js(cut, browser.one(f"#{name} .scroll")) == 0


SEEN = """
const solid = (colour) => !/rgba\\(.*, 0\\)|transparent/.test(colour);
const found = new Set();
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const place = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !place.checkVisibility()) continue;
  if (place.closest("svg, script")) continue;
  let ground = place;
  while (ground && !solid(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
  const style = getComputedStyle(place);
  found.add([style.color, getComputedStyle(ground ?? document.body).backgroundColor].join("|"));
}
return Array.from(found);
"""


def as_hex(colour: str) -> str:
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return f"#{red:02x}{green:02x}{blue:02x}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_texts_can_be_read(page: Page, scheme: str) -> None:
    colours(page, scheme)
    choose(page, "method", METHODS[0])
    page.js("for (const one of document.querySelectorAll('details')) one.open = true")
    pairs = [pair.split("|") for pair in page.js(SEEN)]
    assert len(pairs) > 5
    for text, ground in pairs:
        assert contrast(as_hex(text), as_hex(ground)) >= TEXT_CONTRAST, (text, ground)


def test_the_reader_chooses_light_or_dark(page: Page) -> None:
    colours(page, "light")
    line = "return document.querySelector('[data-chart=ecdf]').data[0].line.color"
    day = page.js(line)
    page.one("#theme").click()
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    assert page.js(line) != day
    page.driver.refresh()
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    page.one("#theme").click()
    assert page.js(line) == day


def in_first_view(page: Page, path: Path) -> None:
    """Check that the verdict and the first chart are seen without scrolling."""
    with page.window(1400, height=1000):
        page.open(path)
        for place in ("#verdict h1", "#verdict .points", "section.chart .plot .main-svg"):
            box = page.js(
                "return document.querySelector(arguments[0]).getBoundingClientRect()", place
            )
            assert 0 <= box["top"] < box["bottom"] <= 1000, place


def test_the_verdict_and_the_first_chart_need_no_scrolling(browser: Page, file: Path) -> None:
    in_first_view(browser, file)


@pytest.mark.slow
def test_the_report_of_the_quick_plan_is_small_and_begins_with_the_verdict(
    browser: Page, tmp_path: Path
) -> None:
    words = ["bench", "plans/quick.toml", "--report", "--no-progress", "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "bilevo", *words], cwd=ROOT, check=True)
    path = tmp_path / "report.html"
    assert path.stat().st_size < 5_500_000
    in_first_view(browser, path)
    assert browser.complaints() == []
