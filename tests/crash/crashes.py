"""Runs that are meant to be broken off, in processes that are meant to be killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
import warnings
from dataclasses import asdict
from functools import cache
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import psutil
import solvers
from solvers import SlowSteady, Steady

import bilevo
import bilevo.run.directory
from bilevo.core.plain_data import plain
from bilevo.run.journal import JournalFile

HERE = Path(__file__).parent
METHODS = ("drc-cma-es", "bl-cma-es", "nested-cma-es")
SMALL: dict[str, Any] = {  # short generations, as the default has not
    "method": METHODS[0],
    "budget": bilevo.Budget(lower_max=4, upper_max=30),
    "max_evals": 70,
}

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["warmed_up"])


def F(x: Any, y: Any) -> float:
    return float(x @ x + y @ y)


def f(x: Any, y: Any) -> float:
    return float((y - x) @ (y - x))


def slow_f(x: Any, y: Any) -> float:
    time.sleep(0.001)
    return f(x, y)


def problem(size: int = 1, lower: Any = f) -> bilevo.Problem:
    """The leader wants x and y small, the follower copies x."""
    return bilevo.Problem(F, lower, [(-5, 10)] * size, [(-5, 10)] * size, name="copy")


def course(result: bilevo.Result) -> str:
    """All of a result, as text, but for its version and what a second sitting adds to it."""
    content = plain(asdict(result))
    del content["time"], content["version"], content["rechecked"]
    return json.dumps(content)


def small(run_dir: Path | None, method: str = METHODS[0], **options: Any) -> bilevo.Result:
    """A run of one generation and the beginning of another."""
    options = {**SMALL, "method": method, **options}
    if method == "nested-cma-es":  # its generations are longer
        options["max_evals"] *= 3
    return bilevo.minimize(problem(), run_dir=run_dir, **options)


def medium(
    run_dir: Path | None,
    out: Path,
    method: str,
    seed: int,
    workers: int | None = None,
    limit: int = 4000,
) -> None:
    """A run of a few thousand evaluations with many snapshots; its course goes into a file.

    Slower with workers, which makes no difference to its course.
    """
    options = {"method": method, "budget": bilevo.Budget(lower_max=60, upper_max=400)}
    copy = problem(2, f if workers is None else slow_f)
    _make(copy, out, run_dir=run_dir, rng=seed, workers=workers, max_evals=limit, **options)


def f_of_two(x: Any, y: Any) -> list[float]:
    """Two followers that watch each other."""
    return [float((y[0] - 0.5 * y[1] - x[0]) ** 2), float((y[1] + 0.3 * y[0] - 0.2) ** 4)]


def f_of_each(x: Any, y: Any) -> list[float]:
    """Two followers that do not."""
    return [float((y[0] - x[0]) ** 2), float((y[1] ** 2 - 1) ** 2 + 0.1 * y[1] * x[0])]


def two_followers(
    run_dir: Path | None,
    out: Path,
    play: str,
    seed: int,
    workers: int | None = None,
    limit: int = 4000,
) -> None:
    """A run with two followers, like `medium`."""
    game = bilevo.Problem(
        lambda x, y: float((x[0] - 0.4) ** 2 + y @ y),
        f_of_two if play == "nash" else f_of_each,
        [(-2, 2)],
        followers=[bilevo.Follower(y_bounds=[(-2, 2)]) for _ in range(2)],
        play=play,
    )
    _make(game, out, run_dir=run_dir, rng=seed, workers=workers, max_evals=limit)


def own_solver(
    run_dir: Path | None,
    out: Path,
    method: str,
    seed: int,
    workers: int | None = None,
    limit: int = 1000,
) -> None:
    """A run with a problem's own solver, like `medium`."""
    follower = Steady() if workers is None else SlowSteady()
    walk = solvers.problem(follower)
    _make(walk, out, run_dir=run_dir, method=method, rng=seed, workers=workers, max_evals=limit)


def _make(problem: bilevo.Problem, out: Path, **options: Any) -> None:
    """Make a run, and write its course to a file."""
    bilevo.run.directory.SNAPSHOT_AFTER = 0.02
    warnings.simplefilter("ignore")  # workers may slow it down
    out.with_suffix(".begun").touch()
    result = bilevo.minimize(problem, **options)
    temporary = out.with_suffix(".new")
    temporary.write_text(course(result))
    os.replace(temporary, out)


def hold(run_dir: Path) -> None:
    """Keep a run directory in use until killed."""

    def wait(x: Any, y: Any) -> float:
        time.sleep(60)
        return 0.0

    bilevo.minimize(problem(lower=wait), run_dir=run_dir, **SMALL)


def boundaries(journal: Path) -> list[int]:
    """The offsets between the records of a journal."""
    file = JournalFile(journal)
    return [file.start.offset, *(position.offset for _, position in file.records())]


@cache
def start_server() -> None:
    """Start the process from which others fork, in a folder where it finds what it preloads."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if path is not None:
            os.environ["PYTHONPATH"] = path


def start(target: Any, *arguments: Any) -> Any:
    """Run a function in a process that begins with everything loaded."""
    start_server()
    process = processes.Process(target=target, args=arguments)
    process.start()
    return process


def left_after(seconds: float, watched: list[psutil.Process]) -> list[psutil.Process]:
    """Which of these processes still run after that time at most; a zombie does not."""
    until = time.monotonic() + seconds
    while (left := [p for p in watched if _runs(p)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
