"""Exact descents: runs go on until F is least, or say that they do not know."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import bilevo
from bilevo.algorithms.drc_plus import descent
from bilevo.algorithms.drc_plus.exact_descent import go_on_exactly, is_affordable
from bilevo.algorithms.shared.sqp import SearchEnd
from bilevo.core.arrays import FloatArray

CENTRE = np.array([0.7, 2.1, 1.6, -1.6])


def oblique_valley(power: float) -> bilevo.Problem:
    """Make a leader whose curvatures differ by 10^power, in directions between the axes."""
    turned = np.linalg.qr(np.vander([1.0, 2.0, 3.0, 4.0]))[0]
    curvatures = np.logspace(0, power, 4)

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        along = (x - CENTRE) @ turned
        return np.asarray((curvatures * along**2).sum(axis=1) + ((y - x) ** 2).sum(axis=1))

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(((y - x) ** 2).sum(axis=1))

    box = [(-10.0, 10.0)] * 4
    return bilevo.Problem(F, f, box, box, vectorized=True)


def bent_valley(power: float) -> bilevo.Problem:
    """Make Rosenbrock's valley of three variables, with sides as steep as 10^power."""

    def F(x: FloatArray, y: FloatArray) -> FloatArray:
        side = ((x[:, 1:] - x[:, :-1] ** 2) ** 2).sum(axis=1)
        along = ((1 - x[:, :-1]) ** 2).sum(axis=1)
        return np.asarray(10.0**power * side + along + ((y - x) ** 2).sum(axis=1))

    def f(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(((y - x) ** 2).sum(axis=1))

    box = [(-10.0, 10.0)] * 3
    return bilevo.Problem(F, f, box, box, vectorized=True)


def test_a_long_valley_between_the_axes_is_followed_to_its_end() -> None:
    for seed in (1, 2):
        assert bilevo.minimize(oblique_valley(6), rng=seed).F < 1e-5


def test_a_bent_valley_is_followed_to_its_end() -> None:
    results = [bilevo.minimize(bent_valley(3), rng=seed) for seed in (2, 3)]
    assert all(result.F < 1e-5 and result.success for result in results)


def test_with_constraints_a_usual_descent_is_the_last_one_before_the_end() -> None:
    state: Any = SimpleNamespace(constrained=True, total=10**9)
    spec: Any = SimpleNamespace(m=2, n=2)
    end = SearchEnd(np.zeros(2), 1.0, 0.0, 10, converged=False)
    further = go_on_exactly(spec, state, cast(Any, None), end)
    with pytest.raises(StopIteration) as stopped:
        next(further)
    assert stopped.value.value is end


def test_what_a_hessian_costs_is_measured_where_all_variables_differ() -> None:
    asked: list[FloatArray] = []
    spec: Any = SimpleNamespace(m=3, n=2)
    state: Any = SimpleNamespace(total=10_000)

    def solved(x: FloatArray) -> Any:
        asked.append(x)
        state.total += 500
        yield from ()

    phi: Any = SimpleNamespace(state=state, follower=SimpleNamespace(spec=spec), solved=solved)
    centre = np.array([0.2, 0.5, 0.9])
    test = is_affordable(phi, centre)
    with pytest.raises(StopIteration) as stopped:
        next(test)
    assert stopped.value.value is False
    assert len(asked) == 1 and (asked[0] != centre).all()


def test_a_descent_that_has_left_its_elite_is_told_from_one_that_ended_there() -> None:
    elite: Any = SimpleNamespace(x=np.array([0.3, 0.3]), lower_violation=0.0)
    first: Any = SimpleNamespace(pair=SimpleNamespace(x=np.array([0.1, 0.1])))
    step: Any = SimpleNamespace(pair=elite)
    state: Any = SimpleNamespace(the_elite=elite, total=0, known=SimpleNamespace(rough=False))
    spec: Any = SimpleNamespace(
        target=None, budget=SimpleNamespace(upper_max=10, lower_window=10), m=2
    )
    follower: Any = SimpleNamespace(spec=spec)
    elsewhere: Any = SimpleNamespace(point=np.array([0.3, 0.9]))
    there: Any = SimpleNamespace(point=elite.x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descent, "reached", lambda spec, pair: False)
        phi = descent.Phi(state, follower)
        assert not phi.has_left_elite(elsewhere)  # another search has met the elite
        phi.steps = [step, first]
        assert not phi.has_left_elite(elsewhere)  # it began there
        phi.steps = [first, step]
        assert phi.has_left_elite(elsewhere) and not phi.has_left_elite(there)
        phi.corrected = step
        assert phi.has_left_elite(there)
        state.total = 1000  # the budget is used up
        assert not phi.has_left_elite(elsewhere)
