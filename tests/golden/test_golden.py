"""Short runs whose course must not change unnoticed.

A difference means that an algorithm's results changed: raise its `revision`, add a line to
CHANGELOG.md, and renew the file with `python tests/golden/test_golden.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import bilevo
from bilevo import kernels
from bilevo.registry import for_functions

STORED = Path(__file__).parent / "runs.json"
# Their course hangs on last bits, by finite differences or by ties between equal children, and
# machines round these otherwise: only its beginning is compared.
BEGINNING = {
    "bleaq2 smd2": 3000,
    "bleaq2 tp3": 600,
    "drc-de tp3": 600,
    "drc-ga smd2": 600,
    "drc-ga tp3": 600,
    "drc-plus smd2": 500,
    "drc-plus tp3": 150,
    "mfbla tp3": 600,
    "sa-bl-imode tp3": 1500,
}
CASES = [(method, problem) for method in for_functions() for problem in ("smd2", "tp3")]


def course(method: str, problem: str) -> dict[str, Any]:
    """A run's counters, tasks and answer. Answers to nine digits: machines may round otherwise."""
    short = bilevo.Budget(lower_max=40, upper_max=150)
    result = bilevo.minimize(
        bilevo.problems.get(problem),
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


if __name__ == "__main__":
    runs = {f"{method} {problem}": course(method, problem) for method, problem in CASES}
    STORED.write_text(json.dumps(runs, indent=1) + "\n")
