"""drc-race: leaders compete for the steps of a follower that is a solver of the user's."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import fingerprint

import bilevo
from bilevo import Problem, minimize


@dataclass
class Search:
    x: Any
    steps: int = 0


class Told:
    """Answers with the number that a function has for a leader and a number of steps."""

    def __init__(self, value: Any, steps: int = 1) -> None:
        self.value, self.steps = value, steps
        self.taken: dict[tuple[float, ...], int] = {}

    def start(self, x: Any, rng: np.random.Generator) -> Search:
        return Search(np.array(x))

    def advance(self, state: Search) -> Search:
        state.steps += 1
        self.taken[tuple(state.x)] = state.steps
        return state

    def best(self, state: Search) -> tuple[Any, float, float]:
        return np.array([self.value(state.x, state.steps)]), -state.steps, 0.0

    def done(self, state: Search) -> bool:
        return state.steps >= self.steps


def problem(follower: Told, x_bounds: list[tuple[float, float]]) -> Problem:
    return Problem(lambda x, y: y[0], None, x_bounds, [(-1e6, 1e6)], follower=follower)


def race(follower: Told, x_bounds: list[tuple[float, float]], **options: Any) -> bilevo.Result:
    return minimize(problem(follower, x_bounds), method="drc-race", **options)


def income(x: Any, steps: int) -> float:
    """Return the profit of an offer: it rises to a jump at 30, and again to a lower top at 40."""
    return -9330 * (x[0] - 10) / 20 if x[0] <= 30 else -8100 * (x[0] - 10) / 30


def curve(x: Any, steps: int) -> float:
    """A loss that falls slowly, to a value that depends on x."""
    return float(((x - 0.3) ** 2).sum() + 0.2 / steps)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_optimum_at_a_jump_is_found_beside_a_lower_one(seed: int) -> None:
    result = race(Told(income), [(10, 40)], rng=seed)
    assert pytest.approx(-9330, rel=1e-6) == result.F
    assert result.status == "stagnation" and result.nfev_lower < 1200


def test_a_wide_valley_does_not_hide_a_deeper_one() -> None:
    def value(x: Any, steps: int) -> float:
        return float(min(4 * ((x - 0.25) ** 2).sum(), 2 * ((x - 0.8) ** 2).sum() + 0.05))

    result = race(Told(value), [(0, 1)] * 3, rng=1)
    assert result.F < 1e-10 and result.x == pytest.approx(0.25, abs=1e-5)


def test_most_followers_are_left_behind_and_the_best_ones_finished() -> None:
    follower = Told(curve, steps=40)
    result = race(follower, [(0, 1)] * 2, rng=1, max_evals_lower=800)
    ages = np.array(list(follower.taken.values()))
    assert follower.taken[tuple(result.x)] == 40 and result.F < 0.01
    assert (ages <= 3).mean() > 0.4 and (ages == 40).sum() < 15
    assert len(ages) > 3 * 800 / 40


def test_a_follower_that_flatters_before_its_end_is_not_believed() -> None:
    def value(x: Any, steps: int) -> float:
        return float((x[0] - 0.3) ** 2) + (1.0 if steps == 6 else -5.0)

    result = race(Told(value, steps=6), [(0, 1)], rng=1, max_evals_lower=600)
    assert result.F >= 1.0 and result.x == pytest.approx(0.3, abs=0.05)


def test_the_best_one_under_way_is_the_answer_until_one_is_finished() -> None:
    result = race(Told(curve, steps=900), [(0, 1)] * 2, rng=1, max_evals_lower=500)
    assert result.status == "max_evals" and result.F < 0.1


def test_a_leader_to_start_from_is_tried_to_its_end() -> None:
    follower = Told(curve, steps=20)
    race(follower, [(0, 1)] * 2, x0=[0.125, 0.5], max_evals_lower=60)
    assert follower.taken[0.125, 0.5] == 20


def test_constraints_of_the_leader_are_kept() -> None:
    bounded = Problem(
        lambda x, y: y[0],
        None,
        [(0, 1)] * 2,
        [(-9, 9)],
        G=lambda x, y: [0.6 - x[0]],
        follower=Told(lambda x, steps: float((x**2).sum())),
    )
    result = minimize(bounded, method="drc-race", rng=1)
    assert result.feasible and pytest.approx(0.36, abs=1e-5) == result.F


@pytest.mark.rest
@pytest.mark.parametrize("steps", [1, 12])
def test_a_run_taken_up_again_is_the_same_to_the_bit(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)
    whole = race(Told(curve, steps), [(0, 1)], max_evals_lower=400)
    for limit in (30, 90, 250):
        folder = tmp_path / str(limit)
        race(Told(curve, steps), [(0, 1)], max_evals_lower=limit, run_dir=folder)
        again = race(Told(curve, steps), [(0, 1)], max_evals_lower=400, run_dir=folder)
        assert fingerprint(again) == fingerprint(whole)


def test_an_answer_that_a_second_start_agrees_with_is_a_success() -> None:
    result = race(Told(curve, steps=5), [(0, 1)], rng=1, target=0.05)
    assert result.success and result.certified and result.status == "target"
    made = result.certificate
    assert made is not None and made.by == "drc-race" and made.follower_gap == 0
    assert (made.searches, made.agreeing, made.nfev_lower) == (1, 1, 5)


class Flattering(Told):
    """The first start at a place ends at an answer that is worse for the follower."""

    def __init__(self, value: Any, gain: float, where: Any = lambda x: True) -> None:
        super().__init__(value)
        self.gain, self.where = gain, where
        self.starts: dict[float, int] = {}

    def start(self, x: Any, rng: np.random.Generator) -> Search:
        self.starts[x[0]] = self.starts.get(x[0], 0) + 1
        return Search(np.array([x[0], self.where(x[0]) and self.starts[x[0]] == 1]))

    def best(self, state: Search) -> tuple[Any, float, float]:
        wrong = state.x[1]
        return np.array([self.value(state.x, 1) - wrong * self.gain]), float(wrong), 0.0


def test_a_run_goes_on_when_the_answer_at_its_target_is_refuted() -> None:
    follower = Flattering(lambda x, _: (x[0] - 0.3) ** 2, 5.0, lambda x: x == 0.875)
    result = race(follower, [(0, 1)], rng=1, x0=[0.875], target=1e-4)
    assert follower.starts[0.875] == 3  # refuted by the second, which the third agrees with
    assert result.success and 0 <= result.F <= 1e-4 + 1e-6
    assert result.certificate is not None and result.certificate.searches == 1


@pytest.mark.parametrize(("gain", "searches"), [(1e-5, 1), (0.02, 2)])
def test_a_refuted_answer_is_replaced_before_a_settled_run_ends(gain: float, searches: int) -> None:
    """Where y is almost the same, the answer is only made more exact."""
    result = race(Flattering(income, gain), [(10, 40)], rng=1)
    assert result.status == "stagnation" and result.success
    assert income(result.x, 1) == result.F == pytest.approx(-9330, rel=1e-5) and result.f == 0
    made = result.certificate
    assert made is not None and made.searches == made.agreeing == searches


class Random(Told):
    """Every start ends at another answer."""

    def start(self, x: Any, rng: np.random.Generator) -> Search:
        return Search(np.array([x[0], rng.random()]))

    def best(self, state: Search) -> tuple[Any, float, float]:
        return state.x[1:], state.x[1], 0.0


def test_starts_that_disagree_are_no_certificate() -> None:
    result = race(Random(curve), [(0, 1)], rng=1, target=0.2)
    assert result.status == "target" and result.feasible and not result.success
    assert "not certified: starts of the solver disagree, " in result.message
    made = result.certificate
    assert made is not None and made.searches == 3 and made.agreeing <= 1
    assert made.nfev_lower == 3 and not made.confirmed


def test_a_solver_that_is_never_done_is_no_success() -> None:
    result = race(Told(curve, steps=10**6), [(0, 1)], rng=1, target=0.5, max_evals=50_000)
    assert result.status == "target" and result.feasible and not result.success
    assert result.message.endswith("its follower's solver was not done")


def test_a_solver_that_was_done_goes_before_one_that_was_cut_off() -> None:
    """Right of 0.5 the solver cycles among answers that the leader likes."""

    class Cycling(Told):
        def done(self, state: Search) -> bool:
            return state.x[0] <= 0.5 and super().done(state)

    def value(x: Any, steps: int) -> float:
        return float((x[0] - 0.3) ** 2) if x[0] <= 0.5 else -1.0

    budget = bilevo.Budget(lower_max=20)
    result = race(Cycling(value, steps=2), [(0, 1)], rng=1, budget=budget, max_evals=3000)
    assert result.x == pytest.approx(0.3, abs=0.01) and pytest.approx(0, abs=1e-4) == result.F


def test_a_run_of_failures_ends() -> None:
    result = race(Told(lambda x, steps: math.nan), [(0, 1)], rng=1, max_evals_lower=3000)
    assert not result.success


def test_a_problem_without_a_follower_is_refused() -> None:
    with pytest.raises(ValueError, match="drc-race is for problems with a solver"):
        minimize(bilevo.problems.get("smd1"), method="drc-race")
