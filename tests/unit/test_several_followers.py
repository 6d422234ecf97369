"""Several followers: lists of them, what they answer together, and what is certified."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import bilevo
from bilevo import BadValue, Follower, Problem, minimize, verify
from bilevo.core.one_follower import values_of_each
from bilevo.core.solver import Neighbour
from bilevo.core.stance import Stance
from bilevo.followers import Nash
from bilevo.problems.several import BETA, DEMAND, INSTANCES, UNIT_COST, K, cost

BOX = [(-1.0, 1.0)]


def zero(x: Any, y: Any) -> float:
    return 0.0


def pair(play: str | None, f1: Any = zero, f2: Any = zero, F: Any = None, **more: Any) -> Problem:
    """Two followers of one variable each."""
    followers = [Follower(f1, BOX), Follower(f2, BOX)]
    leader = F or (lambda x, y: float(x @ x + y @ y))
    return Problem(leader, None, BOX, followers=followers, play=play, **more)


def shifted(play: str = "independent") -> Problem:
    return pair(
        play,
        lambda x, y: (y[0] - x[0] - 0.3) ** 2,
        lambda x, y: (y[1] + x[0]) ** 2,
    )


# What a problem is given.


def test_blocks_say_which_part_of_y_is_whose() -> None:
    assert shifted().blocks == (slice(0, 1), slice(1, 2))
    assert bilevo.problems.get("smd1").blocks == (slice(0, 3),)
    swapped = [Follower(zero, BOX, block=(2, 3)), Follower(zero, BOX * 2, block=(0, 2))]
    problem = Problem(zero, None, BOX, followers=swapped, play="independent")
    assert problem.blocks == (slice(2, 3), slice(0, 2)) and problem.n == 3


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(0, 1), (0, 1)], r"block \(0, 1\) of follower 2 overlaps another one"),
        ([(0, 1), (2, 3)], r"leaves y\[1:2\] to nobody"),
        ([(0, 2), (2, 3)], "because it has 1 variables"),
        ([(0, 1), None], "all followers have a block, or none"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(blocks: list[Any], message: str) -> None:
    followers = [Follower(zero, BOX, block=block) for block in blocks]
    with pytest.raises(ValueError, match=message):
        Problem(zero, None, BOX, followers=followers, play="nash")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"play": "cartel"}, 'play must be "independent".* or "nash"'),
        ({"play": None}, "play must be"),
        ({"followers": []}, "followers must be a list of bilevo.Follower"),
        ({"followers": [zero]}, "followers must be a list of bilevo.Follower"),
        ({"y_bounds": BOX}, "y_bounds does not go with followers"),
        ({"g": zero}, "g does not go with followers"),
        ({"f_jac": zero}, "f_jac does not go with followers"),
        ({"f": zero}, "give f to the problem or to its followers"),
        ({"followers": [Follower(y_bounds=BOX), Follower(zero, BOX)]}, "follower 1 of 2 needs f"),
        ({"followers": [Follower(zero, [(0, np.inf)]), Follower(zero, BOX)]}, "follower 1.*finite"),
        (
            {"followers": [Follower(abs, BOX), Follower(abs, BOX), Follower(zero, BOX)]},
            "some followers share",
        ),
    ],
)
def test_bad_lists_are_refused_before_the_first_evaluation(
    keywords: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {
        "followers": [Follower(lambda x, y: 0.0, BOX), Follower(zero, BOX)],
        "play": "independent",
        "f": None,
    } | keywords
    with pytest.raises(ValueError, match=message):
        Problem(zero, given.pop("f"), BOX, **given)


def test_a_follower_needs_bounds_and_functions() -> None:
    with pytest.raises(ValueError, match="needs y_bounds"):
        Follower(zero)
    with pytest.raises(ValueError, match="f must be a function"):
        Follower(3, BOX)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start, advance, best and done"):
        Follower(zero, BOX, solver=object())
    with pytest.raises(ValueError, match="play='nash' is for a list"):
        Problem(zero, zero, BOX, BOX, play="nash")


@pytest.mark.parametrize("play", ["independent", "nash"])
def test_a_follower_that_returns_anothers_shape_is_named(play: str) -> None:
    wrong = pair(play, zero, lambda x, y: y)
    with pytest.raises(BadValue, match=r"follower 2: .* of shape"):
        minimize(wrong, max_evals=5000)
    shared = [Follower(y_bounds=BOX) for _ in range(2)]
    both = Problem(zero, lambda x, y: y[0], BOX, followers=shared, play=play)
    with pytest.raises(BadValue, match=r"one number for each of them: the shape \(2,\)"):
        minimize(both, max_evals=5000)


# One follower, and independent ones.


def test_one_follower_in_a_list_gives_the_same_bits_as_without_a_list() -> None:
    plain = bilevo.problems.get("smd9")
    listed = Problem(
        plain.F,
        None,
        plain.x_bounds,
        G=plain.G,
        vectorized=True,
        name=plain.name,
        optimum=plain.optimum,
        followers=[Follower(plain.f, plain.y_bounds, g=plain.g)],
    )
    found, wanted = (minimize(one, max_evals=1500) for one in (listed, plain))
    assert found.x.tobytes() == wanted.x.tobytes() and found.y.tobytes() == wanted.y.tobytes()
    assert (found.F, found.f, found.nfev) == (wanted.F, wanted.f, wanted.nfev)
    assert found.message == wanted.message


def test_independent_followers_are_solved_and_each_is_verified() -> None:
    problem = shifted()
    result = minimize(problem)
    assert result.success
    assert pytest.approx(0.06, abs=1e-6) == result.F
    assert result.x == pytest.approx([-0.1], abs=1e-3)
    certificate = verify(problem, result)
    assert certificate.confirmed and certificate.follower_gap < 1e-12
    assert "none gains more than" in certificate.message
    assert values_of_each(problem, result.x, result.y) == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_a_follower_says_which_of_its_variables_are_whole(shared: bool) -> None:
    def lorries(x: Any, y: Any) -> Any:
        return (y[0] - 3 * x[0]) ** 2

    def effort(x: Any, y: Any) -> Any:
        return (y[1] - x[0] / 2) ** 2

    followers = [
        Follower(None if shared else lorries, [(0, 9)], y_integrality=1),
        Follower(None if shared else effort, [(0, 1)]),
    ]
    problem = Problem(
        lambda x, y: (x[0] - 0.9) ** 2 + (y[0] - 2) ** 2 + y[1] ** 2,
        (lambda x, y: [lorries(x, y), effort(x, y)]) if shared else None,
        [(0, 2)],
        followers=followers,
        play="independent",
    )
    assert problem.y_integrality.tolist() == [1, 0]
    result = minimize(problem)
    assert result.success
    assert result.y[0] == 2
    # F = (x - 0.9)^2 + (x / 2)^2 where 3 x is closest to 2
    assert abs(result.F - 0.162) <= 1e-6


def test_a_wrong_answer_of_one_follower_is_named() -> None:
    problem = shifted()
    result = minimize(problem)
    result.y = result.y + np.array([0.0, 0.2])
    result.F, result.f = float(problem.F(result.x, result.y)), float(problem.f(result.x, result.y))
    certificate = verify(problem, result)
    assert not certificate.confirmed and not result.success
    assert certificate.follower_gap == pytest.approx(0.04, rel=1e-3)
    assert certificate.message.startswith("follower 2: the follower has an answer better by 0.04")


def test_constraints_and_extra_arguments_belong_to_each_follower() -> None:
    followers = [
        Follower(lambda x, y, a: (y[0] - a) ** 2, BOX, g=lambda x, y, a: [y[0] - x[0]]),
        Follower(lambda x, y, a: (y[1] + a) ** 2, BOX),
    ]
    problem = Problem(
        lambda x, y, a: (x[0] - 0.2) ** 2,
        None,
        BOX,
        followers=followers,
        play="independent",
        args=(0.5,),
    )
    _, _, f, g = problem.evaluate([0.2], [0.1, 0.1])
    assert f[0] == pytest.approx(0.16 + 0.36) and g[0] == pytest.approx([-0.1])
    result = minimize(problem)
    assert result.success
    assert result.y == pytest.approx([0.2, -0.5], abs=1e-3)


@pytest.mark.rest
def test_a_follower_may_bring_a_solver() -> None:
    for play in ("independent", "nash"):
        followers = [
            Follower(lambda x, y: (y[0] - x[0]) ** 2, BOX, solver=bilevo.followers.Minimize()),
            Follower(lambda x, y: (y[1] + x[0]) ** 2, BOX),
        ]
        problem = Problem(
            lambda x, y: float((x[0] - 0.5) ** 2 + y @ y), None, BOX, followers=followers, play=play
        )
        result = minimize(problem, rng=3, max_evals=8000)
        assert pytest.approx(1 / 6, abs=1e-5) == result.F
        assert result.certified and result.f == 0


# Equilibria.


MISPRINT = (-230.823207, -129.911924, -36.933107, -7.061783, -0.179046)
MISPRINT += (-354.699059, -241.441977, -90.749102, -25.698215, -6.116708)


def best_outputs(x: float, largest: float, gamma: float, misprint: bool = False) -> np.ndarray:
    """The equilibrium of the followers of an oligopoly, by bisection on the total output."""

    def price(Q: float) -> float:
        return float((DEMAND / Q) ** (1 / gamma))

    def output(i: int, Q: float) -> float:
        def slope(q: float) -> float:
            more = K ** (-1 / BETA[i]) * q if misprint else (q / K) ** (1 / BETA[i])
            return float(UNIT_COST[i] + more - price(Q) * (1 - q / (gamma * Q)))

        if slope(0.0) >= 0 or slope(largest) <= 0:
            return 0.0 if slope(0.0) >= 0 else largest
        return float(brentq(slope, 0.0, largest, xtol=1e-12))

    total = brentq(
        lambda Q: x + sum(output(i, Q) for i in range(1, 5)) - Q, 1e-6, 6 * largest, xtol=1e-12
    )
    return np.array([output(i, total) for i in range(1, 5)])


@pytest.mark.parametrize("number", range(1, 11))
def test_the_optima_of_the_oligopolies_are_right(number: int) -> None:
    largest, gamma, x, F, y = INSTANCES[number - 1]
    problem = bilevo.problems.get(f"oligopoly{number}")

    def loss(x: float) -> float:
        q = best_outputs(x, largest, gamma)
        return float(problem.F(np.array([[x]]), q[None])[0])

    assert best_outputs(x, largest, gamma) == pytest.approx(np.array(y), abs=1e-5)
    assert loss(x) == pytest.approx(F, abs=1e-9)
    step = 1e-3 * largest
    assert all(loss(other) >= F - 1e-9 for other in (x - step, min(x + step, largest)))
    outputs = np.array([[x, *y]])
    price = (DEMAND / outputs.sum()) ** (1 / gamma)
    assert problem.F(outputs[:, :1], outputs[:, 1:])[0] == (cost(outputs) - price * outputs)[0, 0]


@pytest.mark.rest
@pytest.mark.parametrize("number", range(1, 11))
def test_the_misprint_of_the_well_known_file_explains_its_values(number: int) -> None:
    """docs/errata.md has both columns."""
    largest, gamma = INSTANCES[number - 1][:2]
    problem = bilevo.problems.get(f"oligopoly{number}")

    def loss(x: float) -> float:
        q = best_outputs(x, largest, gamma, misprint=True)
        return float(problem.F(np.array([[x]]), q[None])[0])

    best = min((loss(x), x) for x in np.linspace(0, largest, 31).tolist())[1]
    near = (max(best - largest / 30, 0), min(best + largest / 30, largest))
    found = minimize_scalar(loss, bounds=near, method="bounded", options={"xatol": 1e-9})
    assert min(found.fun, loss(largest)) == pytest.approx(MISPRINT[number - 1], abs=1e-6)


@pytest.mark.parametrize("number", [3, 9])
def test_an_oligopoly_is_solved_and_certified(number: int) -> None:
    problem = bilevo.problems.get(f"oligopoly{number}")
    result = minimize(problem, rng=11, target=False)
    assert problem.optimum is not None
    assert pytest.approx(problem.optimum.F, rel=1e-5) == result.F
    assert result.success and result.f == 0 and result.nfev <= 5000
    certificate = verify(problem, result, effort="low")
    assert certificate.confirmed and certificate.follower_gap <= 1e-6
    assert "equilibrium is confirmed" in certificate.message


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("seed", range(101, 106))
def test_all_oligopolies_are_solved_with_every_seed(number: int, seed: int) -> None:
    problem = bilevo.problems.get(f"oligopoly{number}")
    result = minimize(problem, rng=seed, target=False)
    assert problem.optimum is not None
    assert pytest.approx(problem.optimum.F, rel=1e-5) == result.F
    assert result.success and result.nfev <= 5000
    assert verify(problem, result).follower_gap <= 1e-6


@pytest.mark.parametrize("count", [2, 5, pytest.param(20, marks=pytest.mark.rest)])
def test_linear_markets_have_their_closed_form(count: int) -> None:
    problem = bilevo.problems.get(f"cournot{count}")
    result = minimize(problem, target=False)
    assert pytest.approx(-36 / (count + 1), abs=1e-6) == result.F
    assert result.x == pytest.approx([6], abs=5e-3)
    assert result.y == pytest.approx(np.full(count, 6 / (count + 1)), abs=5e-3)
    assert result.success


def test_answers_of_many_followers_are_exact_from_one_leader_to_the_next() -> None:
    solver = Nash().bind(bilevo.problems.get("cournot20"))
    for seed in range(3):
        rng, near = np.random.default_rng(seed), None
        for x in rng.uniform(2, 10, (8, 1)):
            state = solver.start(x, rng, near)
            while not solver.done(state):
                state = solver.advance(state)
            y, f, _ = solver.best(state)
            assert np.abs(y - (12 - x[0]) / 21).max() < 2e-7
            near = Neighbour(x, y, f, solver.hint(state))


def test_the_sum_of_costs_would_be_a_cartel() -> None:
    market = bilevo.problems.get("cournot2")
    assert market.several is not None
    cartel = Problem(
        market.F,
        lambda x, y: market.several.each(x, y).sum(axis=1),  # type: ignore[union-attr]
        market.x_bounds,
        market.y_bounds,
        vectorized=True,
    )
    found, honest = minimize(cartel), minimize(market)
    assert pytest.approx(-18, abs=1e-4) == found.F  # two firms that collude sell as one
    assert pytest.approx(-12, abs=1e-5) == honest.F


def test_a_game_without_an_equilibrium_has_no_answer_and_says_so() -> None:
    game = pair("nash", lambda x, y: (y[0] - y[1]) ** 2, lambda x, y: -((y[0] - y[1]) ** 2))
    result = minimize(game, max_evals=4000)
    assert not result.success and not result.feasible and result.f > 0.5
    assert "no equilibrium of the followers was found" in result.message
    certificate = verify(game, result, effort="low")
    assert not certificate.confirmed and "better by" in certificate.message


def test_best_responses_that_diverge_still_lead_to_the_equilibrium() -> None:
    game = Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + y @ y),
        None,
        BOX,
        followers=[
            Follower(lambda x, y: (y[0] - 3 * y[1] - x[0]) ** 2, [(-9, 9)]),
            Follower(lambda x, y: (y[1] + 3 * y[0]) ** 2, [(-9, 9)]),
        ],
        play="nash",
    )
    result = minimize(game)  # y = (x, -3 x) / 10
    assert result.success
    assert pytest.approx(0.25 / 11, abs=1e-6) == result.F
    assert result.y == pytest.approx(result.x[0] * np.array([0.1, -0.3]), abs=1e-6)


@pytest.mark.rest
def test_a_followers_constraint_holds_in_the_equilibrium() -> None:
    game = Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + y @ y),
        None,
        BOX,
        followers=[
            Follower(
                lambda x, y: (y[0] - 0.5 * y[1] - x[0]) ** 2, BOX, g=lambda x, y: [y[0] - 0.2]
            ),
            Follower(lambda x, y: (y[1] + 0.5 * y[0] - 0.8) ** 2, BOX),
        ],
        play="nash",
    )
    result = minimize(game, max_evals=20000)
    assert result.feasible and result.y == pytest.approx([0.2, 0.7], abs=1e-5)
    assert pytest.approx(0.53, abs=1e-5) == result.F


@pytest.mark.rest
def test_several_equilibria_are_reported() -> None:
    game = Problem(
        lambda x, y: float(x[0] ** 2 + y[0]),
        None,
        BOX,
        followers=[
            Follower(lambda x, y: (y[0] ** 2 - 1) ** 2 + 0.1 * (y[0] - y[1]) ** 2, [(-2, 2)]),
            Follower(lambda x, y: (y[1] - y[0]) ** 2, [(-2, 2)]),
        ],
        play="nash",
    )
    result = minimize(game, max_evals=6000)
    assert result.y == pytest.approx([-1, -1], abs=1e-4)
    certificate = verify(game, result)
    assert certificate.confirmed and certificate.indifferent
    assert "other equilibria were found" in certificate.message
    assert certificate.F_worst - certificate.F_best == pytest.approx(2, abs=0.1)


def two_valleys() -> Problem:
    """Both followers are at -1 or at 1, whatever x is; F prefers -1 if x > -0.5."""
    return Problem(
        lambda x, y: float((x[0] - 0.2) ** 2 + y[0] * (0.5 + x[0])),
        None,
        BOX,
        followers=[
            Follower(lambda x, y: (y[0] ** 2 - 1) ** 2 + 0.1 * (y[0] - y[1]) ** 2, [(-2, 2)]),
            Follower(lambda x, y: (y[1] - y[0]) ** 2, [(-2, 2)]),
        ],
        play="nash",
    )


@pytest.mark.rest
def test_a_pessimistic_leader_expects_the_worst_equilibrium_that_is_found() -> None:
    """It minimizes (x - 0.2)^2 + |x + 0.5|."""
    game = two_valleys()
    result = minimize(game, rng=5, max_evals=6000, stance="pessimistic")
    away = abs(result.x[0] + 0.5)
    assert 0.45 - 1e-6 <= result.F <= 0.5  # an optimistic leader has -0.95
    assert pytest.approx((result.x[0] - 0.2) ** 2 + away, abs=1e-5) == result.F
    certificate = verify(game, result)
    assert certificate.confirmed and "other equilibria were found" in certificate.message
    assert certificate.F_worst - certificate.F_best == pytest.approx(2 * away, abs=1e-4)


def test_a_stance_chooses_among_the_equilibria_at_one_x() -> None:
    found = {}
    for stance in Stance:
        solver = Nash().bind(two_valleys()).take_stance(stance, None)
        state = solver.start(np.array([0.3]), np.random.default_rng(5))
        while not solver.done(state):
            before = solver.spent(state)
            state = solver.advance(state)
            assert solver.spent(state) - before <= solver.cost
        y, residual, violation = solver.best(state)
        assert residual == violation == 0
        found[stance] = y
    assert found[Stance.OPTIMISTIC] == pytest.approx([-1, -1], abs=1e-4)
    assert found[Stance.PESSIMISTIC] == pytest.approx([1, 1], abs=1e-4)


def test_what_a_stance_cannot_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="independent followers cannot be searched with stance="):
        minimize(shifted(), stance="pessimistic")
    with pytest.raises(ValueError, match=r"tie_tol=0.1 does not go with play=.nash"):
        minimize(two_valleys(), stance="pessimistic", tie_tol=0.1)


# Runs: every way of making them gives the same bits.


def test_evaluations_of_all_followers_are_counted() -> None:
    calls = [0, 0]

    def f(i: int) -> Any:
        def counted(x: Any, y: Any) -> float:
            calls[i] += 1
            return float((y[i] - 0.5 * y[1 - i] - x[0]) ** 2)

        return counted

    result = minimize(pair("nash", f(0), f(1)), max_evals=1500)
    assert result.nfev_lower == sum(calls) and result.nfev <= 1500


def game_of_two(x: Any, y: Any) -> Any:
    return [(y[0] - 0.5 * y[1] - x[0]) ** 2, (y[1] + 0.3 * y[0] - 0.2) ** 2]


def two(play: str = "nash") -> Problem:
    followers = [Follower(y_bounds=BOX) for _ in range(2)]
    return Problem(
        lambda x, y: float((x[0] - 0.4) ** 2 + y @ y),
        game_of_two if play == "nash" else lambda x, y: [(y[0] - x[0]) ** 2, (y[1] + x[0]) ** 2],
        BOX,
        followers=followers,
        play=play,
    )


@pytest.mark.filterwarnings("ignore:workers slow this run down")
@pytest.mark.parametrize("play", ["nash", "independent"])
def test_runs_with_workers_and_resumed_runs_are_the_same(play: str, tmp_path: Path) -> None:
    plain = minimize(two(play), max_evals=1000)
    parallel = minimize(two(play), max_evals=1000, workers=2)
    minimize(two(play), max_evals=600, run_dir=tmp_path)
    resumed = minimize(two(play), max_evals=1000, run_dir=tmp_path)
    for other in (parallel, resumed, bilevo.load(tmp_path)):
        assert other.x.tobytes() == plain.x.tobytes() and other.y.tobytes() == plain.y.tobytes()
        assert other.nfev == plain.nfev and other.message == plain.message


def test_small_steps_of_the_game_give_the_same_equilibrium() -> None:
    """A step plays the game again from its start, with what it remembers."""
    ends = []
    for evaluations in (40, 1000):
        solver = Nash(evaluations).bind(two())
        state = solver.start(np.array([0.3]), np.random.default_rng(5))
        while not solver.done(state):
            before = solver.spent(state)
            state = solver.advance(state)
            assert solver.spent(state) - before <= evaluations
        y, residual, violation = solver.best(state)
        assert residual == violation == 0
        ends.append((y.tobytes(), solver.spent(state), state.steps))
    assert ends[0][:2] == ends[1][:2] and ends[0][2] > ends[1][2] == 1


def test_a_landscape_shows_the_equilibria() -> None:
    from bilevo.verification.landscape import survey

    seen = survey(bilevo.problems.get("cournot2"), points=5)
    assert seen.feasible.all()
    inside = seen.x[:, 0] <= 12
    assert seen.y[inside] == pytest.approx(np.tile((12 - seen.x[inside]) / 3, (1, 2)), abs=1e-5)
