"""Algorithms of users: the documented examples, tested as their authors would test them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bilevo
from bilevo.core.algorithm import Algorithm
from bilevo.core.budget import StopReason
from bilevo.core.request import Evaluate, Incumbent, Level
from bilevo.core.stop_rules import Progress
from bilevo.run import snapshot
from bilevo.run.directory import snapshots_after
from bilevo.testing import AlgorithmTests
from bilevo.testing.conformance import Watched, fingerprint
from examples.own_algorithm import StepByStep

ROOT = Path(__file__).parents[2]


class TestStepByStep(AlgorithmTests):
    def algorithm(self) -> StepByStep:
        return StepByStep()


KILLED = """
import sys, time
from bilevo.run.directory import snapshots_after
from bilevo.testing.conformance import Watched
from examples.own_algorithm import StepByStep
import bilevo

def told(result):
    if result.nit == 5:
        print("here", flush=True)
        time.sleep(600)

with snapshots_after(0.0):
    bilevo.minimize(
        bilevo.problems.get("smd2"), method=Watched(StepByStep()), run_dir=sys.argv[1],
        max_evals=6000, callback=told,
    )
"""


def test_an_example_that_was_killed_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    """Its first state takes evaluations, and its states hold a named tuple."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        os.kill(process.pid, signal.SIGKILL)
    smd2, options = bilevo.problems.get("smd2"), {"max_evals": 6000}
    whole = bilevo.minimize(smd2, method=Watched(StepByStep()), **options)
    watched = Watched(StepByStep())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = bilevo.minimize(smd2, method=watched, run_dir=tmp_path / "run", **options)
    assert fingerprint(resumed) == fingerprint(whole)
    assert whole.nit > 10 and watched.begun <= whole.nit - 5 + 2  # one is tried out, one begun


@dataclass
class Holding:
    """A state that holds something: of a type that is declared, or that is not."""

    best: Incumbent
    held: Any = None
    declared: snapshot.Position | None = None
    generation: int = 0
    stop: StopReason | None = None
    executions: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    survived: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


@dataclass(frozen=True)
class Holds(Algorithm[Holding]):
    """Evaluates the middle of the box, and keeps something in its state."""

    what: str = "nothing"

    name = "holds"
    revision = 1
    State = Holding

    def init(self, spec: Any) -> Any:
        x, y = np.full((1, spec.m), 0.5), np.full((1, spec.n), 0.5)
        below = yield Evaluate(Level.LOWER, x, y)
        above = yield Evaluate(Level.UPPER, x, y)
        best = Incumbent(x[0], y[0], above.objective[0], below.objective[0], above.violation[0])
        yield best
        place = snapshot.Position(3, 4)
        held = {"object": object(), "undeclared": Progress(1.0, 0.0)}.get(self.what)
        return Holding(best, held, place if self.what == "declared" else None)

    def generation(self, spec: Any, state: Holding) -> Any:
        yield Evaluate(Level.LOWER, state.best.x[None], state.best.y[None])
        state.generation += 1
        state.stop = StopReason.BUDGET if state.generation == 6 else None
        return state


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("object", "a state of holds cannot be stored: state.held holds <object"),
        ("undeclared", "state.held holds a Progress, which its type hints do not declare"),
    ],
)
def test_a_state_that_cannot_be_stored_is_told_once_with_the_reason(
    what: str, told: str, tmp_path: Path
) -> None:
    with snapshots_after(0.0), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"method": Holds(what), "run_dir": tmp_path}
        result = bilevo.minimize(bilevo.problems.get("smd1"), **options)
    assert [told in str(warning.message) for warning in caught] == [True]
    assert caught[0].filename == __file__
    assert result.nit == 6 and not (tmp_path / "snapshot.npz").exists()


def test_a_short_run_tells_too_that_its_states_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"state\.held holds <object"):
        bilevo.minimize(bilevo.problems.get("smd1"), method=Holds("object"), run_dir=tmp_path)


def test_named_tuples_that_are_declared_come_back(tmp_path: Path) -> None:
    def stop(result: bilevo.Result) -> None:
        if result.nit == 3:
            raise StopIteration

    watched = [Watched(Holds("declared")) for _ in range(2)]
    with snapshots_after(0.0):
        for method, callback in zip(watched, (stop, None), strict=True):
            options = {"method": method, "run_dir": tmp_path, "callback": callback}
            result = bilevo.minimize(bilevo.problems.get("smd1"), **options)
    assert result.nit == 6 and watched[1].begun == 4  # of which one was a trial


@pytest.mark.parametrize(
    ("member", "value"),
    [("name", 3), ("revision", "1"), ("State", None), ("followers", "function"), ("budget", 3)],
)
def test_an_algorithm_that_lacks_a_member_is_refused(member: str, value: Any) -> None:
    method = type("Lacking", (Holds,), {member: value})()
    with pytest.raises(ValueError, match=rf"Lacking\.{member} must be .* got "):
        bilevo.minimize(bilevo.problems.get("smd1"), method=method)
