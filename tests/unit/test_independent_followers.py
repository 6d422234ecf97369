"""Independent followers whose values one function returns: a point probes all of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilevo import BadValue, Follower, Optimizer, Problem, minimize
from bilevo.algorithms.shared.blocks import ask_own, basin_answers, side_by_side, values_together
from bilevo.core.request import Evaluate, Level, Procedure, Values, run
from bilevo.problems.several import smd1_copies
from bilevo.run.batches import Batch
from bilevo.run.evaluator import Evaluator
from bilevo.run.packing import Packing

BOX = [(-1.0, 1.0)]


def counted_copies(count: int, coupled: float = 0.0) -> tuple[Problem, list[int]]:
    """Independent followers of two variables each, and the number of calls of their function."""
    calls = [0]

    def f(x: Any, y: Any) -> Any:
        calls[0] += 1
        pairs = y.reshape(count, 2)
        shift = np.arange(count) / count
        own = (pairs[:, 0] - x[0] - shift) ** 2 + (pairs[:, 1] - pairs[:, 0] ** 2) ** 2
        return own + coupled * y.sum() ** 2

    followers = [Follower(y_bounds=[(-2, 2), (-2, 5)]) for _ in range(count)]
    problem = Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + y @ y),
        f,
        BOX,
        followers=followers,
        play="independent",
    )
    return problem, calls


def test_one_point_probes_all_independent_followers() -> None:
    (packed, calls), (alone, _) = counted_copies(6), counted_copies(1)
    result, single = minimize(packed), minimize(alone)
    assert result.success and single.success
    assert result.nfev_lower == calls[0] < 4 * single.nfev_lower
    separate = Problem(
        packed.F,
        None,
        BOX,
        followers=[
            Follower(lambda x, y, i=i: packed.several.objective(i, x, y), [(-2, 2), (-2, 5)])  # type: ignore[union-attr]
            for i in range(6)
        ],
        play="independent",
    )
    other = minimize(separate)
    assert pytest.approx(other.F, abs=1e-6) == result.F
    assert result.nfev_lower < 0.5 * other.nfev_lower


def test_packed_points_have_the_values_that_were_asked_for() -> None:
    problem, _ = counted_copies(3)
    packing = Packing(problem)
    rng = np.random.default_rng(1)
    y = np.repeat(rng.random((1, 6)), 13, axis=0)
    y[1:] += 0.01 * np.concatenate([np.eye(6), -np.eye(6)])
    x = np.repeat([[0.2], [0.3]], [9, 4], axis=0)
    batch = Batch(Level.LOWER, x, y)
    packed = packing.reduce(batch)
    assert len(packed.x) < len(x)
    found = packing.complete(Evaluator(problem)(packed))
    plain = Evaluator(problem)(batch)
    assert found.parts is not None
    assert found.parts.sum(axis=-1).tobytes() == plain.objective.tobytes()
    assert found.objective.tobytes() == plain.objective.tobytes()
    assert plain.constraints.shape == (13, 0)


def test_followers_that_are_not_independent_are_found_out() -> None:
    coupled, _ = counted_copies(6, coupled=0.1)
    with pytest.raises(BadValue, match=r'the followers are not independent.*Use play="nash"'):
        minimize(coupled)


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_packed_runs_resume_to_the_same_bits_and_have_an_archive(tmp_path: Path) -> None:
    problem, _ = counted_copies(3)
    plain = minimize(problem, max_evals=900, keep_archive=True)
    minimize(problem, max_evals=400, run_dir=tmp_path)
    resumed = minimize(problem, max_evals=900, run_dir=tmp_path)
    parallel = minimize(problem, max_evals=900, workers=2)
    for other in (resumed, parallel):
        assert other.x.tobytes() == plain.x.tobytes() and other.y.tobytes() == plain.y.tobytes()
        assert other.nfev == plain.nfev <= 900 and other.message == plain.message
    for kept in (plain.archive(), resumed.archive()):
        assert len(kept) == plain.nfev and kept.g.shape[1] == 0


@pytest.mark.rest
def test_copies_of_smd1_have_the_mean_of_their_shifts_as_optimum() -> None:
    problem = smd1_copies(5)
    assert problem.optimum is not None
    result = minimize(problem, target=False, max_evals=40_000)
    assert pytest.approx(problem.optimum.F, abs=1e-5) == result.F
    assert result.x == pytest.approx(problem.optimum.x, abs=1e-2)


# Searches side by side.


def test_searches_side_by_side_cost_what_the_longest_costs() -> None:
    """Single points come first; a search that asks for fewer points has its last one repeated."""
    blocks = (slice(0, 1), slice(1, 3))
    asked: list[np.ndarray] = []

    def search(sizes: list[int], width: int, first: float) -> Procedure[list[float]]:
        seen: list[float] = []
        for k, size in enumerate(sizes):
            rows = np.full((size, width), first + 0.1 * k)
            seen += (yield from ask_own(np.zeros(1), rows)).objective.tolist()
        return seen

    def answer(request: Evaluate) -> Values:
        asked.append(request.y)
        parts = np.column_stack([request.y[:, 0], request.y[:, 1:].sum(axis=1)])
        return values_together(parts, 0)

    searches = [search([2, 1, 2], 1, 0.2), search([3, 3], 2, 0.4)]
    found = run(side_by_side(np.zeros(1), np.full(3, 0.9), blocks, searches), answer)
    assert [len(rows) for rows in asked] == [3, 1, 3]
    assert found[0] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.4])
    assert found[1] == pytest.approx([0.8] * 3 + [1.0] * 3)
    assert asked[1][0] == pytest.approx([0.3, 0.4, 0.4])  # the other search waits where it was


def test_a_point_that_fails_for_one_follower_does_not_fail_for_the_others() -> None:
    blocks = (slice(0, 1), slice(1, 2))

    def search() -> Procedure[Values]:
        return (yield from ask_own(np.zeros(1), np.zeros((1, 1))))

    bad = lambda request: values_together(np.array([[np.nan, 2.0]]), 1)  # noqa: E731 (short)
    first, second = run(side_by_side(np.zeros(1), np.zeros(2), blocks, [search(), search()]), bad)
    assert np.isinf(first.objective[0]) and np.isinf(first.violation[0])
    assert second.objective[0] == 2 and second.violation[0] == 0


def test_answers_to_search_from_have_the_best_point_of_each_follower() -> None:
    points = np.linspace(0, 1, 11)[:, None] * np.ones((1, 2))
    parts = np.column_stack([(points[:, 0] - 0.3) ** 2, (points[:, 1] - 0.8) ** 2])
    y, values = basin_answers(points, values_together(parts, 0), (slice(0, 1), slice(1, 2)), 3)
    assert y[0] == pytest.approx([0.3, 0.8]) and values.objective[0] == pytest.approx(0, abs=1e-15)


def in_valleys(count: int, swapped: bool = False) -> Problem:
    """Each follower has two valleys; the deeper one of follower i is at the sign of s[i]."""
    s = np.where(np.arange(count) % 2, -1.0, 1.0)
    blocks = [(i, i + 1) for i in range(count)]
    if swapped:
        blocks = blocks[::-1]

    def f(x: Any, y: Any) -> Any:
        own = y[:, [first for first, _ in blocks]]
        return (own**2 - 1) ** 2 - 0.3 * s * own + 0.1 * (own - x) ** 2

    return Problem(
        lambda x, y: (x[:, 0] - 0.3) ** 2 + 0.01 * (y**2).sum(axis=1),
        f,
        BOX,
        vectorized=True,
        followers=[Follower(y_bounds=[(-2, 2)], block=block) for block in blocks],
        play="independent",
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_each_follower_is_found_in_its_own_valley(swapped: bool) -> None:
    """Five followers have 32 local minima together; each one has only two."""
    problem = in_valleys(5, swapped)
    result = minimize(problem, rng=2, max_evals=4000)
    own = np.array([result.y[block][0] for block in problem.blocks])
    assert np.sign(own).tolist() == [1, -1, 1, -1, 1] and result.certified


def test_followers_of_different_sizes_are_searched_side_by_side() -> None:
    problem = Problem(
        lambda x, y: float((x[0] - 0.5) ** 2 + y @ y),
        lambda x, y: [(y[0] - x[0]) ** 2, float((y[1:] - x[0]) @ (y[1:] - x[0])) + y[1] ** 4],
        BOX,
        followers=[Follower(y_bounds=BOX), Follower(y_bounds=BOX * 3)],
        play="independent",
    )
    result = minimize(problem, max_evals=1500)
    assert result.y[[0, 2, 3]] == pytest.approx(result.x[[0, 0, 0]], abs=1e-5)
    assert result.y[1] + 2 * result.y[1] ** 3 == pytest.approx(result.x[0], abs=1e-5)


def test_ask_and_tell_gives_sums_only() -> None:
    problem, _ = counted_copies(2)
    optimizer = Optimizer(problem, rng=1, max_evals=300)
    while not optimizer.done:
        batch = optimizer.ask()
        optimizer.tell(batch, Evaluator(problem)(batch).objective)
    assert optimizer.result.nfev <= 300 and np.isfinite(optimizer.result.F)


@pytest.mark.rest
def test_ten_followers_cost_at_most_twice_one() -> None:
    """benchmarks/several.py measures it with more seeds."""
    spent = []
    for count in (1, 10):
        problem = smd1_copies(count)
        runs = [minimize(problem, rng=seed, target=False) for seed in (41, 42, 43)]
        assert problem.optimum is not None and all(result.success for result in runs)
        assert [result.F for result in runs] == pytest.approx([problem.optimum.F] * 3, abs=1e-5)
        spent.append(np.median([result.nfev for result in runs]))
    assert spent[1] <= 2 * spent[0]
