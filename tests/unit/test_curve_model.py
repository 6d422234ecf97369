"""The model of learning curves: what it learns, and what it expects of tasks."""

import numpy as np
import pytest

from bilevo.algorithms.drc_race.curve_model import (
    NEW,
    CurveModel,
    Relations,
    Rows,
    _likelihood,
    expected_improvement,
    first_settings,
    learn_settings,
    scores,
)


def rows_of(value, ages=(0.1, 1.0), tasks: int = 20) -> Rows:
    """Tasks at random places, each seen at some shares of the longest search."""
    x = np.repeat(np.random.default_rng(3).random((tasks, 2)), len(ages), axis=0)
    t = np.tile(ages, tasks)
    z = np.array([value(*row) for row in zip(x, t, strict=True)])
    return Rows(x, t, np.arange(tasks).repeat(len(ages)), (z - z.mean()) / z.std())


def falling(x, t) -> float:
    return float(((x - 0.3) ** 2).sum() + 0.05 / (0.2 + t))


def test_scores_keep_the_order_of_values_and_of_violations() -> None:
    F = np.array([3.0, 1.0, 2.0, -9.0, -9.0, np.inf])
    violation = np.array([0.0, 0.0, 0.0, 2.0, 1.0, np.inf])
    assert scores(F, violation).argsort().tolist() == [1, 2, 0, 4, 3, 5]
    assert np.isfinite(scores(np.full(4, np.inf), np.full(4, np.inf))).all()
    assert scores(np.ones(3), np.zeros(3)).tolist() == [0, 0, 0]


def test_the_slope_of_the_likelihood_is_that_of_its_values() -> None:
    rows, settings = rows_of(falling), first_settings(2) + 0.1
    relations = Relations.within(rows)
    slope = _likelihood(settings, relations, rows.z)[1]
    steps = 1e-6 * np.eye(len(settings))
    ends = [
        [_likelihood(settings + sign * h, relations, rows.z)[0] for sign in (1, -1)] for h in steps
    ]
    assert slope == pytest.approx([(up - down) / 2e-6 for up, down in ends], rel=1e-4, abs=1e-4)


def test_values_at_the_end_are_foreseen() -> None:
    rows = rows_of(falling)
    known = (rows.t < 0.5) | (rows.task >= 5)  # of five tasks only the beginning
    seen = Rows(rows.x[known], rows.t[known], rows.task[known], rows.z[known])
    model = CurveModel(seen, learn_settings(seen, first_settings(2), 30))
    hidden = ~known
    mean, deviation = model.at_end(rows.x[hidden], rows.task[hidden])
    assert mean == pytest.approx(rows.z[hidden], abs=0.2)
    elsewhere = model.at_end(rows.x[hidden] + 0.2, np.full(5, NEW))[1]
    assert (deviation < elsewhere).all()


def test_improvement_is_expected_of_good_means_and_of_doubt() -> None:
    gain = expected_improvement(np.array([0.0, 0.0, 1.0]), np.array([0.1, 1.0, 0.1]), 0.0)
    assert gain[1] > gain[0] > gain[2] >= 0
