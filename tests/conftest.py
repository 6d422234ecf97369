"""Shared helpers: problems that count their own evaluations, independently of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import absent
import pytest
from browsing import Page, opened_browser
from figures import figures_of, write_figures
from hypothesis import settings
from slower_methods import waits

import bilevo
from bilevo.testing import CountingProblem

# A second conftest.py would hide this one, which tests import.
pytest_plugins = ["made_reports"] if find_spec("polars") else []
collect_ignore = ["crash/warmed_up.py"]  # imported by a server of processes only
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# Markers of tests that need other programs, and which of these share a process.
OTHERS = {"cluster": "clusters", "browser": "pages", "site": "pages", "latex": None}


def minimize_counted(problem: bilevo.Problem, **options: Any) -> bilevo.Result:
    """Minimize, and check the result's counters against the independent ones."""
    return CountingProblem(problem).minimize(**options)


def fingerprint(result: bilevo.Result) -> tuple[Any, ...]:
    """All of a result that must repeat to the bit."""
    rows = tuple(result.history)
    numbers = (result.x.tobytes(), result.y.tobytes(), result.F, result.f, result.violation)
    counts = (result.nfev_upper, result.nfev_lower, result.nit, result.status)
    return numbers + counts + rows


def quadratic(**options: Any) -> bilevo.Problem:
    """A small smooth problem: F* = 0 at x = y = 0, the follower copies x."""
    return bilevo.Problem(
        lambda x, y: float(x @ x + y @ y),
        lambda x, y: float((y - x) @ (y - x)),
        [(-5, 10)] * 2,
        [(-5, 10)] * 2,
        **options,
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened_browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the full number of trials")
    parser.addoption("--figures", metavar="FILE", help="write what the trials came to")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(absent)


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How many trials to make: `trials(on_every_push, in_full)`."""
    return lambda usual, full: full if request.config.getoption("--full") else usual


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[int, int, str], None]:
    """Say how many trials of a promise were made without a failure: `figure(row, number, of)`.

    Rows are those of `figures.PROMISES`; figures of one row and kind add up.
    """
    return lambda row, number, of: record_property("figure", [row, number, of])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of the kinds in `OTHERS`, and of slower methods, to `scripts/test --rest`."""
    for item in items:
        kinds = [kind for kind in OTHERS if item.get_closest_marker(kind) is not None]
        if kinds or waits(item):
            item.add_marker("rest")
        for group in {OTHERS[kind] for kind in kinds} - {None}:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (path := config.getoption("--figures")) is not None:
        write_figures(path, figures_of(terminalreporter.stats.get("passed", [])))
