"""trust-region: models of F, regions inside the box, jumps, plateaus, races and warm starts."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st
from solvers import Walker, Warm
from solvers import problem as walking

import bilevo
from bilevo import Problem, minimize
from bilevo.algorithms.trust_region.region import (
    SMALL_RADIUS,
    Known,
    Region,
    Trial,
    independent_directions,
)
from bilevo.algorithms.trust_region.surface import Seen, Surface, first_settings, lowest
from bilevo.algorithms.trust_region.swaps import promising_swap
from bilevo.algorithms.trust_region.tasks import Bar
from bilevo.run import directory


class Told:
    """Answers after some steps with the number that a function has for a leader."""

    def __init__(self, value: Any, steps: int = 1, luck: float = 0.0) -> None:
        self.value, self.steps, self.luck = value, steps, luck
        self.taken: dict[tuple[float, ...], int] = {}

    def start(self, x: Any, rng: np.random.Generator) -> dict[str, Any]:
        return {"x": np.array(x), "steps": 0, "luck": self.luck * float(rng.random())}

    def advance(self, state: Any) -> Any:
        state["steps"] += 1
        self.taken[tuple(state["x"])] = state["steps"]
        return state

    def best(self, state: Any) -> tuple[Any, float, float]:
        value = self.value(state["x"], state["steps"]) + state["luck"]
        return np.array([value]), -state["steps"], 0.0

    def done(self, state: Any) -> bool:
        return bool(state["steps"] >= self.steps)


def problem(follower: Told, m: int, **options: Any) -> Problem:
    return Problem(
        lambda x, y: y[0], None, [(0, 1)] * m, [(-1e6, 1e6)], follower=follower, **options
    )


def run(follower: Told, m: int, **options: Any) -> bilevo.Result:
    return minimize(problem(follower, m), method="trust-region", **{"rng": 1, **options})


def bowl(x: Any, steps: int) -> float:
    return float(((x - 0.3) ** 2).sum() + 0.3 * (x[0] - 0.3) * (x[-1] - 0.3))


def seen(m: int, count: int, values: Any) -> Seen:
    x = np.random.default_rng([m, count]).random((count, m))
    return Seen(x, np.array([values(row) for row in x]), np.zeros(count))


@pytest.mark.parametrize("m", [1, 3, 8])
def test_a_model_passes_through_the_values_that_it_has_seen(m: int) -> None:
    known = seen(m, 2 * m + 3, lambda x: [math.sin(3 * x.sum()), x[0] - 0.5])
    surface = Surface(known, known.x[0], 0.4, first_settings(m), learn=12)
    found = np.array([surface.at(x)[0] for x in known.x])
    np.testing.assert_allclose(found, known.values, atol=1e-4)


def test_a_model_believes_uncertain_values_less() -> None:
    known = seen(2, 9, lambda x: [float(x.sum())])
    known.values[4] += 5.0
    known.errors[4] = 25.0
    surface = Surface(known, known.x[0], 0.4, first_settings(2))
    assert abs(surface.at(known.x[4])[0][0] - known.x[4].sum()) < 2.0
    assert abs(surface.at(known.x[5])[0][0] - known.x[5].sum()) < 0.1


def test_slopes_are_derivatives_of_values() -> None:
    known = seen(3, 12, lambda x: [math.exp(x[0]) + x[1] * x[2], x[2] ** 2])
    surface, x, h = Surface(known, known.x[0], 0.3, first_settings(3), learn=5), known.x[3], 1e-6
    for axis in range(3):
        step = h * np.eye(3)[axis]
        rise = (surface.at(x + step)[0] - surface.at(x - step)[0]) / (2 * h)
        np.testing.assert_allclose(surface.at(x)[1][axis], rise, rtol=1e-4, atol=1e-5)


def test_the_lowest_point_of_a_parabola_is_found_and_constraints_are_met() -> None:
    free = seen(2, 20, lambda x: [float(((x - 0.6) ** 2).sum())])
    box = np.zeros(2), np.ones(2)
    surface = Surface(free, np.full(2, 0.5), 0.5, first_settings(2), learn=12)
    np.testing.assert_allclose(lowest(surface, np.full(2, 0.5), *box), 0.6, atol=0.01)
    bound = seen(2, 20, lambda x: [float(((x - 0.6) ** 2).sum()), x[0] - 0.4])
    surface = Surface(bound, np.full(2, 0.3), 0.5, first_settings(2), learn=12)
    np.testing.assert_allclose(lowest(surface, np.full(2, 0.3), *box), [0.4, 0.6], atol=0.02)


def test_a_small_region_is_searched_exactly_between_two_constraints() -> None:
    centre, radius = np.array([0.4, 0.3]), 1e-5

    def values(x: Any) -> list[float]:
        return [-3 * x[0] - 2 * x[1], x[0] + x[1] - 0.70001, x[0] - x[1] - 0.1]

    x = centre + radius * np.random.default_rng(5).uniform(-1, 1, (12, 2))
    x[0] = centre
    known = Seen(x, np.array([values(row) for row in x]), np.zeros(12))
    surface = Surface(known, centre, radius, first_settings(2), learn=12)
    found = lowest(surface, centre, centre - radius, centre + radius)
    np.testing.assert_allclose((found - centre) / radius, [0.5, 0.5], atol=0.01)


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    radius=st.floats(1e-4, 0.5),
    corner=st.booleans(),
)
def test_trials_stay_in_the_box_and_in_the_region(
    m: int, seed: int, radius: float, corner: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((m + 4, m))
    if corner:
        x[0] = rng.integers(0, 2, m)
    known = [Known(row, float(rng.normal()), 0.0, np.zeros(1), i) for i, row in enumerate(x)]
    region = Region(known[0], first_settings(m), radius)
    for number in range(4):
        trial = region.trial(known, 1e-9)
        if trial is None:
            return
        assert (trial.x >= 0).all() and (trial.x <= 1).all()
        assert np.abs(trial.x - region.centre.x).max() <= region.radius * (1 + 1e-9)
        value = float(rng.normal())
        known.append(Known(trial.x, value, 0.0, np.zeros(1), len(x) + number))
        region.note(trial, known[-1])


def test_directions_that_steps_show_are_independent() -> None:
    steps = np.array([[1.0, 0, 0], [0.9, 0.01, 0], [0, 0, 0.5]])
    basis = independent_directions(steps)
    assert len(basis) == 2
    np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-12)


def test_a_region_grows_after_good_steps_and_doubts_itself_after_bad_ones() -> None:
    centre = Known(np.full(2, 0.5), 1.0, 0.0, np.zeros(1), 0)
    region = Region(centre, first_settings(2), 0.1)
    region.note(Trial(np.full(2, 0.6), 0.5), Known(np.full(2, 0.6), 0.5, 0.0, np.zeros(1), 1))
    assert region.radius == 0.2 and not region.doubtful and region.centre.task == 1
    for number in range(2, 8):
        x = np.full(2, 0.65)
        region.radius = SMALL_RADIUS / 2
        region.note(Trial(x, 0.1), Known(x, 2.0, 0.0, np.zeros(1), number))
    assert region.doubtful and region.rough and region.jumps and region.centre.task == 1


def test_a_smooth_problem_takes_few_leaders() -> None:
    follower = Told(bowl)
    result = run(follower, 6, target=1e-6)
    assert result.status == "target" and len(follower.taken) < 60


def test_of_two_valleys_the_deeper_one_is_found() -> None:
    def value(x: Any, steps: int) -> float:
        return float(min(4 * ((x - 0.25) ** 2).sum(), 2 * ((x - 0.8) ** 2).sum() + 0.05))

    found = [run(Told(value), 2, rng=seed).F for seed in (1, 2, 3)]
    assert sorted(found)[1] < 1e-6


def test_an_optimum_at_a_jump_is_found() -> None:
    def value(x: Any, steps: int) -> float:
        return -9330 * (80 * x[0] - 10) / 20 if 80 * x[0] <= 30 else -8100 * (80 * x[0] - 10) / 30

    result = run(Told(lambda x, steps: min(value(x, steps), 0.0)), 1, max_evals=1000)
    assert result.F < -18_800  # at the bound, beyond the jump at 30 with -9330


def test_an_optimum_on_a_jump_is_found() -> None:
    def value(x: Any, steps: int) -> float:
        return -9330 * (80 * x[0] - 10) / 20 if 80 * x[0] <= 30 else -1000 * x[0]

    result = run(Told(lambda x, steps: min(value(x, steps), 0.0)), 1, max_evals=1000)
    assert 80 * result.x[0] == pytest.approx(30, abs=0.01) and result.F < -9320


@pytest.mark.rest
def test_the_ridge_beside_a_plateau_is_found() -> None:
    def value(x: Any, steps: int) -> float:
        return -8000.0 if x[0] > 0.71 else -8655 * x[0] / 0.71

    results = [run(Told(value), 2, rng=seed, max_evals=1000).F for seed in (1, 2, 3)]
    assert max(results) < -8640


def test_constraints_of_the_leader_are_kept() -> None:
    bounded = problem(Told(lambda x, steps: float((x**2).sum())), 2, G=lambda x, y: [0.6 - x[0]])
    result = minimize(bounded, method="trust-region", rng=1, max_evals=400)
    assert result.feasible and pytest.approx(0.36, abs=1e-4) == result.F


def test_only_a_finished_follower_is_an_answer() -> None:
    def value(x: Any, steps: int) -> float:
        return float((x[0] - 0.3) ** 2) + (1.0 if steps == 6 else -5.0)

    result = run(Told(value, steps=6), 1, max_evals_lower=400)
    assert result.F >= 1.0 and result.x == pytest.approx(0.3, abs=0.01)


def test_followers_of_bad_leaders_are_left_unfinished() -> None:
    follower = Told(lambda x, steps: bowl(x, 1) + 0.5**steps, steps=40)
    run(follower, 3, max_evals_lower=1500)
    ages = np.array(list(follower.taken.values()))
    assert (ages < 40).any() and (ages == 40).any()


def test_a_bar_waits_until_changes_are_small() -> None:
    class Task:
        F = (9.0, 5.0)

    bar = Bar(1.0, 0.5)
    assert not bar.missed(Task())  # type: ignore[arg-type]
    Task.F = (5.0, 4.99)
    assert bar.missed(Task())  # type: ignore[arg-type]


def test_solvers_that_need_luck_are_raced() -> None:
    lucky = Told(lambda x, steps: bowl(x, 1) + 1 / steps, steps=30, luck=0.1)
    raced = run(lucky, 2, max_evals_lower=400)
    ages = np.array(list(lucky.taken.values()))
    assert (ages <= 3).mean() > 0.3 and (ages == 30).any()
    assert len(raced.history[-1].executions) > 1


class Rounds:
    """Two producers who answer each other, one round a step; x is a tax on each unit."""

    costs = np.array([10.0, 20.0])

    def __init__(self, at_random: bool) -> None:
        self.at_random = at_random

    def start(self, x: Any, rng: np.random.Generator) -> dict[str, Any]:
        q = rng.uniform(0, 60, 2) if self.at_random else np.zeros(2)
        return {"tax": float(x[0]), "q": q, "change": math.inf}

    def advance(self, state: Any) -> Any:
        old, q = state["q"], state["q"].copy()
        for i in (0, 1):  # the other one's q is known, and the price is 100 - sum of q - tax
            q[i] = np.clip((100 - state["tax"] - self.costs[i] - q[1 - i]) / 2, 0, 60)
        return {**state, "q": q, "change": float(np.abs(q - old).max())}

    def best(self, state: Any) -> tuple[Any, float, float]:
        return state["q"], state["change"], 0.0

    def done(self, state: Any) -> bool:
        return bool(state["change"] < 1e-8)


def welfare(x: Any, q: Any) -> float:
    total = q.sum()
    profits = (100 - total - x[0] - Rounds.costs) @ q
    return float(-(total**2 / 2 + profits + x[0] * total - 0.4 * total**2 - q[1] ** 2 / 2))


@pytest.mark.rest
@pytest.mark.parametrize("at_random", [False, True])
def test_rounds_of_best_responses_end_at_the_best_tax(at_random: bool) -> None:
    taxed = Problem(welfare, None, [(0, 60)], [(0, 60)] * 2, follower=Rounds(at_random))
    runs = [minimize(taxed, rng=seed) for seed in range(10)]
    for result in runs:
        assert result.success and result.certified
        assert pytest.approx(-1904.878, abs=1e-3) == result.F


def test_searches_that_come_together_are_not_raced() -> None:
    class Halving(Told):
        """Begins elsewhere each time, and halves its distance to the answer."""

        def best(self, state: Any) -> tuple[Any, float, float]:
            off = state["luck"] * 0.5 ** state["steps"]
            return np.array([bowl(state["x"], 1) + off]), -state["steps"], 0.0

    together = Halving(bowl, steps=40, luck=0.1)
    result = run(together, 2, max_evals_lower=2000)
    ages = np.array(list(together.taken.values()))
    assert result.F < 1e-4 and (ages == 40).mean() > 0.3


def test_values_are_exchanged_where_a_model_expects_the_smallest_rise() -> None:
    def value(x: Any) -> float:  # the first two variables do the same work
        return float((1 - min(x[0] + x[1], 1)) ** 2 + 0.1 * x[1] + (x[2:] ** 2).sum())

    answer = np.array([0.0, 0.9, 0.0, 0.0])
    spread = np.random.default_rng(3).random((40, 4))
    places = np.vstack([answer, answer + 0.3 * (spread[:20] - answer), spread[20:]])
    known = [Known(x, value(x), 0.0, np.zeros(1), task) for task, x in enumerate(places)]
    first = promising_swap(known[0], first_settings(4), known, [])
    assert first is not None and first.tolist() == [0.9, 0.0, 0.0, 0.0]
    second = promising_swap(known[0], first_settings(4), known, [first])
    assert second is not None and second[0] == 0.0
    tried = [first, second, *(np.array(x) for x in ([0.0, 0.0, 0.9, 0.0], [0.0, 0.0, 0.0, 0.9]))]
    assert promising_swap(known[0], first_settings(4), known, tried) is None


@pytest.mark.parametrize("kind", [Walker, Warm])
def test_a_run_taken_up_again_is_the_same_to_the_bit(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    options: dict[str, Any] = {"method": "trust-region", "rng": 3}
    whole = minimize(walking(kind()), max_evals=500, **options)
    for limit in (150, 300, 500):
        parts = minimize(walking(kind()), max_evals=limit, run_dir=tmp_path, **options)
    assert fingerprint(parts) == fingerprint(whole)


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_workers_give_the_same_bits() -> None:
    options: dict[str, Any] = {"method": "trust-region", "rng": 3, "max_evals": 200}
    alone = minimize(walking(Warm()), **options)
    assert fingerprint(minimize(walking(Warm()), workers=2, **options)) == fingerprint(alone)


def test_searches_start_near_finished_ones() -> None:
    class Noting(Told):
        starts: list[Any] = []  # noqa: RUF012

        def start(self, x: Any, rng: Any, near: Any = None) -> Any:
            self.starts.append((np.array(x), near))
            return super().start(x, rng)

    follower = Noting(bowl)
    run(follower, 2, max_evals=80)
    near = [(i, *start) for i, start in enumerate(follower.starts) if start[1] is not None]
    assert len(near) > 20
    tried = np.array([x for x, _ in follower.starts])
    for i, x, start in near:
        away = np.linalg.norm(tried[:i] - x, axis=1)
        same_batch = 8  # leaders that start at the same time are not solved yet
        assert (away < np.linalg.norm(start.x - x)).sum() <= same_batch


def test_failures_are_left_out_of_the_model() -> None:
    def value(x: Any, steps: int) -> float:
        if math.modf(1e3 * x[0])[0] < 0.2:
            raise ArithmeticError
        return bowl(x, steps)

    result = run(Told(value), 2, on_failure="worst", max_evals=400)
    assert result.failures > 5 and result.F < 1e-4


@pytest.mark.parametrize("G", [None, lambda x, y: [0.1 - x[0]]])
def test_a_refuted_answer_is_replaced(G: Any) -> None:
    """Three searches that start near others end at wrong answers, which the leader likes."""

    class Flattering(Told):
        left = 3

        def start(self, x: Any, rng: Any, near: Any = None) -> Any:
            flatters = near is not None and self.left > 0
            self.left -= flatters
            return {**super().start(x, rng), "luck": -0.1 if flatters else 0.0}

        def best(self, state: Any) -> tuple[Any, float, float]:
            return np.array([bowl(state["x"], 1) + state["luck"]]), state["luck"] * -1.0, 0.0

    follower = Flattering(bowl)
    flattered = problem(follower, 2, **({} if G is None else {"G": G}))
    result = minimize(flattered, method="trust-region", rng=1, max_evals=1500)
    assert follower.left == 0
    assert result.success and pytest.approx(0, abs=1e-4) == result.F and result.f == 0


def test_a_model_is_sure_of_what_it_has_seen_and_not_of_the_rest() -> None:
    known = seen(2, 12, lambda x: [float((x**2).sum())])
    surface = Surface(known, known.x[0], 0.3, first_settings(2))
    at_seen, elsewhere = surface.deviations(known.x), surface.deviations(known.x + 0.7)
    assert at_seen.max() < 1e-3 and elsewhere.min() > 0.03


@pytest.mark.parametrize("rises", [True, False])
def test_directions_where_F_surely_rises_are_not_tried_again(rises: bool) -> None:
    """The corner is the centre; no leader is near it, but the model knows the plane."""
    x = np.vstack([np.zeros(2), 0.2 + 0.8 * np.random.default_rng(4).random((12, 2))])
    F = x.sum(axis=1) * (1 if rises else -1)
    surface = Surface(Seen(x, F[:, None], np.zeros(13)), x[0], 0.05, first_settings(2), learn=12)
    region = Region(Known(x[0], 0.0, 0.0, np.zeros(1), 0), first_settings(2), 0.05)
    assert (region._missing_direction(x, surface) is None) == rises


def test_a_region_that_learns_alone_ignores_what_others_have_seen() -> None:
    rng = np.random.default_rng(8)
    others = [Known(x, -9.0, 0.0, np.zeros(1), i) for i, x in enumerate(rng.random((9, 2)))]
    centre = Known(np.full(2, 0.5), 1.0, 0.0, np.zeros(1), 20)
    first, second = (
        Region(centre, first_settings(2), own=[centre]).trial(known, 1e-9)
        for known in (others, [centre])
    )
    assert first is not None and second is not None
    np.testing.assert_array_equal(first.x, second.x)


@pytest.mark.rest
def test_a_worse_valley_does_not_hold_a_run() -> None:
    def value(x: Any, steps: int) -> float:
        return float(min(((x - 0.75) ** 2).sum() + 0.05, ((x - 0.25) ** 2).sum()))

    results = [run(Told(value), 4, rng=seed).F for seed in (11, 12, 13)]
    assert max(results) < 1e-6
