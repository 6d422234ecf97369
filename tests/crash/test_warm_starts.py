"""Searches that start near finished ones: the same bits with workers, after cuts, and for others.

The follower `Warm` begins where its neighbour has ended, and the next search begins there. So a run
is the same only if each neighbour is.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import boundaries, course
from solvers import Chain, Chained, Exact, Opaque, Walker, Warm, problem

import bilevo
from bilevo.core.request import ALONE, BadRequest, Step
from bilevo.core.solver import CheckedSolver, Neighbour, takes_neighbours
from bilevo.followers import LinProg, Minimize, Population
from bilevo.run import directory, encoding, stepper
from bilevo.run.journal import JournalFile, RecordKind
from bilevo.run.stepper import Finished


def run(follower: Any, run_dir: Path | None = None, **options: Any) -> bilevo.Result:
    options = {"method": Chain(), "max_evals": 260, "rng": 4} | options
    return bilevo.minimize(problem(follower), run_dir=run_dir, **options)


class WarmOpaque(Opaque, Warm):
    """Its states cannot be stored, so a search is repeated from its start."""


def test_a_search_starts_near_another_one() -> None:
    cold, warm = run(Walker()), run(Warm())
    assert warm.nit > 1.3 * cold.nit  # half of the steps are saved
    assert warm.F != cold.F


@pytest.mark.rest
@pytest.mark.parametrize("kind", [Warm, WarmOpaque])
@pytest.mark.parametrize("kept", ["all", "snapshot", "journal"])
def test_a_cut_anywhere_resumes_to_the_same_result(
    kind: Any, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials
) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    monkeypatch.setattr(stepper, "STORED_AFTER", 0.0)
    whole = run(kind(), tmp_path / "whole")
    assert course(whole) == course(run(kind()))
    content = (tmp_path / "whole" / "journal.bin").read_bytes()
    for cut in boundaries(tmp_path / "whole" / "journal.bin")[3 :: trials(41, 2)]:
        here = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", here)
        if kept != "all":
            shutil.rmtree(here / "followers", ignore_errors=True)
        if kept == "journal":
            (here / "snapshot.npz").unlink()
        (here / "journal.bin").write_bytes(content[:cut])
        assert course(run(kind(), here)) == course(whole), cut
        shutil.rmtree(here)


def test_a_run_goes_on_from_a_snapshot_with_neighbours_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    whole = run(Warm(), max_evals=260)
    run(Warm(), tmp_path, max_evals=140)
    assert (tmp_path / "snapshot.npz").exists()
    assert course(run(Warm(), tmp_path, max_evals=260)) == course(whole)


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_workers_give_the_same_bits() -> None:
    assert course(run(Warm(), workers=2)) == course(run(Warm()))


def test_failures_give_no_neighbour_and_the_run_goes_on(tmp_path: Path) -> None:
    whole = run(Failing(), on_failure="worst")
    assert whole.failures > 3 and whole.nit > 10
    assert course(run(Failing(), tmp_path, on_failure="worst", max_evals=130)) != course(whole)
    assert course(run(Failing(), tmp_path, on_failure="worst")) == course(whole)


class Failing(Warm):
    def advance(self, state: Any) -> Any:
        if state.x[0] > 2:
            raise ValueError("too large")
        return super().advance(state)


def test_journals_name_neighbours_and_leave_them_out_where_there_are_none(tmp_path: Path) -> None:
    run(Warm(), tmp_path / "warm")
    steps = [
        json.loads(record.payload)
        for record, _ in JournalFile(tmp_path / "warm" / "journal.bin").records()
        if record.kind is RecordKind.STEP
    ]
    assert {"near" in step for step in steps} == {True, False}
    assert all(("hint" in step) == step["done"] for step in steps)
    bilevo.minimize(
        problem(Walker()), run_dir=tmp_path / "cold", method="drc-race", max_evals=60, rng=1
    )
    for record, _ in JournalFile(tmp_path / "cold" / "journal.bin").records():
        if record.kind is RecordKind.STEP:
            assert not {"near", "hint"} & json.loads(record.payload).keys()


def test_an_answer_without_a_hint_is_read() -> None:
    old = {"y": [1.0], "f": 2.0, "violation": 0.0, "done": True, "cost": 1, "error": None}
    assert encoding.step_outcome(old).hint is None


class ByKeywords(Exact):
    def start(self, x: Any, rng: Any, **more: Any) -> Any:
        return super().start(x, rng)


def test_the_signature_of_start_decides() -> None:
    assert takes_neighbours(Warm()) and takes_neighbours(ByKeywords())
    assert takes_neighbours(Minimize())
    for cold in (Walker(), Exact(), Population(), LinProg(lambda x: {"c": [1.0]})):
        assert not takes_neighbours(cold)
    assert run(ByKeywords(), max_evals=30).nit > 5


def test_a_neighbour_must_be_done() -> None:
    with pytest.raises(BadRequest, match="names task 7, which is not done"):
        Finished(None).get(7)
    with pytest.raises(BadRequest, match="no task that is done"):
        run(Warm(), method=TooEarly())
    with pytest.raises(BadRequest, match="whole numbers from -1 on"):
        run(Warm(), method=TooEarly(near=-3))


@dataclass(frozen=True)
class TooEarly(Chain):
    near: int = 99

    def init(self, spec: Any) -> Any:
        x = np.full((1, spec.m), 0.5)
        yield Step(np.array([0]), np.array([0]), x, np.array([self.near]))
        raise AssertionError("unreachable")


@dataclass(frozen=True)
class Fickle(Chain):
    """Names another neighbour in the second step of a task."""

    def generation(self, spec: Any, state: Chained) -> Any:
        x, task = np.full((1, spec.m), 0.5), np.array([1])
        yield Step(task, np.array([0]), x, np.array([0]))
        yield Step(task, np.array([1]), x, np.array([ALONE]))
        raise AssertionError("unreachable")


def test_a_search_keeps_its_neighbour() -> None:
    with pytest.raises(BadRequest, match=r"Step\.near is -1 for task 1, and was 0"):
        run(Warm(), method=Fickle())


class BadHint(Exact):
    def hint(self, state: Any) -> Any:
        return [[1.0, 2.0]]


def test_a_hint_is_a_vector() -> None:
    with pytest.raises(bilevo.core.values.BadValue, match=r"hint must be an array \(h,\)"):
        run(BadHint())


def test_minimize_starts_at_the_neighbours_answer() -> None:
    given = problem(Minimize(evaluations=1), known=True)
    solver = CheckedSolver(given.follower, given.y_bounds.lower, given.y_bounds.upper)
    near = Neighbour(np.array([1.0, 1.0]), np.array([0.5, -2.5]), 0.0)
    state = solver.start(np.array([1.0, 1.2]), np.random.default_rng(1), near)
    _, outcome = solver.advance(state, True)
    np.testing.assert_allclose(outcome.y, near.y, atol=1e-12)
