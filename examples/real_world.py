"""Solve two problems of the literature: a gold mine and its tax, a company and its divisions.

Gold mining (Kuusamo): the government chooses a tax on each unit, and the weight that the mine has
to give to its profit rather than to pollution. The mine answers with its production.

Decision making: an executive chooses two quantities, and the weight that the divisions give to
profit. The divisions answer with three more quantities.

Both are in `bilevo.problems`. They are from M. M. Islam, H. K. Singh and T. Ray (2017), and the DRC
paper uses them.

    python examples/real_world.py [--small] [--out DIRECTORY]

There are two checks. For gold mining, scipy searches over taxes, and finds the mine's quantity for
each of them. In decision making, F and the constraints are linear, so a linear program finds the
best F that the executive would get by deciding everything. No bilevel answer can be better, and the
best run reaches this F. Other runs end in local optima, such as F = -1084.24, where most runs of
the published algorithms end.

**When bilevo is the wrong tool**: in these two problems. The mine has one variable and the problem
of the divisions is convex, so scipy solves both in a moment, and each check takes less time than
the search. bilevo would be the right tool if a simulation computed the production.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import linprog, minimize, minimize_scalar

import bilevo
from bilevo import plot
from bilevo.core.arrays import FloatArray
from bilevo.core.extras import need


@dataclass(frozen=True, slots=True)
class Answer:
    """The best verified result of some runs, the verified F of each, and the F of the check."""

    result: bilevo.Result
    certificate: bilevo.Certificate
    found: list[float]
    check: float


def solved(
    problem: bilevo.Problem, seeds: Sequence[int], max_evals: int | None, check: float
) -> Answer:
    """Make a run with each seed, verify all results, and return the best feasible one."""
    results = [bilevo.minimize(problem, rng=seed, max_evals=max_evals) for seed in seeds]
    certificates = [bilevo.verify(problem, result) for result in results]
    order = sorted(
        range(len(seeds)), key=lambda i: (not certificates[i].feasible, certificates[i].F)
    )
    found = [certificate.F for certificate in certificates]
    return Answer(results[order[0]], certificates[order[0]], found, check)


def mine_by_scipy(problem: bilevo.Problem) -> float:
    """Return the best F of gold mining by Nelder-Mead, with the mine solved at every tax."""

    def production(x: FloatArray) -> float:
        most = max(0.0, (99 - x[0]) / 2)  # with a larger quantity the mine makes a loss

        def f(q: float) -> float:
            return float(problem.f(x[None], np.array([[q]]))[0])

        grid = np.linspace(0, most, 33)
        i = int(np.argmin([f(q) for q in grid]))
        near = (grid[max(0, i - 1)], grid[min(32, i + 1)])
        return float(minimize_scalar(f, bounds=near, method="bounded", options={"xatol": 1e-11}).x)

    def F(x: FloatArray) -> float:
        x = np.clip(x, problem.x_bounds.lower, problem.x_bounds.upper)
        return float(problem.F(x[None], np.array([[production(x)]]))[0])

    return float(minimize(F, [50, 0.9], method="Nelder-Mead", options={"xatol": 1e-6}).fun)


def without_follower(problem: bilevo.Problem) -> float:
    """Return the best F if the leader decided everything. F, G and g must be linear."""
    m, n = problem.m, problem.n
    points = np.concatenate([np.zeros((1, m + n)), np.eye(m + n)])
    F, G, _, g = problem.evaluate(points[:, :m], points[:, m:])
    limits = np.concatenate([G, g], axis=1)
    lower = np.concatenate([problem.x_bounds.lower, problem.y_bounds.lower])
    upper = np.concatenate([problem.x_bounds.upper, problem.y_bounds.upper])
    slopes = (limits[1:] - limits[0]).T
    bounds = np.stack([lower, upper], axis=1)
    return float(F[0] + linprog(F[1:] - F[0], slopes, -limits[0], bounds=bounds).fun)


def gold_mining(small: bool, folder: Path) -> Answer:
    problem = bilevo.problems.get("gold-mining")
    answer = solved(problem, [1], 3000 if small else None, mine_by_scipy(problem))
    tax, weight = answer.result.x
    (production,) = answer.certificate.y
    print(
        f"gold mining: a tax of {tax:.1f} a unit. A mine that gives its profit a weight of "
        f"{weight:.2f} then digs {production:.2f} units.\nThe state takes {tax * production:.0f}. "
        f"bilevo finds F = {answer.certificate.F:.4f}, scipy {answer.check:.4f}.\n"
        f"Verification: {answer.certificate.message}"
    )
    figure = plot.landscape(problem, answer.result, points=9 if small else None)
    plot.save(figure, folder / "gold_mining.png")
    return answer


def decision_making(small: bool, folder: Path) -> Answer:
    problem = bilevo.problems.get("decision-making")
    # About four of ten runs find the best answer with 20,000 evaluations.
    seeds, most = ([101], 20_000) if small else ([1, 2, 3, 4], None)
    answer = solved(problem, seeds, most, without_follower(problem))
    x, y = answer.result.x, answer.certificate.y
    print(
        f"decision making: the executive sets {x[0]:.1f} and {x[1]:.1f}, and a weight of profit of "
        f"{x[2]:.2f}. The divisions answer {', '.join(f'{part:.1f}' for part in y)}.\n"
        f"bilevo finds F = {answer.certificate.F:.4f}. If the divisions obeyed, F would be "
        f"{answer.check:.4f}, a difference of {answer.certificate.F - answer.check:.4f}.\n"
        f"Verification: {answer.certificate.message}"
    )
    draw_runs(answer, folder / "decision_making.png")
    return answer


def draw_runs(answer: Answer, path: Path) -> None:
    """Draw the F of each run and the bound: runs end in different local optima."""
    figure = need("pictures", "matplotlib.figure", "plot").Figure(
        figsize=(5, 3), layout="constrained"
    )
    ax = figure.subplots()
    numbers = range(1, len(answer.found) + 1)
    ax.plot(numbers, answer.found, "o", color=plot.SURVIVED, label="verified F of a run")
    ax.axhline(answer.check, linestyle="--", color=plot.DROPPED, label="if the divisions obeyed")
    ax.set(xticks=numbers, xlabel="seed", ylabel="F, lower is better", title="decision making")
    ax.legend(frameon=False)
    plot.save(figure, path)


def main(words: Sequence[str] | None = None) -> tuple[Answer, Answer]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="short runs, for a quick look")
    parser.add_argument("--out", type=Path, default=Path(), help="directory for the pictures")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    return gold_mining(options.small, options.out), decision_making(options.small, options.out)


if __name__ == "__main__":
    main()
