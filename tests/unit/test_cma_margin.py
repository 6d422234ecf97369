"""CMA-ES with margin: its formulas are those of the package `cmaes`, and it finds whole optima."""

from typing import Any

import numpy as np
import pytest
from cmaes import CatCMAwM

from bilevo import Choice, Problem, minimize
from bilevo.core.bounds import Grid
from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.cma_margin import (
    Choosing,
    Layout,
    Margin,
    at_least,
    centred,
    on_grid,
    with_margin,
)
from bilevo.optimizers.protocol import Start

VALUES = 6  # of each whole number
MIDDLES = [(k + 0.5) / VALUES for k in range(VALUES)]


def oracle(count: int, mean: Any, **more: Any) -> CatCMAwM:
    """The published method over `count` whole numbers, in the unit box."""
    return CatCMAwM(z_space=[MIDDLES] * count, mean=np.array(mean, float), **more)


def grid(*values: int, choices: tuple[int, ...] = ()) -> Grid:
    return Grid(np.array(values), np.array([i in choices for i in range(len(values))]))


@pytest.mark.parametrize("seed", range(30))
def test_margins_are_those_of_the_published_method(seed: int) -> None:
    rng, count = np.random.default_rng(seed), 5
    mean, A, rates = rng.random(count), rng.uniform(0.3, 3, count), rng.uniform(0.05, 0.4, count)
    deviation = np.exp(rng.uniform(-5, 0, count))
    theirs = oracle(count, mean, cov=np.diag(deviation**2))
    theirs._A, theirs._pmut, theirs._int_succ = A.copy(), rates.copy(), rng.random(count) < 0.5
    changed, values = theirs._int_succ.copy(), np.full(count, VALUES)
    ours = with_margin(Margin(mean, A, rates), deviation, changed, values, theirs._alpha)
    theirs._margin_correction()
    for own, other in zip(ours, (theirs._mean, theirs._A, theirs._pmut), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_centring_is_that_of_the_published_method(seed: int) -> None:
    rng, count = np.random.default_rng(seed), 4
    mean = rng.random(count)
    theirs = oracle(count, mean, population_size=12)
    points = np.clip(mean + 0.15 * rng.standard_normal((12, count)), 0.0, 1.0)
    ours, changed = centred(points[:6], mean, np.full(count, VALUES))
    np.testing.assert_allclose(ours, theirs._integer_centering(points.copy())[:6], atol=1e-14)
    assert changed.tolist() == theirs._int_succ.tolist()


def test_probabilities_follow_the_published_method() -> None:
    rng, labels = np.random.default_rng(1), [3, 5]
    theirs = CatCMAwM(c_space=labels, population_size=10)
    ours = Choosing.of(tuple(np.full(k, 1 / k) for k in labels))
    layout = Layout.of(grid(*labels, choices=(0, 1)))
    for _ in range(40):
        drawn = np.array([rng.choice(len(q), 10, p=q) for q in ours.probabilities]).T
        told = np.zeros((10, 2, 5), bool)
        for i, row in enumerate(drawn):
            told[i, [0, 1], row] = True
        ours.learn(drawn[:5], theirs._weights[:5])
        ours.keep_margin(layout)
        theirs._update_categorical(told)
        for i, q in enumerate(ours.probabilities):
            np.testing.assert_allclose(q, theirs._q[i, : labels[i]], atol=1e-9)
    assert ours.caution == pytest.approx(theirs._Delta)


def test_no_probability_is_below_the_least() -> None:
    q = at_least(0.05, np.array([1.2, -0.3, 0.1]))
    assert q.sum() == pytest.approx(1) and q.min() >= 0.05


def evaluations(searcher: Any, cost: Any, seed: int, most: int = 4000) -> int:
    """Count evaluations until a search of the unit box finds the cost 0."""
    rng = np.random.default_rng(seed)
    d = searcher.layout.size
    state = searcher.start(Start.uniform(np.full(d, 0.3), rng), rng)
    spent = 0
    while spent < most:
        points = searcher.ask(state, rng)
        assert points.min() >= 0 and points.max() <= 1
        values = np.array([cost(point) for point in points])
        spent += len(points)
        if values.min() <= 1e-10:
            return spent
        searcher.tell(state, points, values, np.zeros(len(points)))
    return most


@pytest.mark.rest
def test_whole_numbers_and_choices_are_found_as_fast_as_by_the_published_method() -> None:
    """Real, whole and chosen coordinates; five runs of each, and their medians."""
    whole = np.array([41, 41, 3, 4])

    def cost(point: Any) -> float:
        cells = np.minimum((point[2:] * whole).astype(int), whole - 1)
        return float(((point[:2] - 0.3) ** 2).sum() + ((cells[:2] - 7) ** 2).sum()) + float(
            (cells[2:] != 1).sum()
        )

    mine = on_grid(CMAES(), grid(0, 0, *whole, choices=(4, 5)))
    ours = [evaluations(mine, cost, seed) for seed in range(5)]
    theirs = []
    for seed in range(5):
        other = CatCMAwM([[0, 1]] * 2, [list(range(41))] * 2, [3, 4], seed=seed)
        spent, found = 0, False
        while not found and spent < 4000:
            told = []
            for _ in range(other.population_size):
                s = other.ask()
                wrong = 2 - int(s.c[:, 1].sum())
                value = float(((s.x - 0.3) ** 2).sum() + ((s.z - 7) ** 2).sum()) + wrong
                told.append((s, value))
                found, spent = found or value <= 1e-10, spent + 1
            other.tell(told)
        theirs.append(spent)
    assert max(ours) < 4000
    assert np.median(ours) <= 1.5 * np.median(theirs)


def test_a_search_of_choices_alone_settles() -> None:
    searcher = on_grid(CMAES(), grid(4, 3, choices=(0, 1)))
    rng = np.random.default_rng(3)
    state = searcher.start(Start.uniform(np.full(2, 0.3), rng), rng)
    for _ in range(200):
        if searcher.exhausted(state):
            break
        points = searcher.ask(state, rng)
        values = np.abs(points - [0.625, 0.5]).sum(axis=1)
        searcher.tell(state, points, values, np.zeros(len(points)))
    assert searcher.exhausted(state)
    assert [int(q.argmax()) for q in state.choosing.probabilities] == [2, 1]


def test_a_marginal_and_a_mixture_keep_probabilities_and_margins() -> None:
    searcher = on_grid(CMAES(), grid(0, 5, 3, choices=(2,)))
    rng = np.random.default_rng(4)
    one, two = (searcher.start(Start.uniform(np.full(3, 0.3), rng), rng) for _ in range(2))
    two.choosing.probabilities = (np.array([0.8, 0.1, 0.1]),)
    searcher.mix(one, 1.5, [two], [1.5])
    assert one.choosing.probabilities[0].sum() == pytest.approx(1)
    assert one.choosing.probabilities[0][0] > 0.5
    start = searcher.marginal(one, 1)
    lower = on_grid(CMAES(), grid(5, 3, choices=(1,)))
    fresh = lower.start(start, rng)
    np.testing.assert_allclose(
        fresh.choosing.probabilities[0], one.choosing.probabilities[0], atol=0.02
    )
    assert lower.mean(fresh).shape == (2,)


def copied() -> Problem:
    """The follower copies the leader's number and has a favourite label and a real number."""
    return Problem(
        lambda x, y: float((x[0] - 7) ** 2 + (y[0] - 7) ** 2 + (y[1] != 2) + (y[2] - 0.3) ** 2),
        lambda x, y: float((y[0] - x[0]) ** 2 + 0.5 * (y[1] != 2) + (y[2] - 0.3) ** 2),
        [(0, 60)],
        [(0, 60), Choice("a", "b", "c"), (0, 1)],
        x_integrality=1,
        y_integrality=[1, 0, 0],
    )


@pytest.mark.parametrize("method", ["drc-cma-es", "bl-cma-es"])
def test_methods_with_margin_find_a_mixed_optimum(method: str) -> None:
    result = minimize(copied(), method=method, rng=2, target=0.0, ftol=1e-5, max_evals=20_000)
    assert result.x.tolist() == [7] and result.y[:2].tolist() == [7, 2]


def test_nested_searches_with_margin_find_the_follower_answer() -> None:
    result = minimize(copied(), method="nested-cma-es", rng=2, max_evals=3000)
    assert result.y[:2].tolist() == [result.x[0], 2] and result.y[2] == pytest.approx(0.3)
