"""How everything here is timed: alternatives in turn, the best of several repeats of each.

The speed of a machine changes from one minute to the next, so a figure says little by itself.
Alternatives that take turns meet the same machine; the best repeat of each is the one that was
disturbed least; and the ratio of two of these can be compared with one from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Figures = dict[str, Any]  # what a part measures: words, numbers, and lists and dicts of them


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    started = perf_counter()
    call()
    return perf_counter() - started


def interleaved(measures: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The least figure each of these gives in several rounds, all being called in every round."""
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(repeats)]
    return {name: min(figures[name] for figures in rounds) for name in measures}


def alone(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What a function returns in a fresh process, with nothing imported or allocated before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *args, **options).result()


def say(text: str) -> None:
    """Progress, at once even where the output is a file."""
    print(text, flush=True)
