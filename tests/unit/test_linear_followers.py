"""Followers that are linear and mixed-integer programs: exact answers, ties, what can go wrong."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import csr_array

from bilevo.core.bounds import Bounds as Box
from bilevo.followers.linear import LinProg, Milp

RNG = np.random.default_rng(0)


def solve(follower, *x):
    state = follower.start(np.array(x, dtype=float), RNG)
    assert not follower.done(state)
    state = follower.advance(state)
    assert follower.done(state)
    return follower.best(state)


def bound_to(follower, n, low=0.0, high=10.0):
    return follower.bind(SimpleNamespace(y_bounds=Box([low] * n, [high] * n)))


def demand_of_three(x):
    """Two sources, of costs 1 and x, of 2 units each, for a demand of 3."""
    return {"c": [1, x[0]], "A_eq": [[1, 1]], "b_eq": [3], "bounds": (0, 2)}


def test_a_linear_program_is_solved_and_its_duals_can_be_part_of_the_answer() -> None:
    def answer(x, solution):
        return [*solution.x, *solution.eqlin.marginals]

    y, f, violation = solve(LinProg(demand_of_three, answer=answer), 5)
    assert y == pytest.approx(
        [2, 1, 5]
    )  # the dearer source is the last used: its cost is the price
    assert (f, violation) == (pytest.approx(7), 0)
    y, _, _ = solve(LinProg(demand_of_three, answer=answer), 0.25)
    assert y == pytest.approx([1, 2, 1])


def test_ties_of_a_linear_program_go_the_way_that_is_asked_for() -> None:
    for sign, expected in ((1, [2, 1]), (-1, [1, 2])):
        y, f, _ = solve(LinProg(demand_of_three, tie=lambda x, s=sign: [0, s * x[0]]), 1)
        assert y == pytest.approx(expected) and f == pytest.approx(3)


def test_a_tie_does_not_outweigh_the_follower_s_own_cost() -> None:
    y, _, _ = solve(LinProg(demand_of_three, tie=lambda x: [0, -1000]), 1 + 1e-6)
    assert y == pytest.approx([2, 1])


@pytest.mark.parametrize("tie", [None, lambda x: [0, 1]])
def test_inequalities_sparse_rows_and_open_bounds_are_taken(tie) -> None:
    follower = LinProg(
        lambda x: {
            "c": [1, 2],
            "A_ub": csr_array([[-1.0, -1.0]]),
            "b_ub": [-x[0]],
            "bounds": [(None, 1), (-5, None)],
        },
        tie,
    )
    y, f, _ = solve(follower, 4)
    assert y == pytest.approx([1, 3]) and f == pytest.approx(7)


def knapsack(values, weights, room):
    return {
        "c": -np.asarray(values, float),
        "integrality": 1,
        "bounds": Bounds(0, 1),
        "constraints": LinearConstraint([weights], ub=room),
    }


def enumerated(values, weights, room, d):
    """The best value, and the d of the best and of the worst set of that value."""
    sets = np.array(list(product((0, 1), repeat=len(values))))
    sets = sets[sets @ weights <= room]
    worth = sets @ values
    best = sets[worth == worth.max()]
    return worth.max(), (best @ d).min(), (best @ d).max()


@pytest.mark.parametrize("seed", range(8))
def test_knapsacks_agree_with_enumeration_and_so_do_both_ways_of_their_ties(seed) -> None:
    rng = np.random.default_rng(seed)
    values, weights, d = rng.integers(1, 9, (3, 8))
    room = int(weights.sum() // 2)
    best, least, most = enumerated(values, weights, room, d)
    for sign, expected in ((1, least), (-1, most)):
        follower = Milp(lambda x: knapsack(values, weights, room), lambda x, s=sign: s * d)
        y, f, violation = solve(follower, 0)
        assert set(y.tolist()) <= {0.0, 1.0}
        assert (y @ values, -f, violation) == (best, best, 0)
        assert y @ d == expected


@pytest.mark.parametrize(
    "constraints",
    [([[1, 1]], -np.inf, 3.5), [([[1, 1]], -np.inf, 3.5)], [LinearConstraint([[1, 1]], ub=3.5)]],
)
def test_constraints_are_taken_in_all_forms_of_milp_and_continuous_variables_are_kept(
    constraints,
) -> None:
    follower = Milp(
        lambda x: {
            "c": [-1, -1],
            "integrality": [1, 0],
            "bounds": (0, 2.75),
            "constraints": constraints,
        },
        tie=lambda x: [x[0], 0],
    )
    assert solve(follower, 1)[0] == pytest.approx([1, 2.5])
    assert solve(follower, -1)[0] == pytest.approx([2, 1.5])


@pytest.mark.parametrize("kind", [LinProg, Milp])
def test_where_nothing_is_feasible_the_violation_says_by_how_much(kind) -> None:
    def model(x):  # both units are asked for more than they have
        if kind is LinProg:
            return {"c": [1, 1], "A_eq": [[1, 1]], "b_eq": [x[0]], "bounds": (0, 2)}
        return {"c": [1, 1], "constraints": ([[1, 1]], x[0], x[0]), "bounds": (0, 2)}

    follower = bound_to(kind(model), 2)
    for wanted, excess in ((5, 1), (7, 3)):
        y, f, violation = solve(follower, wanted)
        assert y.tolist() == [5, 5] and f == pytest.approx(4)
        assert violation == pytest.approx(excess)
    assert solve(follower, 4)[2] == 0


def test_bounds_that_cross_are_infeasible_by_their_distance() -> None:
    follower = bound_to(LinProg(lambda x: {"c": [1], "bounds": (x[0], 1)}), 1)
    assert solve(follower, 3)[2] == pytest.approx(2)
    assert solve(follower, 0.5)[2] == 0


@pytest.mark.parametrize(
    ("follower", "words"),
    [
        (LinProg(lambda x: {"c": [-1]}), "LinProg at x = .*feasible.*unbounded"),
        (Milp(lambda x: {"c": [-1]}), "Milp at x = .*feasible.*unbounded"),
        (LinProg(lambda x: [1]), "dict of keywords of scipy.optimize.linprog.*got \\[1\\]"),
        (LinProg(lambda x: {"A_ub": [[1]]}), "with c at least"),
        (LinProg(lambda x: {"c": [1], "A": [[1]]}), "not what scipy.optimize.linprog takes.*'A'"),
        (LinProg(lambda x: {"c": [1], "A_ub": [[1, 2]], "b_ub": [1]}), "A_ub"),
        (LinProg(lambda x: {"c": [1], "integrality": 1}), "Milp"),
        (Milp(lambda x: {"c": [1], "A_ub": [[1]]}), "not what scipy.optimize.milp takes"),
        (LinProg(demand_of_three, tie=lambda x: [1]), "tie must give 2 finite numbers"),
        (LinProg(demand_of_three, tie=lambda x: [np.nan, 1]), "tie must give 2 finite numbers"),
        (LinProg(lambda x: {"c": [0, 0]}, tie=lambda x: [-1, 0]), "tie cannot be broken"),
        (LinProg(lambda x: {"c": [1], "bounds": (2, 1)}), "no Problem"),
    ],
)
def test_what_is_wrong_is_named(follower, words) -> None:
    with pytest.raises(ValueError, match=words):
        solve(follower, 1)


def test_a_solver_stopped_by_a_limit_is_an_error_and_no_answer() -> None:
    values, weights = RNG.integers(50, 150, (2, 60))
    model = knapsack(values, weights, weights.sum() // 2) | {"options": {"node_limit": 0}}
    model["constraints"] = LinearConstraint(RNG.integers(50, 150, (5, 60)), ub=3000)
    with pytest.raises(ValueError, match="limit"):
        solve(Milp(lambda x: model), 1)
