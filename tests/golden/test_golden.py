"""Short runs whose course must not change unnoticed.

A difference means that an algorithm's results changed: raise its `revision`, add a line to
CHANGELOG.md, and renew its runs with `python tests/golden/test_golden.py METHOD ...`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import bilevo
from bilevo import kernels
from bilevo.core.algorithm import Followers
from bilevo.followers import Minimize
from bilevo.registry import driving, methods
from bilevo.testing import CountingProblem

STORED = Path(__file__).parent / "runs.json"
# Their course hangs on last bits, by finite differences or by ties between equal children, and
# machines round these otherwise: only its beginning is compared.
BEGINNING = {
    "bleaq2 smd2": 3000,
    "bleaq2 tp3": 600,
    "drc-de tp3": 600,
    "drc-ga smd2": 600,
    "drc-ga tp3": 600,
    "drc-cma-es smd2 by a solver": 1500,
    "drc-race smd2 by a solver": 1500,
    "drc-race tp3 by a solver": 1500,
    "drc-plus smd2": 500,
    "drc-plus tp3": 150,
    "mfbla tp3": 600,
    "moves smd2": 150,
    "moves tp3": 150,
    "nested-ties smd2": 500,
    "nested-ties tp3": 150,
    "sa-bl-imode tp3": 1500,
    "trust-region smd2 by a solver": 1500,
    "trust-region tp3 by a solver": 300,
}
PROBLEMS = ("smd2", "tp3")
CASES = [(method, problem) for method in driving(Followers.FUNCTION) for problem in PROBLEMS]
# Where the follower is a solver: all who drive no other, and one who drives both.
SOLVED = [name for name in driving(Followers.SOLVER) if name not in driving(Followers.FUNCTION)]
CASES += [(method, f"{problem} by a solver") for method in SOLVED for problem in PROBLEMS]
CASES += [("drc-cma-es", "smd2 by a solver")]


def course(method: str, problem: str) -> dict[str, Any]:
    """A run's counters, tasks and answer. Answers to nine digits: machines may round otherwise."""
    short = bilevo.Budget(lower_max=40, upper_max=150)
    name, _, solver = problem.partition(" by ")
    follower = Minimize() if solver else None
    result = bilevo.minimize(
        CountingProblem(bilevo.problems.get(name), follower).problem,
        method=method,
        rng=20,
        budget=short,
        max_evals=BEGINNING.get(f"{method} {problem}"),
    )
    return {
        "revision": bilevo.registry.get_method(method).revision,
        "nfev": [result.nfev_upper, result.nfev_lower],
        "executions": [list(row.executions) for row in result.history],
        "F": float(f"{result.F:.9g}"),
        "f": float(f"{result.f:.9g}"),
    }


@pytest.mark.parametrize("kernel", kernels.NAMES)
@pytest.mark.parametrize(("method", "problem"), CASES)
def test_the_course_of_a_run_is_the_stored_one(
    method: str, problem: str, kernel: kernels.Name
) -> None:
    stored = json.loads(STORED.read_text())[f"{method} {problem}"]
    with kernels.using(kernel):
        now = course(method, problem)
    for value in ("F", "f"):
        assert now.pop(value) == pytest.approx(stored.pop(value), rel=1e-7, abs=1e-12, nan_ok=True)
    assert now == stored


def renew(chosen: list[str]) -> None:
    """Make the runs of these methods again, or of all; the others stay as they are."""
    if unknown := set(chosen) - set(methods()):
        raise SystemExit(f"unknown methods: {', '.join(sorted(unknown))}")
    stored = json.loads(STORED.read_text())
    for method, problem in CASES:
        if method in chosen or not chosen:
            stored[f"{method} {problem}"] = course(method, problem)
    known = [f"{method} {problem}" for method, problem in CASES]
    kept = {name: stored[name] for name in known if name in stored}
    STORED.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
