"""Functions that round inside: the user is told, and no plateau is taken for an answer."""

import math
import warnings

import numpy as np
import pytest

import bilevo
from bilevo import Problem
from bilevo.run.plateaus import PLACES, REMEDY, has_steps


def rounded_y() -> Problem:
    return Problem(
        lambda x, y: (x[0] - 7.3) ** 2 + 0.7 * (round(y[0]) - 12) ** 2,
        lambda x, y: (round(y[0]) - 1.7 * x[0]) ** 2 + 0.1 * round(y[0]),
        [(0, 20)],
        [(0, 30)],
    )


def rounded_x() -> Problem:
    return Problem(
        lambda x, y: (round(x[0]) - 6.4) ** 2 + (y[0] - 2) ** 2,
        lambda x, y: (y[0] - 0.4 * round(x[0])) ** 2,
        [(0, 20)],
        [(0, 10)],
    )


def rounded_x_in_f_only() -> Problem:
    return Problem(
        lambda x, y: (y[0] - 3.3) ** 2,
        lambda x, y: (y[0] - 0.7 * round(x[0])) ** 2,
        [(0, 20)],
        [(0, 10)],
    )


def partly_rounded() -> Problem:
    """Only one of the follower's variables is rounded, and one of the others is fixed."""
    return Problem(
        lambda x, y: (x[0] - 2) ** 2 + 4 * math.floor(y[2]) + (y[1] - 1) ** 2,
        lambda x, y: (math.floor(y[2]) - 2 * x[0]) ** 2 + (y[1] - x[0]) ** 2,
        [(0, 5)],
        [(1, 1), (0, 5), (0, 9)],
    )


def smooth() -> Problem:
    """F does not depend on x at all, and f is level far from the answer."""
    return Problem(
        lambda x, y: (y[0] - 1) ** 2,
        lambda x, y: -math.exp(-((y[0] - x[0]) ** 2)),
        [(-2, 2)],
        [(-2, 2)],
    )


ROUNDING = [
    (rounded_y, "f changes in steps along y[0], as"),
    (rounded_x, "F changes in steps along x[0], and f changes in steps along x[0], as"),
    (rounded_x_in_f_only, "f changes in steps along x[0], as"),
    (partly_rounded, "f changes in steps along y[2], as"),
]


@pytest.mark.parametrize(("make", "what"), ROUNDING)
def test_a_user_who_rounds_is_warned_and_the_run_is_no_success(make, what: str) -> None:
    with pytest.warns(UserWarning, match="x_integrality and y_integrality") as told:
        result = bilevo.minimize(make(), max_evals=1000)
    assert len(told) == 1 and str(told[0].message).startswith(what)
    assert not result.success and not result.certified
    assert what in result.message


@pytest.mark.parametrize(("make", "what"), ROUNDING)
def test_verify_does_not_confirm_a_plateau(make, what: str) -> None:
    problem = make()
    result = bilevo.minimize(problem, method="drc-cma-es", max_evals=500)
    certificate = bilevo.verify(problem, result, effort="low")
    assert not certificate.confirmed and what in certificate.message
    assert not result.success


def test_a_run_that_settles_on_a_plateau_is_no_success() -> None:
    with pytest.warns(UserWarning, match="in steps along x"):
        result = bilevo.minimize(rounded_x())
    assert result.status == "stagnation" and not result.success


def test_smooth_functions_are_not_taken_for_rounded_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bilevo.minimize(smooth(), max_evals=3000)
        assert bilevo.verify(smooth(), result).confirmed
    assert result.certified


def test_declared_whole_numbers_are_no_plateaus() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bilevo.minimize(
            lambda x, y: (x[0] - 7.3) ** 2 + 0.7 * (y[0] - 12) ** 2,
            lambda x, y: (y[0] - 1.7 * x[0]) ** 2 + 0.1 * y[0],
            [(0, 20)],
            [(0, 30)],
            y_integrality=1,
            max_evals=500,
        )
    assert REMEDY not in result.message


def test_a_resumed_run_remembers_that_functions_round(tmp_path) -> None:
    for limit in (600, 1000):
        with pytest.warns(UserWarning):
            part = bilevo.minimize(rounded_y(), run_dir=tmp_path, max_evals=limit)
    with pytest.warns(UserWarning):
        whole = bilevo.minimize(rounded_y(), max_evals=1000)
    assert (part.x == whole.x).all() and part.nfev == whole.nfev
    assert part.message == whole.message and REMEDY in part.message


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (np.round, True),
        (lambda t: np.floor(30 * t), True),
        (lambda t: t * t, False),
        (np.ones_like, False),
        (lambda t: np.maximum(t, 0.5), False),
        (lambda t: 1e12 + 1e-3 * np.round(9 * t), False),  # a slope would be lost in rounding
        (lambda t: np.where(t > 0.6, np.nan, 1.0), False),
    ],
)
def test_steps_are_told_from_slopes_and_constants(function, expected: bool) -> None:
    assert has_steps(function(PLACES), function(PLACES + 1e-4)) is expected


def test_a_case_that_f_distinguishes_by_x_is_no_rounding() -> None:
    one_jump = np.where(PLACES < 0.5, 1.0, 2.0)
    assert has_steps(one_jump, one_jump)
    assert not has_steps(one_jump, one_jump, jumps=2)
    bilevo.minimize(
        lambda x, y: (x[0] - 0.3) ** 2 + y[0] ** 2,
        lambda x, y: (y[0] - (0.2 if x[0] < 0.5 else 0.7)) ** 2,
        [(0, 1)],
        [(0, 1)],
        max_evals=600,
    )
