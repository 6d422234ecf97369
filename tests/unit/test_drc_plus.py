"""DRC-plus as a whole: verified optima, certificates, ties, constraints, and when it hands over."""

import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import bilevo
from benchmarks.expert import purposes
from benchmarks.width import batches_of
from bilevo.algorithms import DRCPlus
from bilevo.lab.checks import checked

SEEDS = (1, 2, 3)


def errors(name: str, seed: int, method: object = None) -> tuple[float, float, int]:
    """Return the errors of F at the follower's true answer and of f, and the evaluations."""
    problem = bilevo.problems.get(name)
    result = bilevo.minimize(problem, method=method, rng=seed, max_evals=60_000)
    true = checked(problem, result.x, result.y, result.f)
    return (
        abs(true.F_verified - problem.optimum.F),
        abs(result.f - problem.optimum.f),
        result.nfev,
    )


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 10, 12])
def test_smd_is_solved_and_verified_for_a_fraction_of_what_drc_needs(number: int) -> None:
    found = [errors(f"smd{number}", seed) for seed in SEEDS]
    assert all(F <= 1e-6 and f <= 2e-6 for F, f, _ in found)
    assert median(evaluations for *_, evaluations in found) < 6000


@pytest.mark.parametrize("name", ["smd3-rot", "smd5-rot"])
def test_rotations_do_not_matter(name: str) -> None:
    found = [errors(name, seed) for seed in SEEDS]
    assert all(F <= 1e-6 and f <= 2e-6 for F, f, _ in found)


def test_the_certificate_is_in_the_result_and_costs_evaluations() -> None:
    problem = bilevo.problems.get("smd1")
    with_it = bilevo.minimize(problem, rng=1)
    without = bilevo.minimize(problem, method=DRCPlus(certificate=False), rng=1)
    assert with_it.success and with_it.certified and with_it.follower_gap < 1e-9
    assert with_it.certificate.by == "drc-plus" and with_it.certificate.searches >= 2
    assert 0 < with_it.certificate.nfev_lower < with_it.nfev
    assert math.isnan(without.follower_gap) and not without.success
    assert without.nfev < with_it.nfev


def test_ties_are_resolved_for_the_leader() -> None:
    F, _, evaluations = errors("smd6", 1)
    assert F <= 1e-6 and evaluations < 5000
    problem = bilevo.problems.get("smd6")
    blind = bilevo.minimize(problem, method=DRCPlus(optimism=False), rng=1, max_evals=evaluations)
    assert blind.F > 1e-6


def test_flat_directions_that_turn_with_x_are_found_again() -> None:
    result = bilevo.minimize(
        lambda x, y: (x[0] - 0.5) ** 2 + (y[0] - 0.2) ** 2 + (y[1] - 1.6) ** 2,
        lambda x, y: (y[0] + x[0] * y[1] - 1) ** 2,
        [(-2, 2)],
        [(-3, 3), (-3, 3)],
        rng=1,
    )
    assert result.F < 1e-8


def test_ties_repair_a_constraint_of_the_leader() -> None:
    result = bilevo.minimize(
        lambda x, y: (x[0] - 0.7) ** 2 + (y[0] - 0.7) ** 2 + y[1],
        lambda x, y: (y[0] - x[0]) ** 2,
        [(-1, 2)],
        [(-1, 2), (-1, 2)],
        G=lambda x, y: [0.5 - y[1]],
        rng=2,
    )
    assert result.violation == 0 and pytest.approx(0.5, abs=1e-6) == result.F


def test_an_active_curved_constraint_of_the_leader_is_met_exactly() -> None:
    for seed in SEEDS:
        result = bilevo.minimize(
            lambda x, y: -x[0] - y[0],
            lambda x, y: (y[0] - x[0]) ** 2,
            [(-2, 2)],
            [(-2, 2)],
            G=lambda x, y: [x[0] ** 2 + y[0] ** 2 - 2],
            rng=seed,
        )
        assert result.violation == 0 and pytest.approx(-2, abs=1e-6) == result.F


def test_a_descent_that_stays_outside_the_leaders_constraints_gives_up_ignoring_them() -> None:
    """On TP7 phi without them leads far away; these runs would need 6,900 evaluations."""
    results = [bilevo.minimize(bilevo.problems.get("tp7"), rng=seed) for seed in range(20, 28)]
    assert all(result.success for result in results)
    assert sum(result.nfev for result in results) < 5000


def test_constraints_of_the_follower_are_not_forgotten_by_searches_without_them() -> None:
    result = bilevo.minimize(
        lambda x, y: (x[0] - 1) ** 2 + y[0] + y[1],
        lambda x, y: 2 * abs(y[0] - x[0]) + abs(y[1] - x[0]),
        [(-1, 3)],
        [(-1, 3), (-1, 3)],
        g=lambda x, y: [2 - y[0] - y[1]],
        rng=1,
        max_evals=20_000,
        ctol=0,
    )
    assert result.y.sum() >= 2 and result.violation == 0


def test_without_a_target_it_ends_by_itself() -> None:
    problem = bilevo.problems.get("smd1")
    result = bilevo.minimize(problem, rng=1, target=False)
    assert result.status == "stagnation" and abs(result.F) < 1e-6 and result.nfev < 10_000


@pytest.mark.rest
@pytest.mark.parametrize("name", ["smd1-abs", "smd2-noise6"])
def test_where_followers_are_not_smooth_it_costs_little_more_than_drc(name: str) -> None:
    plus = [errors(name, seed) for seed in range(1, 6)]
    drc = [errors(name, seed, "drc-cma-es") for seed in range(1, 6)]
    assert median(e for *_, e in plus) <= 1.2 * median(e for *_, e in drc)


def test_limits_are_honoured_and_a_run_that_is_stopped_has_a_pair() -> None:
    problem = bilevo.problems.get("smd3")
    for limit in (2, 50, 300, 1000):
        result = bilevo.minimize(problem, rng=1, max_evals=limit)
        assert result.nfev <= limit and math.isfinite(result.F)
    few = bilevo.minimize(
        bilevo.problems.get("smd7", 10, 10), rng=1, budget=bilevo.Budget(upper_max=20)
    )
    assert few.nfev_upper < 500 and few.status == "budget"


def test_the_user_s_units_do_not_matter() -> None:
    def run(unit: float) -> bilevo.Result:
        return bilevo.minimize(
            lambda x, y: unit * ((x[0] - 1) ** 2 + (y[0] - 1) ** 2),
            lambda x, y: unit * (y[0] - np.sin(x[0])) ** 2,
            [(-3, 3)],
            [(-3, 3)],
            rng=1,
        )

    counts = [run(unit).nfev for unit in (1e-3, 1.0, 1e3)]
    assert max(counts) < 3 * min(counts)


def test_a_width_puts_several_descents_into_each_request() -> None:
    problem = bilevo.problems.get("smd7", 5, 5)
    points = {}
    for width in (1, 8):
        run = bilevo.Optimizer(problem, method=DRCPlus(width=width), rng=1)
        requests = 0
        while not run.done:
            batch = run.ask()
            F, G, f, g = problem.evaluate(batch.x, batch.y)
            run.tell(batch, *((F, G) if batch.level == "upper" else (f, g)))
            requests += 1
        assert run.result.success and pytest.approx(0, abs=1e-6) == run.result.F
        points[width] = run.result.nfev / requests
    assert points[8] > 2 * points[1]


@pytest.mark.parametrize("name", ["smd1", "smd5"])
def test_a_width_of_eight_gives_enough_work_to_64_workers(name: str) -> None:
    for seed in SEEDS:
        sizes, solved = batches_of(name, 10, 8, seed, known=True)
        rounds = {workers: sum(math.ceil(k / workers) for k in sizes) for workers in (8, 64)}
        assert solved and sum(sizes) > 20 * rounds[64] and sum(sizes) > 6 * rounds[8]


def test_a_run_with_a_width_that_is_resumed_is_the_same(tmp_path: Path) -> None:
    problem, method = bilevo.problems.get("smd1", 4, 4), DRCPlus(width=4)
    whole = bilevo.minimize(problem, method=method, rng=1)
    for limit in (150, 700, None):
        parts = bilevo.minimize(problem, method=method, rng=1, run_dir=tmp_path, max_evals=limit)
    assert np.array_equal(whole.x, parts.x) and np.array_equal(whole.y, parts.y)
    assert whole.nfev == parts.nfev > 700


@pytest.mark.filterwarnings("ignore:workers slow")
def test_workers_do_not_change_a_run_with_a_width() -> None:
    problem, method = bilevo.problems.get("smd1", 3, 3), DRCPlus(width=4)
    alone = bilevo.minimize(problem, method=method, rng=1)
    beside = bilevo.minimize(problem, method=method, rng=1, workers=2)
    assert np.array_equal(alone.x, beside.x) and alone.nfev == beside.nfev


@pytest.mark.parametrize("width", [0, -1, 1.5, True, None, "8"])
def test_a_bad_width_is_refused(width: object) -> None:
    with pytest.raises(ValueError, match="width must be a positive whole number"):
        DRCPlus(width=width)


@pytest.mark.parametrize("seed", [9809, 9814])
def test_a_target_that_is_missed_by_the_last_digits_of_y_is_met(seed: int) -> None:
    problem = bilevo.problems.get("tp1")  # F rises by 20 for each unit of y
    result = bilevo.minimize(problem, rng=seed, max_evals=2000)
    assert result.status == "target" and result.nfev < 1000
    assert abs(result.y[1] - result.x[1]) < 1e-7


def test_a_fallback_whose_target_is_refuted_again_and_again_ends_with_its_budget() -> None:
    problem = bilevo.problems.get("smd5-abs", 2, 3)
    result = bilevo.minimize(problem, rng=56286172039011082, max_evals=200_000)
    assert result.status != "max_evals" and result.nfev < 60_000


def test_the_benchmark_knows_for_what_all_evaluations_were_made() -> None:
    (line,) = purposes(["smd7"], [1])[1:]
    total, *parts = map(int, line[1:])
    # The rest are evaluations by the run itself: its look for functions that round.
    assert all(part >= 0 for part in parts) and total - 20 <= sum(parts) <= total


@pytest.mark.rest
def test_a_hundred_variables_at_each_level_are_solved() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1", 100, 100), rng=1)
    assert result.success and result.F < 1e-6 and result.nfev < 60_000
