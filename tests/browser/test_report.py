"""The report in a real browser: Debian's chromium, driven by selenium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import Page, needs_browser
from made_up import METHODS, PROBLEMS
from report_pages import HOSTILE, IMAGE

from bilevo.lab.show.palette import short_name

pytestmark = [pytest.mark.browser, needs_browser]
CHARTS = ("convergence", "ecdf", "critical-difference", "allocation", "runtime")


def numbers(texts: list[str]) -> list[float]:
    return [float(text.split()[0]) for text in texts]


def test_a_click_on_a_header_sorts_by_its_numbers(page: Page) -> None:
    column = 3 + METHODS.index("bl-cma-es")
    before = numbers(page.column("evaluations", column))
    assert before != sorted(before)
    head = page.one(f"#evaluations thead th:nth-child({column})")
    button = head.find_element("css selector", "button")
    for direction, expected in (
        ("ascending", sorted(before)),
        ("descending", sorted(before)[::-1]),
        ("none", before),
    ):
        button.click()
        assert head.get_attribute("aria-sort") == direction
        assert numbers(page.column("evaluations", column)) == expected
    assert page.texts("#evaluations tfoot tr > :first-child") == ["+/-/="] * 2


def test_the_keyboard_sorts_names_as_people_count(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    button = page.one("#total thead button")
    for key in (Keys.ENTER, Keys.SPACE):
        button.send_keys(key)
    assert [name for name in page.column("total", 1) if name in PROBLEMS] == [*PROBLEMS[::-1]]
    assert page.texts("#total [aria-sort=descending]") == ["problem"]


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn(page: Page, name: str) -> None:
    figure, traces, drawn, height = page.js(
        "const place = document.querySelector(`[data-chart='${arguments[0]}']`);"
        "return [place.querySelectorAll('svg.main-svg').length, place.data.length,"
        " place.querySelectorAll('.trace path').length, place.clientHeight]",
        name,
    )
    assert figure and drawn >= traces >= len(METHODS)
    assert height > 150


def test_a_menu_shows_another_problem(page: Page) -> None:
    from selenium.webdriver.support.ui import Select

    drawn = "return document.querySelector('[data-chart=convergence]').data.map(t => t.y)"
    menu = Select(page.one("#menu-convergence"))
    first = page.js(drawn)
    assert [option.text for option in menu.options] == [f"{name} (2, 3)" for name in PROBLEMS]
    menu.select_by_visible_text("smd10 (2, 3)")
    assert page.js(drawn) != first


def test_figures_have_the_buttons_that_were_chosen_and_no_others(page: Page) -> None:
    """plotly's usual ones have one that opens its makers' site with the data."""
    chosen = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]
    config = "return document.querySelector('[data-chart=ecdf]')._context.modeBarButtons[0]"
    assert page.js(config) == chosen
    assert len(page.all("#ecdf .modebar-btn")) == len(chosen)
    assert not page.all(".plot a[href]")


def test_the_page_asks_for_nothing_and_complains_of_nothing(browser: Page, file: Path) -> None:
    browser.open(file)
    browser.js(
        "for (const menu of document.querySelectorAll('select')) {"
        "  menu.selectedIndex = menu.options.length - 1;"
        "  menu.dispatchEvent(new Event('change'));"
        "}"
        "for (const button of document.querySelectorAll('thead button')) button.click();"
    )
    asked = browser.requests()
    assert file.as_uri() in asked
    assert all(url.startswith((file.as_uri(), "data:", "blob:")) for url in asked)
    assert browser.complaints() == []


def test_hostile_names_are_shown_and_do_nothing(browser: Page, hostile: Path) -> None:
    browser.open(hostile)  # an alert would make what follows fail
    assert len(browser.all("script")) == 5
    assert not browser.all("body img, body [onerror], main a, svg a[href]")
    assert set(browser.column("ranks", 1)) == HOSTILE
    assert set(browser.column("accuracy", 1)) == HOSTILE
    for figure in ("#convergence .legendtext", "#critical-difference .ytick text"):
        assert set(browser.texts(figure)) == {short_name(name) for name in HOSTILE}
    assert set(browser.texts("#menu-convergence option")) == {f"{x} (2, 3)" for x in HOSTILE}
    assert set(browser.texts("#runtime .xtick text")) == {
        f"{short_name(x)} (2, 3)" for x in HOSTILE
    }
    for section in ("settings", "failures"):
        told = browser.texts(f"#{section}")[0]
        assert IMAGE in told
    assert browser.complaints() == []
    assert {url.partition(":")[0] for url in browser.requests()} <= {"file", "data", "blob"}


def without_policy(text: str) -> str:
    return text.replace("Content-Security-Policy", "nothing", 1)


@pytest.mark.parametrize(("change", "expected"), [(str, []), (without_policy, ["/img", "/js"])])
def test_the_policy_holds_even_if_something_were_not_escaped(
    browser: Page,
    file: Path,
    tmp_path: Path,
    listener: tuple[str, list[str]],
    change: Callable[[str], str],
    expected: list[str],
) -> None:
    """The second case shows that a request would be seen, by the listener and in the log."""
    site, asked = listener
    attack = f"<img src='{site}/img'><script>window.hit = 1; fetch('{site}/js')</script></main>"
    path = tmp_path / "attacked.html"
    text = change(file.read_text(encoding="utf-8")).replace("</main>", attack, 1)
    path.write_text(text, encoding="utf-8")
    browser.open(path)
    browser.js("return new Promise(done => setTimeout(done, 300))")
    assert sorted(asked) == expected
    assert browser.js("return window.hit === 1") is bool(expected)
    if expected:
        assert {f"{site}{path}" for path in expected} <= browser.requests()
