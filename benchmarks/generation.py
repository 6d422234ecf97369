"""Time a generation of CMA-ES (ask and tell): ours with each kernel, cma, cmaes and pymoo.

All of them minimize the same sphere in the unit box, with bounds and with populations of
4 + floor(3 ln n), from the same mean and deviation. The time of the sphere itself is measured, too,
and subtracted. A search is started again after a few generations, before its distribution has
shrunk too far. The start is not timed. Our CMA-ES is faster than the others, so it is timed over
more starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.report import Target, at_least
from benchmarks.timing import Figures, interleaved, say
from bilevo import CMAES, kernels
from bilevo.core.arrays import FloatArray, row_dots
from bilevo.core.streams import stream
from bilevo.lab.show.formats import Lines
from bilevo.optimizers.protocol import Start

SIZES = (3, 10, 30)  # Numbers of variables.
MEAN, SIGMA, OPTIMUM = 0.5, 0.2, 0.4  # Each coordinate's first mean and deviation, and its optimum.
WARM, TIMED = 5, 40  # After a start, 5 generations are not timed, and then 40 are.
WANTED = {"numpy": (10, 10, 6), "numba": (80, 40, 10)}  # How many times faster than cma, by size.
QUICK = {"repeats": 4}

Step = Callable[[], object]


def population(n: int) -> int:
    return 4 + math.floor(3 * math.log(n))


def sphere(points: FloatArray) -> FloatArray:
    steps = points - OPTIMUM
    return row_dots(steps, steps)


def sphere_alone(n: int, seed: int) -> Step:
    return partial(sphere, np.random.default_rng(seed).random((population(n), n)))


def ours(n: int, seed: int) -> Step:
    optimizer, rng = CMAES(), stream(seed, "generation")
    search = optimizer.start(Start(np.full(n, MEAN), SIGMA**2 * np.eye(n), np.zeros(n)), rng)
    feasible = np.zeros(population(n))

    def step() -> None:
        points = optimizer.ask(search, rng)
        optimizer.tell(search, points, sphere(points), feasible)

    return step


def of_cma(n: int, seed: int) -> Step:
    import cma

    options = {"bounds": [0, 1], "popsize": population(n), "seed": seed, "verbose": -9}
    search = cma.CMAEvolutionStrategy(n * [MEAN], SIGMA, options)

    def step() -> None:
        points = search.ask()
        search.tell(points, sphere(np.array(points)))

    return step


def of_cmaes(n: int, seed: int) -> Step:
    import cmaes

    bounds = np.tile([0.0, 1.0], (n, 1))
    search = cmaes.CMA(
        np.full(n, MEAN), SIGMA, bounds=bounds, seed=seed, population_size=population(n)
    )

    def step() -> None:
        points = [search.ask() for _ in range(search.population_size)]
        search.tell(list(zip(points, sphere(np.array(points)), strict=True)))

    return step


def of_pymoo(n: int, seed: int) -> Step:
    from pymoo.algorithms.soo.nonconvex import cmaes as peer
    from pymoo.core.problem import Problem

    class Sphere(Problem):  # type: ignore[misc]
        def _evaluate(self, x: FloatArray, out: dict[str, Any], *_: Any, **__: Any) -> None:
            out["F"] = sphere(x)

    problem = Sphere(n_var=n, n_obj=1, xl=0.0, xu=1.0)
    search = peer.CMAES(x0=np.full(n, MEAN), sigma=SIGMA, pop_size=population(n))
    search.setup(problem, seed=seed, verbose=False)

    def step() -> None:
        points = search.ask()
        search.evaluator.eval(problem, points)
        search.tell(infills=points)

    return step


def time_per_generation(start: Callable[[int, int], Step], n: int, starts: int) -> float:
    """Return the seconds of one generation, on average over several starts."""
    total = 0.0
    for seed in range(1, starts + 1):
        step = start(n, seed)
        for _ in range(WARM):
            step()
        started = perf_counter()
        for _ in range(TIMED):
            step()
        total += perf_counter() - started
    return total / (starts * TIMED)


def time_with_kernel(kernel: kernels.Name, n: int, starts: int) -> float:
    with kernels.using(kernel):
        return time_per_generation(ours, n, starts)


def cma_generation(n: int = 3, starts: int = 2) -> float:
    """Return the seconds of a generation of cma, a measure of the machine's present speed."""
    return time_per_generation(of_cma, n, starts)


def measure(
    sizes: tuple[int, ...] = SIZES,
    names: tuple[kernels.Name, ...] = kernels.NAMES,
    repeats: int = 25,
    starts: int = 20,
) -> Figures:
    """Measure microseconds per generation, without the sphere, of each library at each size."""
    lines = []
    for n in sizes:
        say(f"  a generation at n = {n}")
        contestants: dict[str, Callable[[], float]] = {}
        for kernel in names:
            contestants[kernel] = partial(time_with_kernel, kernel, n, starts)
        for name, start in {"cma": of_cma, "cmaes": of_cmaes, "pymoo": of_pymoo}.items():
            contestants[name] = partial(time_per_generation, start, n, 1)
        contestants["sphere"] = partial(time_per_generation, sphere_alone, n, starts)
        best = interleaved(contestants, repeats)
        sphere_time = best.pop("sphere")
        costs = {name: 1e6 * (time - sphere_time) for name, time in best.items()}
        lines.append({"n": n, "population": population(n), "us": costs})
    return {"lines": lines, "repeats": repeats}


def tables(figures: Figures) -> list[Lines]:
    """Return a table of microseconds, and of how many times faster than cma each library is."""
    names = list(figures["lines"][0]["us"])
    shown = {name: f"bilevo, {name}" if name in kernels.NAMES else name for name in names}
    header = ["n", "points", *(f"{shown[name]} (us)" for name in names)]
    made = [[*header, *(f"cma / {shown[name]}" for name in names if name != "cma")]]
    for line in figures["lines"]:
        us = line["us"]
        ratios = [f"{us['cma'] / us[name]:.1f}" for name in names if name != "cma"]
        costs = [f"{us[name]:.1f}" for name in names]
        made.append([str(line["n"]), str(line["population"]), *costs, *ratios])
    return [made]


def targets(figures: Figures) -> list[Target]:
    return [
        at_least(
            f"a CMA-ES generation at n = {line['n']}, {kernel}: times faster than cma",
            WANTED[kernel][SIZES.index(line["n"])],
            line["us"]["cma"] / line["us"][kernel],
        )
        for line in figures["lines"]
        for kernel in kernels.NAMES
        if kernel in line["us"]
    ]
