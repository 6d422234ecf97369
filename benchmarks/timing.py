"""Time alternatives in turn, and take the best of several repeats of each.

The speed of a machine changes from one minute to the next, so a single figure says little.
Alternatives that are timed in turn see the machine in the same state. The best repeat of each is
the one that was disturbed least. Ratios of such times can be compared between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Figures = dict[str, Any]  # the figures of a part: strings, numbers, and lists and dicts of these


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = perf_counter()
    call()
    return perf_counter() - started


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Return how long the fastest of several calls takes, in seconds."""
    return min(seconds(call) for _ in range(repeats))


def interleaved(measures: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Call all measures in several rounds, and return the smallest figure of each."""
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(repeats)]
    return {name: min(figures[name] for figures in rounds) for name in measures}


def alone(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function in a new process, with nothing imported or allocated before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *args, **options).result()


def say(text: str) -> None:
    """Print progress at once, even if the output is a file."""
    print(text, flush=True)
