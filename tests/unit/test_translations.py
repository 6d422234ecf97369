"""Translations of requests give back what was asked for, from fewer evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from bilevo import Follower, Problem
from bilevo.core.request import Level
from bilevo.run.batches import Batch, Evaluated, Saved
from bilevo.run.evaluator import Evaluator
from bilevo.run.packing import Packing
from bilevo.run.repeats import Repeats
from bilevo.run.simulations import Simulations
from bilevo.run.translation import Translation, translations_for

X, Y = np.array([[1.0], [2.0], [1.0], [1.0]]), np.array([[0.5], [0.5], [0.25], [0.5]])


def rule(x, y):
    return float(x[0] - y[0])


def objective(x, y):
    return float(x[0] ** 2 + y[0])


def real(**settings):
    return Problem(objective, objective, [(0, 5)], [(0, 5)], G=rule, **settings)


def joint():
    return Problem.joint(lambda x, y: (objective(x, y), x[0], rule(x, y), 1.0), [(0, 5)], [(0, 5)])


def packed():
    two = [Follower(y_bounds=[(0, 5)]) for _ in range(2)]
    return Problem(
        objective, lambda x, y: [y[0], x[0] * y[1]], [(0, 5)], followers=two, play="independent"
    )


def batch(level=Level.UPPER):
    return Batch(level, X, Y)


def test_each_problem_has_the_translations_that_save_evaluations() -> None:
    def names(problem, gives_parts=True):
        return [type(one).__name__ for one in translations_for(problem, gives_parts)]

    assert names(real()) == []
    assert names(real(x_integrality=1)) == ["Repeats"]
    assert names(joint()) == ["Simulations"]
    assert names(packed()) == ["Packing"] and names(packed(), gives_parts=False) == []


@pytest.mark.parametrize("kind", [Repeats, Simulations])
def test_a_pair_is_evaluated_once_and_answered_in_each_row(kind: type[Translation]) -> None:
    problem = joint() if kind is Simulations else real()
    evaluate, translation = Evaluator(problem), kind()
    plain = evaluate(batch())
    left = translation.reduce(batch())
    assert left.x.tolist() == X[:3].tolist() and not left.x.flags.writeable
    first = translation.complete(evaluate(left))
    again = translation.reduce(batch())
    assert len(again.x) == 0
    for found in (first, translation.complete(Evaluated.nothing())):
        assert found.objective.tobytes() == plain.objective.tobytes()
        assert found.constraints.tobytes() == plain.constraints.tobytes()


def test_a_repeat_is_no_new_row_and_a_failed_pair_is_asked_for_again() -> None:
    repeats = Repeats()
    answers = Evaluated(np.array([1.0, np.nan, 3.0]), np.zeros((3, 1)), {1: "it failed"})
    repeats.reduce(batch())
    found = repeats.complete(answers)
    assert found.new is not None and found.new.tolist() == [0, 1, 2]
    assert found.errors == {1: "it failed"}
    assert repeats.reduce(batch()).x.tolist() == [[2.0]]
    found = repeats.complete(Evaluated(np.array([2.0]), np.zeros((1, 1)), {}))
    assert found.objective.tolist() == [1.0, 2.0, 3.0, 1.0]
    assert found.new is not None and found.new.tolist() == [1]


def test_translations_can_follow_each_other() -> None:
    problem = packed()
    chain: list[Translation] = [Repeats(), Packing(problem)]
    y = np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 3.0], [2.0, 3.0], [1.0, 1.0]])
    asked = left = Batch(Level.LOWER, np.ones((5, 1)), y)
    for one in chain:
        left = one.reduce(left)
    assert len(left.x) == 2
    answers = Evaluator(problem)(left)
    assert answers.parts is not None
    answers.parts[1] = np.nan  # the second point of the two has failed
    answers = answers._replace(errors={1: "it failed"})
    for one in reversed(chain):
        answers = one.complete(answers)
    assert answers.objective[[0, 4]].tolist() == [2.0, 2.0]
    assert np.isnan(answers.objective[1:4]).all() and set(answers.errors) == {1, 2, 3}
    assert len(chain[0].reduce(asked).x) == 3  # those that failed are not remembered


def test_points_that_are_left_out_count_in_different_ways() -> None:
    saved = [kind.saved for kind in (Simulations, Repeats, Packing)]
    assert saved == [Saved.FOR_LEVEL, Saved.AS_REPEATS, Saved.NOT]
