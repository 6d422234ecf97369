"""Measure what whole runs of drc-cma-es on SMD1 cost in addition to their evaluations.

First a run is recorded: every call of its functions, and the values that the call returned. Then
three things are timed in turn: the run itself; its evaluations alone, in the same batches; and the
run with functions that only return the recorded values. The third time is the cost of the optimizer
and the driver. A generation of cma at n = 3 is timed, too, to measure the machine. The cost is
divided by the number of lower generations. To count these, the recorded run uses an optimizer that
counts calls of `tell`.

Finally, runs are timed with an objective that takes a millisecond per point. There the cost of the
optimizer should be negligible.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import bilevo
from benchmarks.generation import cma_generation
from benchmarks.report import Target, at_least, at_most
from benchmarks.timing import Figures, interleaved, say, seconds
from bilevo import kernels
from bilevo.algorithms import DRC
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Function
from bilevo.lab.show.formats import Lines

SIZES = ((2, 3), (10, 10), (30, 30))
MAX_EVALUATIONS = 120_000  # A run is cut off here, which happens only at the last size.
PROMISED = SIZES[:2]  # The sizes that have targets.
# A lower generation must be this many times faster than a generation of cma at n = 3.
WANTED_TIMES = {"numpy": 6, "numba": 20}
WANTED_US = {"numpy": 70, "numba": 20}  # The most microseconds of a lower generation.
POINT = 1e-3  # The seconds that the slow objective takes for one point.
WANTED_SLOW = 1.05  # The most total time, relative to the time of the slow objective.
QUICK = {"repeats": 2, "slow_evaluations": 400}


class Counted(bilevo.CMAES):
    """CMA-ES that counts its generations."""

    generations: ClassVar[int] = 0

    def tell(
        self, state: Any, points: FloatArray, objective: FloatArray, violation: FloatArray
    ) -> None:
        Counted.generations += 1
        super().tell(state, points, objective, violation)


class Recording:
    """A run of drc-cma-es, with all arguments and values of its functions."""

    def __init__(self, m: int, n: int, kernel: kernels.Name, max_evals: int) -> None:
        self.problem = bilevo.problems.get("smd1", m, n)
        self.kernel, self.max_evals = kernel, max_evals
        self.calls: list[tuple[Function, FloatArray, FloatArray]] = []
        self.values: dict[Function, list[FloatArray]] = {self.problem.F: [], self.problem.f: []}
        Counted.generations = 0
        self.result = self.minimize(self._kept, DRC(lower=Counted()))
        self.lower_generations = Counted.generations

    def _kept(self, function: Function) -> Function:
        def call(x: FloatArray, y: FloatArray) -> FloatArray:
            values: FloatArray = function(x, y)
            self.calls.append((function, x.copy(), y.copy()))
            self.values[function].append(values.copy())
            return values

        return call

    def minimize(
        self, changed: Callable[[Function], Function], method: Any = "drc-cma-es"
    ) -> bilevo.Result:
        """Make the run with F and f replaced by `changed(F)` and `changed(f)`.

        The changed functions must return the same values.
        """
        real = self.problem
        problem = bilevo.Problem(
            changed(real.F),
            changed(real.f),
            real.x_bounds,
            real.y_bounds,
            vectorized=True,
            optimum=real.optimum,
        )
        with kernels.using(self.kernel):
            return bilevo.minimize(problem, method=method, rng=1, max_evals=self.max_evals)

    def run(self) -> float:
        """Return the seconds of the run."""
        return seconds(lambda: self.minimize(lambda function: function))

    def evaluations(self) -> float:
        """Return the seconds that the evaluations of the run take alone."""
        started = perf_counter()
        for function, x, y in self.calls:
            function(x, y)
        return perf_counter() - started

    def replay(self) -> float:
        """Return the seconds of the run when evaluations cost nothing."""

        def recorded(function: Function) -> Function:
            following = iter(self.values[function]).__next__
            return lambda x, y: following()

        started = perf_counter()
        result = self.minimize(recorded)
        took = perf_counter() - started
        if (result.nfev, result.F) != (self.result.nfev, self.result.F):
            raise RuntimeError("a replay differs from the run that was recorded")
        return took


def at_size(
    size: tuple[int, int], names: tuple[kernels.Name, ...], repeats: int, longest: int
) -> list[Figures]:
    """Return the figures of one size, one line per kernel."""
    say(f"  whole runs at {size}")
    recordings = {name: Recording(*size, name, longest) for name in names}
    measures: dict[str, Callable[[], float]] = {"cma": partial(cma_generation, starts=6)}
    for name, recording in recordings.items():
        measures |= {f"{name} run": recording.run, f"{name} replay": recording.replay}
        measures |= {f"{name} evaluations": recording.evaluations}
    best = interleaved(measures, repeats)
    lines = []
    for name, recording in recordings.items():
        run, alone = best[f"{name} run"], best[f"{name} evaluations"]
        outside = best[f"{name} replay"] / recording.lower_generations
        lines.append(
            {
                "size": list(size),
                "kernel": name,
                "evaluations": recording.result.nfev,
                "lower_generations": recording.lower_generations,
                "run_us": 1e6 * run / recording.result.nfev,
                "alone_us": 1e6 * alone / recording.result.nfev,
                "outside_us": 1e6 * outside,
                "cma_us": 1e6 * best["cma"],
            }
        )
    return lines


class Slow:
    """A function that takes a millisecond per point; `inside` is the time spent in all of them."""

    inside: ClassVar[float] = 0.0

    def __init__(self, function: Function, vectorized: bool) -> None:
        self.function, self.vectorized = function, vectorized

    def __call__(self, x: FloatArray, y: FloatArray) -> Any:
        started = perf_counter()
        values = self.function(x, y) if self.vectorized else self.function(x[None], y[None])[0]
        end = started + POINT * (len(x) if self.vectorized else 1)
        while perf_counter() < end:
            pass
        Slow.inside += perf_counter() - started
        return values


def over_slow(
    size: tuple[int, int], kernel: kernels.Name, vectorized: bool, evaluations: int
) -> float:
    """Return the total time divided by the time of evaluations, for a slow objective."""
    smd1 = bilevo.problems.get("smd1", *size)
    functions = Slow(smd1.F, vectorized), Slow(smd1.f, vectorized)
    problem = bilevo.Problem(*functions, smd1.x_bounds, smd1.y_bounds, vectorized=vectorized)
    Slow.inside = 0.0
    with kernels.using(kernel):
        total = seconds(
            lambda: bilevo.minimize(problem, method="drc-cma-es", max_evals=evaluations)
        )
    return total / Slow.inside


def measure(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    names: tuple[kernels.Name, ...] = kernels.NAMES,
    repeats: int = 5,
    longest: int = MAX_EVALUATIONS,
    slow_evaluations: int = 1000,
) -> Figures:
    """Measure runs, their evaluations and their replays at each size with each kernel."""
    lines = [line for size in sizes for line in at_size(size, names, repeats, longest)]
    slow = []
    for size in sizes:
        if size in PROMISED:
            say(f"  an objective of {1e3 * POINT:g} ms a point at {size}")
            for name in names:
                forms = {"batches": True, "points": False}
                measures = {
                    form: partial(over_slow, size, name, vectorized, slow_evaluations)
                    for form, vectorized in forms.items()
                }
                slow.append({"size": list(size), "kernel": name, **interleaved(measures, 4)})
    return {"lines": lines, "slow": slow, "repeats": repeats}


def tables(figures: Figures) -> list[Lines]:
    """Return tables of the cost of runs, and of runs with a slow objective."""
    header = ["(m, n)", "kernel", "evaluations", "us an evaluation", "evaluated alone", "ratio"]
    header += ["lower generations", "us each, outside the objective", "cma, n = 3 (us)", "cma / us"]
    runs = [header]
    for line in figures["lines"]:
        run, alone, outside = line["run_us"], line["alone_us"], line["outside_us"]
        first = [_size(line), line["kernel"], str(line["evaluations"])]
        second = [f"{run:.1f}", f"{alone:.1f}", f"{run / alone:.1f}"]
        third = [str(line["lower_generations"]), f"{outside:.1f}", f"{line['cma_us']:.0f}"]
        runs.append([*first, *second, *third, f"{line['cma_us'] / outside:.1f}"])
    slow = [["(m, n)", "kernel", "vectorized", "one point at a time"]]
    for line in figures["slow"]:
        ratios = [f"{line[form]:.3f}" for form in ("batches", "points")]
        slow.append([_size(line), line["kernel"], *ratios])
    return [runs, slow]


def targets(figures: Figures) -> list[Target]:
    """Compare ratios and microseconds with targets; a slow or busy machine misses the latter."""
    made = []
    for line in figures["lines"]:
        if tuple(line["size"]) in PROMISED:
            kernel, outside = line["kernel"], line["outside_us"]
            what = f"a lower generation of drc-cma-es at {_size(line)}, {kernel}"
            times = line["cma_us"] / outside
            made.append(at_least(f"{what}: times less than cma's", WANTED_TIMES[kernel], times))
            made.append(at_most(f"{what}: us", WANTED_US[kernel], outside))
    for line in figures["slow"]:
        what = f"an objective of 1 ms at {_size(line)}, {line['kernel']}: total / evaluations"
        made.append(at_most(what, WANTED_SLOW, max(line["batches"], line["points"]), digits=3))
    return made


def _size(line: Figures) -> str:
    return "({}, {})".format(*line["size"])
