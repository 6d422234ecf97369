"""The leader's gradient from one follower, compared with formulas for the follower's answer."""

import numpy as np
import pytest

from bilevo.algorithms.drc_plus.experience import Experience, WarmTask
from bilevo.algorithms.drc_plus.leader_gradient import affordable, leader_gradient
from bilevo.algorithms.drc_plus.leader_view import LeaderView
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.core.request import Level, Slopes, Values, run
from bilevo.core.slopes import NO_SLOPES, SlopesGiven

M, N = 4, 3
RNG = np.random.default_rng(11)
ROOT = RNG.normal(size=(N, N))
H = ROOT @ ROOT.T + np.eye(N)
SLOPES = 0.3 * RNG.normal(size=(N, M))
OFFSET = np.array([0.4, 0.5, 0.6])
X = np.array([0.3, 0.6, 0.45, 0.55])


def answer_to(x):
    """Return the follower's answer where no constraint is active."""
    return OFFSET + SLOPES @ (x - 0.5)


class Game:
    """A quadratic follower, and a leader with two constraints; counts what is asked for."""

    def __init__(self, g=None, G=lambda x, y: [y.sum() - 5, x[0] * y[0] - 3]):
        self.g, self.G, self.spent, self.derived = g, G, dict.fromkeys(Level, 0), 0

    def F(self, x, y):
        return np.sin(3 * x[0]) + x @ x + (y - 0.2) @ (y - 0.2) + x[1] * y[2]

    def f(self, x, y):
        away = y - answer_to(x)
        return away @ H @ away / 2 + x @ x

    def values(self, level, x, y):
        if level is Level.UPPER:
            return self.F(x, y), np.array(self.G(x, y))
        return self.f(x, y), np.empty(0) if self.g is None else self.g(x, y)

    def answer(self, request):
        if type(request).__name__ == "Derive":
            return self.slopes(request)
        rows = [self.values(request.level, x, y) for x, y in zip(request.x, request.y, strict=True)]
        self.spent[request.level] += len(rows)
        objective = np.array([row[0] for row in rows])
        constraints = np.array([row[1] for row in rows]).reshape(len(rows), -1)
        return Values.of(objective, constraints, 0, self.spent[request.level])

    def slopes(self, request):
        self.derived += len(request.x)
        found = []
        for x, y in zip(request.x, request.y, strict=True):
            at = [lambda z, y=y: self.values(request.level, z, y)]
            at.append(lambda z, x=x: self.values(request.level, x, z))
            found.append([central(function, z) for function, z in zip(at, (x, y), strict=True)])
        rows = [np.array([one[k] for one in found]) for k in (0, 1)]
        parts = rows[0][:, 0], rows[1][:, 0], rows[0][:, 1:], rows[1][:, 1:]
        return Slopes(*parts, self.derived)

    def task(self, x, y):
        f, g = self.values(Level.LOWER, x, y)
        F, G = self.values(Level.UPPER, x, y)
        lower = Values.of(np.array([f]), g[None], 0, 0)
        pair = Pair(x, y, f, float(lower.violation[0]), F, 0.0)
        return WarmTask(pair, lower, G=G, solved=True)

    def phi(self, x):
        return self.F(x, answer_to(x))


def central(function, z, h=1e-6):
    columns = []
    for step in h * np.eye(len(z)):
        up, down = function(z + step), function(z - step)
        columns.append(np.append(up[0] - down[0], up[1] - down[1]) / (2 * h))
    return np.array(columns).T


def view(hessian, slopes=None, given=NO_SLOPES):
    known = Experience.none(M, N)
    known.hessian = hessian
    known.slopes = np.zeros((N, M)) if slopes is None else slopes
    return LeaderView(known, given=given)


def differences(function, x, h=1e-6):
    return np.array([(function(x + s) - function(x - s)) / (2 * h) for s in h * np.eye(len(x))])


def gradient(game, state, x, y, constrained=False):
    return run(leader_gradient(state, game.task(x, y), constrained), game.answer)


def test_the_gradient_is_that_of_phi():
    game = Game()
    found, jacobian = gradient(game, view(H), X, answer_to(X))
    assert jacobian.shape == (0, M)
    np.testing.assert_allclose(found, differences(game.phi, X), rtol=1e-3, atol=1e-3)


def test_it_costs_one_batch_of_differences():
    game = Game()
    gradient(game, view(H), X, answer_to(X))
    assert game.spent == {Level.UPPER: M + N, Level.LOWER: 2 * (M + N + 1)}


def test_a_wrong_hessian_is_found_out_and_corrected():
    game, state = Game(), view(3 * np.eye(N))
    found, _ = gradient(game, state, X, answer_to(X))
    exact, _ = gradient(game, view(H), X, answer_to(X))
    assert np.linalg.norm(found - exact) < 0.2 * np.linalg.norm(exact)
    assert np.linalg.norm(state.known.hessian - H) < np.linalg.norm(3 * np.eye(N) - H)


def test_an_error_of_the_hessian_does_not_matter_if_the_slopes_of_answers_are_known():
    game = Game()
    found, _ = gradient(game, view(1.1 * H + 0.1, SLOPES), X, answer_to(X))
    np.testing.assert_allclose(found, differences(game.phi, X), rtol=1e-3, atol=1e-3)


def test_constraints_of_the_leader_have_slopes_of_their_own(monkeypatch):
    game = Game()
    monkeypatch.setattr("bilevo.algorithms.drc_plus.leader_gradient.affordable", lambda *_: True)
    _, jacobian = gradient(game, view(H), X, answer_to(X), constrained=True)
    assert game.spent[Level.LOWER] == 3 * 2 * (M + N + 1)
    for row in range(2):
        exact = differences(lambda x: game.values(Level.UPPER, x, answer_to(x))[1][row], X)  # noqa: B023
        np.testing.assert_allclose(jacobian[row], exact, rtol=1e-3, atol=1e-3)


def test_constraints_that_do_not_depend_on_y_cost_nothing():
    game = Game(G=lambda x, y: [x[0] + x[1] - 0.9, x[2] ** 2 - 0.2])
    _, jacobian = gradient(game, view(H), X, answer_to(X), constrained=True)
    assert game.spent == {Level.UPPER: M + N, Level.LOWER: 2 * (M + N + 1)}
    np.testing.assert_allclose(jacobian, [[1, 1, 0, 0], [0, 0, 2 * X[2], 0]], atol=1e-5)


def test_there_is_no_gradient_where_constraints_make_it_dearer_than_differences():
    game, state = Game(), view(H)
    assert gradient(game, state, X, answer_to(X), constrained=True) is None
    assert game.spent[Level.LOWER] == 0 and state.dependent == 2


def test_variables_at_a_bound_do_not_move():
    game = Game()
    y = answer_to(X)

    def on_bound(x):
        """The first variable stays at 0; the others answer to that."""
        best = answer_to(x)
        rest = best[1:] + np.linalg.solve(H[1:, 1:], H[1:, :1]).ravel() * best[0]
        return np.array([0.0, *rest])

    y = on_bound(X)
    found, _ = gradient(game, view(H), X, y)
    exact = differences(lambda x: game.F(x, on_bound(x)), X)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_active_constraints_of_the_follower_hold_its_answer():
    row = np.array([1.0, -0.5, 0.7])

    def g(x, y):
        return np.array([row @ y - 0.4 - 0.2 * x[0] * x[1]])

    def held(x):
        """Minimize the quadratic on the constraint, by its conditions."""
        best = answer_to(x)
        matrix = np.block([[H, row[:, None]], [row[None], np.zeros((1, 1))]])
        return np.linalg.solve(matrix, np.append(H @ best, 0.4 + 0.2 * x[0] * x[1]))[:N]

    assert row @ answer_to(X) > 0.4 + 0.2 * X[0] * X[1]  # it is active
    game = Game(g)
    found, _ = gradient(game, view(H), X, held(X))
    exact = differences(lambda x: game.F(x, held(x)), X)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_there_is_no_gradient_where_a_constraint_is_about_to_hold():
    game = Game(lambda x, y: np.array([y[0] - answer_to(X)[0]]))  # touches the free answer
    assert gradient(game, view(H), X, answer_to(X)) is None


def test_given_gradients_replace_all_differences():
    game = Game()
    state = view(H, given=SlopesGiven(F=True, f=True, G=True, g=True))
    found, _ = gradient(game, state, X, answer_to(X))
    assert not any(game.spent.values())
    assert game.derived == 3
    np.testing.assert_allclose(found, differences(game.phi, X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("m", "n", "cheaper"), [(1, 1, False), (2, 3, False), (5, 5, True), (30, 30, True)]
)
def test_differences_are_kept_where_they_cost_less(m, n, cheaper):
    assert affordable(m, n, 0, NO_SLOPES) is cheaper
