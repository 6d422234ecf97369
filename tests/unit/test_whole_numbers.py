"""Whole numbers and choices: declared, decoded, remembered, searched and verified."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bilevo
from benchmarks.known.mixed_problems import mixed_problem
from bilevo import Choice, Problem, minimize, verify
from bilevo.core.bounds import Bounds, Grid
from bilevo.core.space import UnitBox
from bilevo.testing import CountingProblem
from bilevo.testing.conformance import fingerprint


def depots(name: str = "depots", **more: Any) -> Problem:
    """A leader with depots and a kind of lorry, a follower with lorries and an effort."""

    def F(x: Any, y: Any) -> float:
        assert x[0] == round(x[0]) and x[1] in (0, 1, 2) and y[0] == round(y[0])
        return 40 / x[0] + x[0] - 2 * (y[0] * (1 + y[1])) ** 0.5 + (0.0, 3.0, 1.0)[int(x[1])]

    def f(x: Any, y: Any) -> float:
        wish = 2 * x[0] + (1.0, 4.0, 7.0)[int(x[1])]
        return float((y[0] - wish) ** 2 + (y[1] - y[0] / 40) ** 2)

    kinds = Choice("petrol", "gas", "electric")
    bounds = [(1, 12), kinds], [(0, 30), (0, 1)]
    whole = {"x_integrality": [1, 0], "y_integrality": [1, 0]}
    return Problem(F, f, *bounds, name=name, **whole, **more)


def tied() -> Problem:
    """Two answers tie for every odd x; the leader likes the lower one."""
    return Problem(
        lambda x, y: float((x[0] - 7) ** 2 + (y[0] - 3) ** 2),
        lambda x, y: float((y[0] - x[0] / 2) ** 2),
        [(0, 20)],
        [(0, 10)],
        x_integrality=1,
        y_integrality=1,
    )


def test_a_whole_number_has_cells_of_equal_width() -> None:
    box = UnitBox(Bounds([2, 0.0], [5, 1.0], integrality=[1, 0]))
    u = np.array([[0.0, 0.5], [0.2499, 0.5], [0.25, 0.5], [0.9999, 0.5], [1.0, 0.5]])
    assert box.real(u)[:, 0].tolist() == [2, 2, 3, 5, 5]
    assert box.unit(np.array([4.0, 0.5])).tolist() == [0.625, 0.5]
    for value in (2.0, 3.0, 4.0, 5.0):
        assert box.real(box.unit(np.array([value, 0.1]))[None])[0, 0] == value


def test_fixed_and_whole_variables_stand_beside_each_other() -> None:
    box = UnitBox(Bounds([3, -2, 0.0], [3, 2, 4.0], integrality=[1, 1, 0]))
    assert box.size == 2
    assert box.real(np.array([[0.5, 0.25]])).tolist() == [[3, 0, 1]]
    assert Grid.of(Bounds([3], [3], integrality=1)) is None


def test_bounds_of_whole_numbers_move_inwards() -> None:
    bounds = Bounds.of([(0.5, 3.7), (-1.5, 1)], "x_bounds", 1)
    assert bounds.lower.tolist() == [1, -1] and bounds.upper.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("bounds", "integrality", "words"),
    [
        ([(0, 1)], 2, "x_integrality must be 1 numbers, each 0"),
        ([(0, 1)], [1, 0], "x_integrality must be 1 numbers"),
        ([(0, 1)], "whole", "x_integrality must be"),
        ([(0.2, 0.8)], 1, r"x_bounds\[0\] = \(0.2, 0.8\) is for a whole number, but holds none"),
        ([(0, 1e20)], 1, "beyond 2"),
    ],
)
def test_wrong_integrality_is_refused(bounds: Any, integrality: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        minimize(abs, abs, bounds, [(0, 1)], x_integrality=integrality)


@pytest.mark.parametrize("labels", [(), ("gas",), ("gas", "gas"), (["a"], ["b"])])
def test_a_choice_needs_different_labels(labels: Any) -> None:
    with pytest.raises(ValueError, match="two or more different labels"):
        Choice(*labels)


def test_a_start_must_be_whole() -> None:
    with pytest.raises(ValueError, match=r"x0\[0\] must be a whole number, got 2.5"):
        minimize(depots(), x0=[2.5, 0])
    with pytest.raises(TypeError, match="use x_integrality and y_integrality"):
        minimize(depots(), integrality=1)


def test_decode_gives_ints_and_labels() -> None:
    problem = depots()
    assert problem.decode([3, 1]) == [3, "gas"]
    assert problem.decode(y=[7, 0.25]) == [7, 0.25]
    with pytest.raises(ValueError, match="outside its bounds"):
        problem.decode([3, 5])


def test_the_default_finds_the_best_pair_and_says_so() -> None:
    result = CountingProblem(depots()).minimize()
    assert result.method == "moves" and result.success
    assert result.x.tolist() == [11, 2] and result.y[0] == 29
    assert result.labels == ["x[1] = electric"] and "x[1] = electric" in str(result)
    assert "all 31 combinations" in result.message


def test_no_pair_is_evaluated_twice() -> None:
    seen: list[Any] = []
    problem = tied()
    plain = problem.f
    problem.f = lambda x, y: seen.append((*x, *y)) or plain(x, y)
    for method in ("moves", "drc-cma-es"):
        seen.clear()
        result = minimize(problem, method=method, max_evals=3000)
        assert len(seen) == len(set(seen)) == result.nfev_lower
    assert result.repeats > 1000  # a search of 231 pairs by CMA-ES


def test_the_leader_chooses_among_answers_that_tie() -> None:
    result = minimize(tied())
    assert result.success and (result.x[0], result.y[0], result.F) == (7, 3, 0)


def test_other_methods_search_the_decoded_box_and_claim_nothing() -> None:
    result = minimize(tied(), method="drc-plus", max_evals=5000)
    assert result.F == 0 and not result.success
    assert "drc-plus has no checks for whole numbers" in result.message
    assert verify(tied(), result).confirmed


def test_verify_finds_the_better_answer_of_another_cell() -> None:
    problem = depots()
    result = minimize(problem)
    result.y = np.array([28.0, 0.7])
    result.F, result.f = (float(v[0]) for v in problem.evaluate(result.x, result.y)[::2])
    made = verify(problem, result)
    assert not made.confirmed and not result.success and made.y[0] == 29
    assert "all 31 combinations of its whole numbers were compared" in made.message


def test_verify_says_that_it_could_not_compare_all() -> None:
    problem = Problem(
        lambda x, y: float(x[0] ** 2 + y.sum()),
        lambda x, y: float(((y - x[0] - np.arange(3)) ** 2).sum()),
        [(0, 9)],
        [(0, 99)] * 3,
        x_integrality=1,
        y_integrality=1,
    )
    result = minimize(problem)
    assert result.success and result.x[0] == 0 and result.y.tolist() == [0, 1, 2]
    assert "3 of 3 independent searches agree" in result.message
    made = verify(problem, result)
    assert made.confirmed and "too many to compare" in made.message


def test_a_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = minimize(depots(), rng=5)
    for limit in (100, 300):
        minimize(depots(), rng=5, run_dir=tmp_path, max_evals=limit)
    resumed = minimize(depots(), rng=5, run_dir=tmp_path)
    assert fingerprint(resumed) == fingerprint(whole) and resumed.repeats > 0
    assert bilevo.load(tmp_path).labels == whole.labels
    with pytest.raises(bilevo.RunMismatch, match="integrality"):
        other = Problem(depots().F, depots().f, [(1, 12), (0, 2)], [(0, 30), (0, 1)], name="depots")
        minimize(other, method="moves", rng=5, run_dir=tmp_path)


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_workers_give_the_same_bits() -> None:
    options = {"max_evals": 300}
    assert fingerprint(minimize(depots(), workers=2, **options)) == fingerprint(
        minimize(depots(), **options)
    )


def test_ask_and_tell_take_whole_numbers() -> None:
    problem = tied()
    opt = bilevo.Optimizer(x_bounds=[(0, 20)], y_bounds=[(0, 10)], x_integrality=1, y_integrality=1)
    while not opt.done:
        batch = opt.ask()
        F, _, f, _ = problem.evaluate(batch.x, batch.y)
        opt.tell(batch, F if batch.level == "upper" else f)
    assert opt.result.F == 0 and opt.result.success


def test_limits_hold_and_failures_rank_last() -> None:
    def F(x: Any, y: Any) -> float:
        if x[0] % 3 == 0:
            raise ArithmeticError
        return float(tied().F(x, y))

    problem = tied()
    problem.F = F
    for limit in (7, 60):
        assert CountingProblem(problem).minimize(max_evals=limit, on_failure="worst").nfev <= limit
    result = minimize(problem, on_failure="worst")
    assert result.F == 0 and result.failures > 0


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(4, 20))]
)
def test_random_problems_are_right_wherever_a_run_is_a_success(seed: int) -> None:
    made = mixed_problem(seed)
    result = minimize(made.problem, rng=seed, max_evals=20_000)
    right = result.feasible and abs(result.F - made.F) <= 1e-5 * (1 + abs(made.F))
    assert right or not result.success, made.about


@pytest.mark.slow
def test_two_hundred_random_problems() -> None:
    right = 0
    for seed in range(1000, 1200):
        made = mixed_problem(seed)
        result = minimize(made.problem, rng=seed)
        good = result.feasible and abs(result.F - made.F) <= 1e-5 * (1 + abs(made.F))
        assert good or not result.success, f"{seed}: {made.about}"
        right += good
    assert right >= 180


def test_a_simulator_of_both_levels_takes_whole_numbers() -> None:
    whole = tied()

    def simulate(x: Any, y: Any) -> tuple[Any, Any]:
        assert x[0] == round(x[0]) and y[0] == round(y[0])
        return whole.F(x, y), whole.f(x, y)

    joint = Problem.joint(simulate, [(0, 20)], [(0, 10)], x_integrality=1, y_integrality=1)
    result = minimize(joint)
    assert result.success and result.F == 0 and result.method == "moves"
