"""The page of `bilevo watch` in a real browser, over runs that are made meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browsing import Page, needs_browser
from watched import make_campaign

pytestmark = [pytest.mark.browser, needs_browser]
HOSTILE = "</script><img src=x onerror=alert(1)>"
WAIT = 30.0  # seconds after which something that should have come is given up
MAKE = """
import sys, time, warnings
import bilevo

folder, kind, name = sys.argv[1:]
calls = 0

def F(x, y):
    return float(x @ x + y @ y)

def f(x, y):
    global calls
    calls += 1
    if kind == "failing" and calls % 20 == 3:
        raise ValueError(name)
    if kind == "slow":
        time.sleep(0.004)
    return float((y - x) @ (y - x))

problem = bilevo.Problem(F, f, [(-5, 10)] * 2, [(-5, 10)] * 2, name=name)
most = 10**6 if kind == "slow" else 900
budget = bilevo.Budget(upper_max=10**6, upper_window=10**6) if kind == "slow" else None
warnings.simplefilter("ignore")
bilevo.minimize(
    problem, method="drc-cma-es", rng=1, max_evals=most, budget=budget, target=-1.0,
    on_failure="worst", run_dir=folder,
)
"""


class Served(NamedTuple):
    """A running `bilevo watch`: its address, the folder it watches, and the run that goes on."""

    address: str
    folder: Path
    run: Any


def make(folder: Path, kind: str, name: str = "copy") -> Any:
    """Start a process that makes a run."""
    return subprocess.Popen([sys.executable, "-c", MAKE, str(folder), kind, name])


def journal_grows(folder: Path) -> None:
    path, until = folder / "journal.bin", time.monotonic() + WAIT
    while not path.exists() or path.stat().st_size < 5000:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that ended, one with failures, and a damaged one."""
    made = tmp_path_factory.mktemp("watched")
    assert make(made / "ended", "quick").wait() == 0
    assert make(made / "failing", "failing", HOSTILE).wait() == 0
    (made / "damaged").mkdir()
    whole = (made / "ended/journal.bin").read_bytes()
    (made / "damaged/journal.bin").write_bytes(whole[:2500] + b"\0\1\2" + whole[2503:])
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    run = make(folder / "live", "slow")
    journal_grows(folder / "live")
    command = [sys.executable, "-m", "bilevo", "watch", str(folder), "--no-browser"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert server.stdout is not None
    yield Served(server.stdout.readline().strip(), folder, run)
    run.kill()
    run.wait()
    server.send_signal(signal.SIGINT)  # the page is still open
    _, told = server.communicate(timeout=WAIT)
    assert server.returncode == 0 and told.strip() == ""


def eventually(value: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """Ask again and again until an answer is good, and return it."""
    until = time.monotonic() + WAIT
    while not good(found := value()):
        assert time.monotonic() < until, f"still {found!r}"
        time.sleep(0.05)
    return found


def states(page: Page) -> dict[str, str]:
    """The state of each run in the list, by the name of its directory."""
    code = (
        "return Array.from(document.querySelectorAll('#runs tbody tr'), row => "
        "[row.querySelector('a').title.split('/').pop(), row.cells[1].textContent])"
    )
    return dict(page.js(code))


@pytest.fixture
def page(browser: Page, served: Served) -> Page:
    browser.open(served.address)
    eventually(lambda: states(browser), lambda found: len(found) >= 4)
    return browser


def open_run(page: Page, name: str) -> None:
    """Click on a run in the list."""
    link = page.driver.find_element("css selector", f"#runs a[title$='/{name}']")
    link.click()
    eventually(lambda: page.all("[data-chart=convergence] .main-svg"), bool)


def test_a_live_run_is_seen_to_advance(page: Page) -> None:
    assert states(page)["live"] == "running"
    cell = "#runs tr:has(a[title$='/live']) td:nth-child(4)"
    first = page.texts(cell)
    eventually(lambda: page.texts(cell), lambda found: found != first)
    open_run(page, "live")
    standing = "#standing .tiles > div:nth-child(3) dd"
    first = page.texts(standing)
    ends = "return document.querySelector('[data-chart=convergence]').data[0].x.at(-1)"
    drawn = page.js(ends)
    eventually(lambda: page.texts(standing), lambda found: found != first)
    eventually(lambda: page.js(ends), lambda found: found > drawn)
    assert "process" in page.texts("#state")[0] and "Running since" in page.texts("#state")[0]
    assert page.complaints() == []


def test_a_killed_run_is_seen_to_be_dead_and_how_it_goes_on(page: Page, folder: Path) -> None:
    run = make(folder / "killed", "slow")
    journal_grows(folder / "killed")
    eventually(lambda: states(page).get("killed"), lambda state: state == "running")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    eventually(lambda: states(page)["killed"], lambda state: state == "dead")
    open_run(page, "killed")
    told = page.texts("#state")[0]
    assert f"process {run.pid} " in told and "ended in the middle of it" in told
    assert f"run_dir='{folder / 'killed'}'" in told


def test_all_that_a_run_has_is_shown(page: Page) -> None:
    open_run(page, "failing")
    drawn = "return document.querySelector(`[data-chart='${arguments[0]}']`).data?.length"
    for name in ("convergence", "x", "y", "allocation"):
        eventually(partial(page.js, drawn, name), bool)
    rows = page.texts("#failures tbody tr")
    assert len(rows) > 10 and all("ValueError" in row for row in rows)
    assert page.texts("section > h2")[-3:] == ["Best pair", "Failures", "Settings"]
    seconds = "return document.querySelector('[data-chart=x]').layout.xaxis.title.text"
    page.js("const menu = document.getElementById('over'); menu.value = 'elapsed';"
            "menu.dispatchEvent(new Event('change'))")  # fmt: skip
    eventually(lambda: page.js(seconds), lambda text: text == "seconds")


def test_a_campaign_is_seen_to_fill(page: Page, folder: Path) -> None:
    """Runs are stored while the page shows the campaign."""
    make_campaign(folder / "campaign", methods=("drc-cma-es", HOSTILE), runs=2)
    link = f"#campaigns a[title='{folder / 'campaign'}']"
    eventually(lambda: page.all(link), bool)[0].click()
    eventually(lambda: page.texts("#tables h2"), lambda titles: len(titles) == 3)
    assert page.js("return document.querySelector('[data-chart=ecdf]').data.length") == 2
    made = "#standing .tiles > div:first-child dd"
    assert page.texts(made) == ["12"] and HOSTILE in page.texts("#progress thead th")
    make_campaign(folder / "campaign", methods=("drc-cma-es", HOSTILE), runs=4)
    eventually(lambda: page.texts(made), lambda found: found == ["24"])
    eventually(lambda: page.texts("#progress td.count"), lambda found: set(found) == {"4"})
    assert not page.all("main img, main script, [onerror]") and page.complaints() == []


def test_hostile_names_stay_text(page: Page) -> None:
    assert HOSTILE in page.texts("#runs tr:has(a[title$='/failing']) small")[0]
    open_run(page, "failing")
    assert HOSTILE in page.texts("h1")[0] and HOSTILE in page.texts("#failures td.prose")[2]
    assert not page.all("main img, main script, [onerror]")
    assert page.complaints() == []


def test_a_damaged_run_is_named_and_the_others_are_shown(page: Page) -> None:
    found = states(page)
    assert found["damaged"] == "damaged" and found["ended"] == "stopped"
    assert "damaged at byte" in page.texts("tr.damaged .why")[0]


def test_words_and_states_choose_runs_and_a_keyboard_sorts_them(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    search = page.one("#search")
    search.send_keys("ended copy")
    eventually(lambda: set(states(page)), lambda names: names == {"ended"})
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(Keys.DELETE)
    page.js("const menu = document.getElementById('states'); menu.value = 'damaged';"
            "menu.dispatchEvent(new Event('change'))")  # fmt: skip
    eventually(lambda: set(states(page)), lambda names: names == {"damaged"})
    page.js("const menu = document.getElementById('states'); menu.value = '';"
            "menu.dispatchEvent(new Event('change'))")  # fmt: skip
    button = page.one("#runs thead th:nth-child(9) button")
    for key in (Keys.ENTER, Keys.SPACE):
        button.send_keys(key)
    assert page.one("#runs thead th:nth-child(9)").get_attribute("aria-sort") == "descending"
    assert next(iter(states(page))) == "failing"


def test_the_page_asks_its_own_server_only(page: Page, served: Served) -> None:
    open_run(page, "live")
    asked = page.requests()
    assert any("/detail/" in address for address in asked)
    assert all(one.startswith((served.address, "data:", "blob:")) for one in asked)


ATTACK = (
    "const site = arguments[0];"
    "const image = document.createElement('img'); image.src = `${site}/img`;"
    "const script = document.createElement('script'); script.src = `${site}/js`;"
    "document.body.append(image, script);"
    "try { fetch(`${site}/fetch`).catch(() => 0) } catch {}"
    "return new Promise(done => setTimeout(done, 300))"
)


def test_nothing_reaches_a_listener_elsewhere(page: Page, listener: Any, tmp_path: Path) -> None:
    """The second part shows that the listener hears what a page without a policy asks for."""
    site, asked = listener
    page.js(ATTACK, site)
    assert asked == []
    (tmp_path / "free.html").write_text("<!doctype html><body>")
    page.open(tmp_path / "free.html")
    page.js(ATTACK, site)
    assert "/img" in asked


def test_a_wrong_token_gets_nothing(browser: Page, served: Served) -> None:
    right = served.address.rstrip("/")
    for wrong in (right[:-1] + ("A" if right[-1] != "A" else "B"), right.rpartition("/")[0]):
        browser.open(f"{wrong}/")
        assert not browser.all("#view, #data, table")
        assert str(served.folder) not in browser.driver.page_source


@pytest.mark.parametrize("view", ["list", "failing"])
def test_500_pixels_are_enough(page: Page, view: str) -> None:
    with page.window(500):
        if view != "list":
            open_run(page, view)
        time.sleep(0.3)  # charts follow the width
        assert page.js("return document.documentElement.scrollWidth") <= 500
        if view == "list":  # name, state, best F and the share of limits fit without scrolling
            inside = "const box = document.querySelector('#runs .scroll');"
            assert page.js(f"{inside} return box.scrollWidth - box.clientWidth") <= 1
        page.one("#open-contents").click()
        assert page.one("#contents").is_displayed()


def test_an_exported_page_shows_the_same_without_a_server(
    browser: Page, folder: Path, served: Served, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "bilevo", "watch", str(folder), "--export", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    browser.open(out)
    found = states(browser)
    assert found["ended"] == "stopped" and found["live"] == "running"
    open_run(browser, "failing")
    assert HOSTILE in browser.texts("h1")[0]
    assert browser.texts("#link")[0].startswith("as of ")
    assert {url.partition(":")[0] for url in browser.requests()} <= {"file", "data", "blob"}
    assert browser.complaints() == []
