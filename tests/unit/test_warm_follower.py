"""The solver of followers that learns from those solved before."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from driven import Driven

from bilevo import Problem
from bilevo.algorithms.drc_plus.basin_steps import probe_axes
from bilevo.algorithms.drc_plus.box_search import (
    cross_constraints,
    search_box,
    search_first,
    search_points,
)
from bilevo.algorithms.drc_plus.certificate import Check, check_answer, find_doubt
from bilevo.algorithms.drc_plus.experience import ENOUGH_SEARCHES, Experience, WarmTask
from bilevo.algorithms.drc_plus.warm_follower import WarmFollower
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.request import Level, Procedure, Request, relayed
from bilevo.core.streams import stream
from bilevo.optimizers.sampling import latin_hypercube
from bilevo.problems import get


class Bed:
    """A problem whose followers are solved one after another."""

    def __init__(self, problem: Problem, **switches: bool) -> None:
        self.driven = Driven(problem)
        self.spec, self.known = self.driven.spec(), Experience.none(problem.m, problem.n)
        self.solver = WarmFollower(self.spec, self.known, **switches)

    def cost(self, steps: Procedure[WarmTask]) -> tuple[WarmTask, int]:
        """What a search returns and the evaluations it took, none of them of F."""
        before = self.driven.counts[Level.LOWER]
        task = self.driven.run(steps)
        assert self.driven.counts[Level.UPPER] == 0
        return task, self.driven.counts[Level.LOWER] - before

    def explored(self, x: np.ndarray, seed: int = 0, relaxed: bool = False) -> tuple[WarmTask, int]:
        rng = stream(seed, "explore")
        return self.cost(search_box(self.solver, x, rng, relaxed))

    def warm(self, x: np.ndarray) -> Procedure[WarmTask]:
        """A start and a search from it."""
        task = yield from self.solver.start(x, np.ones(len(x)))
        tight, rng = self.known.tight, stream(0, "improve")
        return (yield from self.solver.improve(task, tight, rng))

    def error(self, task: WarmTask) -> float:
        """How far f is above that of the known answer."""
        x, y = task.pair.x, self.driven.response(task.pair.x)
        best = self.driven.run(self.known.evaluate(x, y[None])).objective[0]
        return float(task.pair.f - best)

    def at(self, x: np.ndarray, y: np.ndarray) -> WarmTask:
        return WarmTask.at(x, y[None], self.driven.run(self.known.evaluate(x, y[None])))


def around(centre: float, m: int, count: int) -> np.ndarray:
    return np.asarray(centre + 0.05 * stream(3, "leaders").standard_normal((count, m)))


def box_of(f: Callable[[np.ndarray, np.ndarray], float], n: int = 2) -> Problem:
    """Two leaders' variables and n of the follower, all of them in [0, 1]."""
    return Problem(lambda x, y: 0.0, f, [(0, 1)] * 2, [(0, 1)] * n)


def test_a_linear_response_is_predicted_exactly() -> None:
    slope, offset = np.array([[0.3, -0.1], [0.2, 0.25], [-0.2, 0.1]]), np.array([0.4, 0.2, 0.5])
    known = Experience.none(2, 3)
    for x in around(0.5, 2, 8):
        known.learn(Pair(x, slope @ x + offset, 0.0, 0.0))
    x = np.array([0.58, 0.44])
    by_regression, nearest = known.predictions(x, np.ones(2), regression=True)
    assert by_regression == pytest.approx(slope @ x + offset, abs=1e-12)
    assert nearest.tolist() in known.y.tolist()
    assert len(known.predictions(x, np.ones(2), regression=False)) == 1


def test_predictions_stay_in_the_box_and_need_no_more_than_one_answer() -> None:
    known = Experience.none(1, 1)
    known.learn(Pair(np.array([0.1]), np.array([0.5]), 0.0, 0.0))
    assert known.predictions(np.array([0.9]), np.ones(1), regression=True).tolist() == [[0.5]]
    for x, y in ((0.1, 0.5), (0.2, 0.7), (0.3, 0.9)):
        known.learn(Pair(np.array([x]), np.array([y]), 0.0, 0.0))
    assert known.predictions(np.array([0.9]), np.ones(1), regression=True)[0] == [1.0]


def test_a_leader_has_one_answer_in_memory_the_last() -> None:
    known = Experience.none(1, 1)
    for y in (0.2, 0.8):
        known.learn(Pair(np.array([0.5]), np.array([y]), 0.0, 0.0))
    assert known.y.tolist() == [[0.8]]
    known.refute(np.array([0.8]))
    assert known.x.shape == (0, 1) and known.y.shape == (0, 1)
    assert known.refuted.tolist() == [[0.8]]


def test_a_refuted_answer_stays_known_as_a_rival() -> None:
    known = Experience.none(1, 1)
    known.learn(Pair(np.array([0.5]), np.array([0.8]), 0.0, 0.0))
    for y in (0.8, 0.801, 0.3):
        known.refute(np.array([y]))
    assert sorted(known.refuted.ravel().tolist()) == [0.3, 0.801]
    assert sorted(known.rivals(np.array([0.1]), 6).ravel().tolist()) == [0.3, 0.801]


@pytest.mark.parametrize("name", ["smd1", "smd2", "smd3", "smd5"])
def test_followers_cost_a_fraction_of_the_first(name: str) -> None:
    bed = Bed(get(name))
    leaders = around(0.4, bed.spec.m, 12)
    task, first = bed.explored(leaders[0])
    assert bed.error(task) < 1e-9
    bed.known.learn(task.pair)
    warm = [bed.cost(bed.warm(x)) for x in leaders[1:]]
    assert max(bed.error(task) for task, _ in warm) < 1e-9
    assert np.median([cost for _, cost in warm[4:]]) < first / 10


def test_regression_and_curvature_save_evaluations() -> None:
    def total(**switches: bool) -> int:
        spent = 0
        for name in ("smd1", "smd2", "smd3", "smd5", "smd7"):
            bed = Bed(get(name), **switches)
            leaders = around(0.4, bed.spec.m, 12)
            bed.known.learn(bed.explored(leaders[0])[0].pair)
            spent += sum(bed.cost(bed.warm(x))[1] for x in leaders[1:])
        return spent

    everything = total()
    assert everything < 1400
    assert everything < total(regression=False)
    assert everything < total(curvature=False)


SMOOTH = ("smd1", "smd3-rot", "smd8")
NOT_SMOOTH = ("smd1-abs", "smd1-max", "smd1-noise3", "smd1-noise6")


@pytest.mark.parametrize("name", SMOOTH + NOT_SMOOTH)
def test_kinks_and_noise_are_noticed(name: str) -> None:
    bed = Bed(get(name))
    leaders = around(0.4, bed.spec.m, 24)
    bed.known.learn(bed.explored(leaders[0])[0].pair)
    for x in leaders[1:]:
        bed.cost(bed.warm(x))
    assert bed.known.rough == (name in NOT_SMOOTH)


def test_a_few_searches_do_not_show_that_followers_are_not_smooth() -> None:
    known = Experience.none(1, 1)
    for _ in range(ENOUGH_SEARCHES - 1):
        known.count(False)
        assert not known.rough
    known.count(False)
    assert known.rough
    for _ in range(10):
        known.count(True)
    assert not known.rough


def test_a_penalty_does_not_set_the_scale_of_f() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> float:
        return float(((y - 0.3) ** 2).sum() + 1e9 * max(0.0, y[0] - 0.6) ** 2)

    bed = Bed(box_of(f))
    bed.explored(np.array([0.5, 0.5]))
    assert bed.known.unit <= 1.0


@pytest.mark.parametrize(("offset", "resolved"), [(0.0, True), (1e3, True), (1e10, False)])
def test_an_offset_that_hides_the_minimum_is_noticed(offset: float, resolved: bool) -> None:
    def f(x: np.ndarray, y: np.ndarray) -> float:
        return offset + float(((y - 0.3) ** 2).sum())

    bed = Bed(Problem(lambda x, y: float(y[0]), f, [(0, 1)] * 2, [(0, 1)] * 2))
    task, _ = bed.explored(np.array([0.5, 0.5]))
    task.pair.F, task.pair.violation = float(task.pair.y[0]), 0.0
    check = Check(bed.known, task)
    doubt = bed.driven.run(find_doubt(bed.solver, check, task))
    assert ("rounding" in doubt) == (not resolved)


def test_an_answer_that_owes_its_f_to_a_tolerated_violation_is_doubted() -> None:
    """Only y = 0 is feasible, but a violation of v lets y move by the root of v."""
    problem = Problem(
        lambda x, y: float(y[0]),
        lambda x, y: float(y[0]),
        [(0, 1)] * 2,
        [(-1, 1)],
        g=lambda x, y: [y[0] ** 2],
    )
    bed = Bed(problem)
    for y, doubted in (([0.5], False), ([0.4995], True)):
        task = bed.at(np.array([0.5, 0.5]), np.array(y))
        task.pair.F, task.pair.violation = 0.0, 0.0
        task.lower = task.lower._replace(violation=np.zeros(1))  # it is within ctol
        doubt = bed.driven.run(find_doubt(bed.solver, Check(bed.known, task), task))
        assert ("ctol" in doubt) == doubted


def test_what_a_local_search_cannot_settle_is_solved_all_the_same() -> None:
    bed = Bed(box_of(lambda x, y: float(np.abs(y - 0.3 - 0.2 * x).sum() ** 0.8)))
    x = np.array([0.5, 0.2])
    task = bed.at(x, np.array([0.9, 0.6]))
    steps = bed.solver.improve(task, 1e-4, stream(0, "improve"))
    found, _ = bed.cost(steps)
    assert found.solved and found.pair.f < 2e-3


def test_a_round_of_a_few_iterations_continues_where_the_last_one_ended() -> None:
    bed = Bed(get("smd2"))
    x = np.full(bed.spec.m, 0.4)
    task = bed.at(x, np.full(bed.spec.n, 0.9))
    rounds = 0
    while not task.solved and rounds < 20:
        steps = bed.solver.improve(task, 1e-12, stream(0, "bout"), iterations=3)
        new, cost = bed.cost(steps)
        assert cost <= 3 * (bed.spec.n + 2) and new.pair.f <= task.pair.f
        task, rounds = new, rounds + 1
    assert task.solved and rounds > 1 and bed.error(task) < 1e-9


def two_basins(x: np.ndarray, y: np.ndarray) -> float:
    """A basin at 0.2 and a better one at 0.8."""
    near, far = float(((y - 0.2) ** 2).sum()), float(((y - 0.8) ** 2).sum())
    return min(near, far - 0.1)


def test_answers_of_others_lead_to_a_better_basin() -> None:
    bed = Bed(box_of(two_basins))
    x = np.array([0.5, 0.5])
    wrong, _ = bed.cost(bed.solver.search_locally(bed.at(x, np.full(2, 0.3)), 1e-12))
    assert wrong.solved and wrong.pair.y == pytest.approx(0.2, abs=1e-6)
    nothing_known = bed.solver.test_against_neighbours(wrong, 1e-12)
    assert bed.cost(nothing_known) == (wrong, 0)
    bed.known.learn(Pair(np.array([0.1, 0.1]), np.array([0.75, 0.9]), 0.0, 0.0))
    better, cost = bed.cost(bed.solver.test_against_neighbours(wrong, 1e-12))
    assert better.pair.y == pytest.approx(0.8, abs=1e-6) and cost < 40
    assert bed.cost(bed.solver.test_against_neighbours(better, 1e-12))[0] is better
    without_rivals = replace(bed.solver, rivals=False)
    assert bed.cost(without_rivals.test_against_neighbours(wrong, 1e-12)) == (wrong, 0)


def test_rivals_are_far_from_the_answer_and_from_each_other() -> None:
    known = Experience.none(1, 1)
    for i, y in enumerate([0.1, 0.101, 0.5, 0.502, 0.9]):
        known.learn(Pair(np.array([i / 10]), np.array([y]), 0.0, 0.0))
    assert sorted(known.rivals(np.array([0.1005]), 6).ravel().tolist()) == [0.5, 0.9]
    assert known.rivals(np.array([0.1005]), 1).tolist() == [[0.9]]


def wrong_answer_of_smd3(bed: Bed) -> WarmTask:
    """A local minimum of its follower's Rastrigin function."""
    x = bed.driven.x_box.unit(np.zeros(2))
    y = bed.driven.y_box.unit(np.array([1.0, -2.0, 0.0]))
    task, _ = bed.cost(bed.solver.search_locally(bed.at(x, y), 1e-12))
    assert task.solved and task.pair.f > 4
    return task


def checked(bed: Bed, task: WarmTask, seed: int = 0) -> Check:
    return bed.driven.run(check_answer(bed.solver, task, stream(seed, "check")))


def test_a_wrong_answer_is_replaced_by_one_that_two_searches_found() -> None:
    bed = Bed(get("smd3"))
    check = checked(bed, wrong_answer_of_smd3(bed))
    assert check.best.pair.f == pytest.approx(0.0, abs=1e-9)
    assert not check.stands and check.agreeing >= 2 and check.confirmed
    assert check.verdict(check.best.pair.f).certified
    assert not check.verdict(check.own.pair.f).certified  # nor is the answer under test


def test_a_right_answer_stands_if_all_local_searches_end_there() -> None:
    bed = Bed(get("smd1"))
    x = bed.driven.x_box.unit(np.zeros(2))
    check = checked(bed, bed.at(x, bed.driven.response(x)))
    assert check.stands and check.confirmed and check.unanimous and len(check.ends) == 1
    told = check.verdict(check.own.pair.f)
    assert told.certified and told.agreeing == told.searches == len(check.local) >= 2
    assert told.check_evals == check.spent > 100


def test_a_follower_with_several_basins_is_also_searched_by_cma_es() -> None:
    bed = Bed(get("smd3"))
    x = bed.driven.x_box.unit(np.zeros(2))
    check = checked(bed, bed.at(x, bed.driven.response(x)))
    assert check.stands and check.confirmed and not check.unanimous and len(check.ends) >= 2
    told = check.verdict(check.own.pair.f)
    assert told.certified and told.searches > len(check.local) and told.check_evals == check.spent


def test_a_light_check_gives_no_certificate() -> None:
    bed = Bed(get("smd1"))
    x = bed.driven.x_box.unit(np.zeros(2))
    own = bed.at(x, bed.driven.response(x))
    check = bed.driven.run(check_answer(bed.solver, own, stream(0, "check"), 0.25))
    told = check.verdict(check.own.pair.f)
    assert told.passed and not told.certified and check.spent < 150


def test_answers_that_are_as_good_are_found_as_ties() -> None:
    bed = Bed(box_of(lambda x, y: float(min(((y - 0.2) ** 2).sum(), ((y - 0.8) ** 2).sum()))))
    check = checked(bed, bed.at(np.array([0.5, 0.5]), np.full(2, 0.2)))
    (tie,) = check.ties()
    assert tie.pair.y == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_spread_points_find_a_deep_basin_of_a_few_per_cent_of_the_box(seed: int) -> None:
    def f(x: np.ndarray, y: np.ndarray) -> float:
        return float((y[0] - 0.4) ** 2 - 0.2 * math.exp(-(((y[0] - 0.75) / 0.03) ** 2)))

    bed = Bed(box_of(f, n=1))
    points = latin_hypercube(32, 1, stream(seed, "spread"))
    found, _ = bed.driven.run(search_points(bed.solver, np.array([0.5, 0.5]), points, 5))
    assert min(task.pair.f for task in found) < -0.07


def test_probes_leave_a_basin_along_the_axes() -> None:
    bed = Bed(get("smd3"))
    wrong = wrong_answer_of_smd3(bed)
    found, cost = bed.cost(probe_axes(bed.solver, wrong))
    assert found.pair.f == pytest.approx(0.0, abs=1e-9)
    assert cost < bed.explored(wrong.pair.x)[1]


CUT = ("smd9", "smd10", "smd11", "smd12")


@pytest.mark.parametrize("name", CUT)
def test_the_box_is_searched_where_constraints_cut_it_into_parts(name: str) -> None:
    """SMD10's follower has its best answer in a small component of its feasible set."""
    bed = Bed(get(name))
    optimum = bed.driven.problem.optimum
    assert optimum is not None
    errors = []
    for seed in range(5):
        task, _ = bed.explored(bed.driven.x_box.unit(optimum.x), seed)
        assert task.pair.lower_violation == 0
        errors.append(task.pair.f - optimum.f)
    assert sum(abs(error) < 1e-6 for error in errors) >= 4


@pytest.mark.parametrize("name", CUT)
def test_a_check_finds_the_best_part_where_constraints_cut_the_box(name: str) -> None:
    bed = Bed(get(name))
    optimum = bed.driven.problem.optimum
    assert optimum is not None
    x, corner = bed.driven.x_box.unit(optimum.x), np.full(bed.spec.n, 0.9)
    found = [checked(bed, bed.at(x, corner), seed).best.pair.f for seed in range(5)]
    assert sum(abs(f - optimum.f) < 1e-6 for f in found) >= 4


def test_an_infeasible_follower_is_left_as_little_violated_as_possible() -> None:
    problem = Problem(
        lambda x, y: 0.0,
        lambda x, y: float(y @ y),
        [(0, 1)] * 2,
        [(0, 1)] * 2,
        g=lambda x, y: [0.7 - y[0], y[0] - 0.5],
    )
    task, _ = Bed(problem).explored(np.array([0.5, 0.5]))
    assert not task.solved or task.pair.lower_violation > 0
    assert task.pair.lower_violation == pytest.approx(0.2, abs=1e-6)


def test_a_follower_that_always_fails_ends_soon() -> None:
    bed = Bed(box_of(lambda x, y: math.nan))
    task, cost = bed.explored(np.array([0.5, 0.5]))
    assert math.isinf(task.pair.f) and cost < 600
    check = checked(bed, task)
    assert not check.verdict(task.pair.f).certified
    assert bed.driven.counts[Level.LOWER] < 6000


def test_a_follower_that_fails_in_places_is_solved() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> float:
        return math.nan if math.modf(1e3 * abs(y[0]))[0] < 0.1 else float(((y - 0.3005) ** 2).sum())

    task, _ = Bed(box_of(f)).explored(np.array([0.5, 0.5]))
    assert task.pair.f < 1e-8


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_f_does_not_matter(unit: float) -> None:
    problem, costs = get("smd1"), []
    for factor in (1.0, unit):

        def f(x: np.ndarray, y: np.ndarray, factor: float = factor) -> np.ndarray:
            return np.asarray(factor * problem.f(x, y))

        bounds = problem.x_bounds, problem.y_bounds
        bed = Bed(Problem(problem.F, f, *bounds, vectorized=True))
        leaders = around(0.4, bed.spec.m, 8)
        bed.known.learn(bed.explored(leaders[0])[0].pair)
        costs.append(sum(bed.cost(bed.warm(x))[1] for x in leaders[1:]))
    assert costs[1] == pytest.approx(costs[0], rel=0.5)


def test_a_search_crosses_constraints_that_cut_the_box_into_parts() -> None:
    def ring(x: np.ndarray, y: np.ndarray) -> float:
        return float((abs(y[0]) - 0.2) * (1 - abs(y[0])))

    bed = Bed(Problem(lambda x, y: 0.0, lambda x, y: y[0] ** 2, [(0, 1)], [(-3.1, 3)], g=ring))
    x, edge = np.array([0.5]), np.array([4.1 / 6.1])  # where y = 1
    task = bed.driven.run(bed.solver.search_locally(bed.at(x, edge), 1e-12))
    assert task.pair.f == pytest.approx(1)
    crossed = bed.driven.run(cross_constraints(bed.solver, task))
    assert crossed.pair.f < 1e-8 and crossed.pair.lower_violation == 0
    assert bed.driven.run(cross_constraints(bed.solver, crossed)) is crossed


def test_a_check_looks_into_all_parts_into_which_constraints_divide_the_box() -> None:
    """Only one or two of 64 points are feasible, and all in the part of the wrong answer."""
    problem = get("smd12")
    lower, upper = np.array(problem.y_bounds.lower), np.array(problem.y_bounds.upper)
    x = (1 - np.array(problem.x_bounds.lower)) / problem.x_bounds.width
    for seed in range(20):
        bed = Bed(problem)
        own = bed.at(x, (np.array([-1.0, -1.0, 0.0]) - lower) / (upper - lower))
        assert own.pair.f == pytest.approx(20) and own.pair.lower_violation == 0
        check = bed.driven.run(check_answer(bed.solver, own, stream(seed, "check")))
        assert not check.stands and check.best.pair.f == pytest.approx(4, abs=1e-6)


def test_a_wide_solver_makes_the_first_searches_side_by_side() -> None:
    requests, cost = {}, {}
    for wide in (False, True):
        bed, x = Bed(get("smd1", 5, 5), wide=wide), np.full(5, 0.4)
        start = bed.driven.run(bed.solver.at(x, np.full((1, 5), 0.5)))
        sizes: list[int] = []

        def size(request: Request, sizes: list[int] = sizes) -> Request:
            sizes.append(len(request[1]))
            return request

        search = search_first(bed.solver, start, stream(1, "first"))
        task, cost[wide] = bed.cost(relayed(search, size, lambda level, values: values))
        assert task.solved and bed.error(task) < 1e-9
        requests[wide] = len(sizes)
    assert requests[True] < 0.7 * requests[False]
    assert cost[True] < 1.2 * cost[False]
