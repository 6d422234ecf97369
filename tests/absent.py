"""Hooks by which tests that need an optional library are skipped where it is not installed."""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib.util import find_spec
from typing import Any

import pytest

EXTRAS = (
    *("polars", "matplotlib", "plotly", "jinja2", "numba", "sklearn", "distributed", "dask", "ray"),
    *(
        "pandas",
        "sphinx",
        "selenium",
        "starlette",
        "uvicorn",
        "iohinspector",
        "cma",
        "cmaes",
        "pymoo",
    ),
)
ABSENT = [library for library in EXTRAS if find_spec(library) is None]
ERROR = re.compile(rf"(?:MissingExtra|\w*Error): .*\b({'|'.join(ABSENT)})\b")


def skip_if_absent(error: ImportError) -> None:
    """Skip the test if the import that failed was of a library that is not installed."""
    library = (error.name or "").partition(".")[0]
    if "needs scikit-learn" in str(error):
        library = "sklearn"
    if library in ABSENT:
        pytest.skip(f"needs {library}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip a file that imports an absent library at its head."""
    report = yield
    if ABSENT and report.failed and (named := ERROR.search(str(report.longrepr))):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"needs {named[1]}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except ImportError as error:
        skip_if_absent(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except ImportError as error:
        skip_if_absent(error)
        raise
