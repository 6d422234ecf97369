"""The archive of pairs, and local searches at either level."""

import math

import numpy as np
import pytest

from bilevo.algorithms.rivals.archive import Archive
from bilevo.algorithms.rivals.local_search import polish_follower, polish_leader, resolve_ties
from bilevo.algorithms.rivals.pairs import best_answer, misjudged
from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.leader import LeaderState
from bilevo.core.request import Evaluate, Level, Procedure, Values
from bilevo.testing import Driven


def pair(x: float, y: float, F: float = 0.0, violation: float = 0.0) -> Pair:
    return Pair(np.array([x]), np.array([y]), 0.0, 0.0, F, violation)


def test_the_archive_gives_the_answers_of_the_nearest_leaders() -> None:
    archive = Archive()
    assert not len(archive.nearest(np.array([0.5])))
    archive = archive.with_answers([pair(0.1, 1.0), pair(0.9, 2.0), pair(0.5, 3.0)])
    assert archive.nearest(np.array([0.8]), 2).y.ravel().tolist() == [2.0, 3.0]
    archive = archive.with_answers([pair(0.9, 4.0)])
    assert archive.nearest(np.array([0.9]), 2).y.ravel().tolist() == [4.0, 3.0]  # 2.0 is replaced


def test_the_archive_keeps_no_failures_and_knows_its_best() -> None:
    archive = Archive().with_answers([pair(0.1, 0.0, math.inf, math.inf)])
    assert not len(archive) and not archive.good(0.5).size
    pairs = [pair(0.1, 0.0, 3.0), pair(0.2, 0.0, 1.0), pair(0.3, 0.0, 0.0, 1.0)]
    archive = archive.with_answers(pairs)
    assert archive.good(0.4).tolist() == [False, True, False]
    assert archive.good(0.7).tolist() == [True, True, False]


def drive(steps: Procedure) -> tuple[object, dict[Level, int]]:
    """Answer requests for a follower with a valley of answers, y0 + y1 = 2 x, and count them.

    The leader wants x = 0.3 and, of the follower's answers, the one with y0 = 0.1.
    """

    def objective(level: Level, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if level is Level.LOWER:
            return (y.sum(axis=1) - 2 * x[:, 0]) ** 2
        return (x[:, 0] - 0.3) ** 2 + (y[:, 0] - 0.1) ** 2

    driven = Driven(objective, 1, 2)
    return driven.run(steps), driven.counts


def test_a_follower_is_polished_from_a_start_without_moving_along_its_valley() -> None:
    x = np.array([0.4])
    found, counts = drive(polish_follower(LeaderState(None), x, np.array([0.2, 0.4]), 100))
    assert isinstance(found, Pair) and found.converged
    assert found.y == pytest.approx([0.3, 0.5], abs=1e-6)
    assert counts[Level.UPPER] == 0


def test_a_leader_is_polished_with_its_follower_solved_at_every_point() -> None:
    state = LeaderState(None)
    start, y = np.array([0.7]), np.array([0.7, 0.7])
    pairs, counts = drive(polish_leader(state, start, y, 40, 100))
    assert isinstance(pairs, list) and len(pairs) == counts[Level.UPPER] == state.spent <= 40
    assert all(pair.f < 1e-9 for pair in pairs)
    best = min(pairs, key=lambda pair: pair.F)
    # Nothing moves along the follower's valley: y0 = y1 = x, and F is least at x = 0.2.
    assert best.x == pytest.approx([0.2], abs=1e-4)


def test_the_leader_may_choose_among_a_followers_answers() -> None:
    tied = Pair(np.array([0.3]), np.array([0.5, 0.1]), 0.0, 0.0, 0.16, 0.0)
    found, _ = drive(resolve_ties(LeaderState(None), tied, 100))
    assert isinstance(found, Pair)
    assert found.y == pytest.approx([0.1, 0.5], abs=1e-3)
    assert found.f < 1e-9 and found.F < 1e-6


def test_nothing_is_chosen_where_the_follower_has_one_answer() -> None:
    only = Pair(np.array([0.3]), np.array([0.3, 0.3]), 0.0, 0.0, 0.04, 0.0)
    steps = resolve_ties(LeaderState(None), only, 100)
    request = steps.send(None)
    assert isinstance(request, Evaluate) and request.level is Level.LOWER
    values = ((request.y - 0.3) ** 2).sum(axis=1)
    with pytest.raises(StopIteration) as end:
        steps.send(Values.of(values, np.empty((len(values), 0)), 0, len(values)))
    assert end.value.value is only


def test_the_best_answer_is_the_followers() -> None:
    one, other = pair(0.1, 0.0), pair(0.1, 1.0)
    one.f, other.f = 1.0, 0.5
    assert best_answer([one, other]) is other
    other.lower_violation = 0.1
    assert best_answer([one, other]) is one


def test_an_answer_is_misjudged_if_another_is_better_by_more_than_rounding() -> None:
    state, one, other = LeaderState(None), pair(0.1, 0.0), pair(0.1, 1.0)
    one.f, other.f = 1.0, 1.0 - 1e-12
    assert not misjudged(state, one, other)
    other.f = 0.9
    assert misjudged(state, one, other) and not misjudged(state, other, one)
    other.lower_violation = 1.0
    assert not misjudged(state, one, other)
