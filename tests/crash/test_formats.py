"""Files of every released format: resumed, or refused with a reason.

A new format gets a folder of its own, made by `python tests/crash/test_formats.py` before its
release; the old ones stay.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crashes import F, course, f

import bilevo
from bilevo.core.algorithm import Followers
from bilevo.registry import get_method
from bilevo.run import directory, snapshot
from bilevo.run.directory import _first_state
from bilevo.testing import Driven

FORMATS = Path(__file__).parent.parent / "data" / "formats"
SNAPSHOTS = FORMATS.parent / "snapshots"


def run(run_dir: Path | None, limit: int) -> bilevo.Result:
    def lower(x: Any, y: Any) -> float:
        if y[0] > 8:
            raise ArithmeticError("no mesh")
        return f(x, y)

    def constraints(x: Any, y: Any) -> list[float]:
        return [1.0 - x[0] - y[0]]

    problem = bilevo.Problem(F, lower, [(-5, 10)], [(-5, 10)], g=constraints, name="format")
    short = bilevo.Budget(lower_max=4, upper_max=30)
    return bilevo.minimize(
        problem,
        method="drc-cma-es",
        budget=short,
        max_evals=limit,
        on_failure="worst",
        run_dir=run_dir,
    )


def numbers(told: str) -> dict[str, Any]:
    """All of a result but its judgement, which had another meaning in files of format 1.

    These files have no `ctol`, gradients, simulations or whole numbers, and their histories have no
    points.
    """
    content = json.loads(told)
    judgement = "success", "certified", "message"
    unknown = "ctol", "within_ctol", "constraint_scales", "njev_upper", "njev_lower", "simulations"
    unknown += "repeats", "labels", "stance", "tie_tol", "F_optimistic", "F_pessimistic", "ties"
    for name in (*judgement, *unknown):
        content.pop(name, None)
    for row in content["history"]["generations"]:
        for name in ("x", "y"):
            row.pop(name, None)
    return content


@pytest.mark.parametrize("folder", sorted(FORMATS.iterdir()), ids=lambda folder: folder.name)
def test_files_of_every_format_are_resumed_or_refused_with_a_reason(
    folder: Path, tmp_path: Path, figure
) -> None:
    stored = json.loads((folder / "expected.json").read_text())
    shutil.copytree(folder, tmp_path / "run")
    read = bilevo.load(tmp_path / "run"), bilevo.Result.load(folder / "result.json")
    assert numbers(course(read[0])) == numbers(stored["halfway"])
    assert numbers(course(read[1])) == numbers(stored["end"])
    for result in read:  # a success of these files had no certificate
        assert result.ctol == (0.0, 0.0) and result.feasible == (result.violation == 0)
        assert result.njev == 0
        assert not result.success and "not certified: bilevo.verify checks it" in result.message
    try:
        assert numbers(course(run(tmp_path / "run", 128))) == numbers(stored["end"])
    except bilevo.RunMismatch as error:  # other machines and libraries may round otherwise
        assert "took another course" in str(error)
    figure(17, 1, "formats: journal, snapshot and result")


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.iterdir()), ids=lambda path: path.stem)
def test_snapshots_are_read_after_classes_were_moved_and_renamed(path: Path, figure) -> None:
    """The files were written before bilevo.run.old_names had its line for their classes."""
    algorithm = get_method(path.stem)
    spec = Driven(lambda level, x, y: None, 2, 3).spec()
    if not algorithm.followers.include(Followers.FUNCTION) or path.stem == "nested-cma-es":
        spec = replace(spec, step_cost=1)  # these were written with a solver
    first = _first_state(algorithm, spec)
    state, position = snapshot.read(path, snapshot.StateKind.of(algorithm.State, first))
    assert type(state) is algorithm.State and position.offset > 0 and state.executions.size
    figure(17, 1, "formats: journal, snapshot and result")


def make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    directory.SNAPSHOT_AFTER = 0.0
    run(folder, 100)
    halfway = course(bilevo.load(folder))
    ended = run(None, 128)
    ended.save(folder / "result.json")
    (folder / "lock").unlink()
    stored = {"halfway": halfway, "end": course(ended)}
    (folder / "expected.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    make(FORMATS / "1")
