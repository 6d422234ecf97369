"""Searches that are left out because f falls all the way to a known answer."""

from collections.abc import Callable

import numpy as np
import pytest
from test_warm_follower import Bed, box_of

from bilevo import Problem
from bilevo.algorithms.drc_plus.downhill import ARRIVED, PLACES, leave_out
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.core.request import Level
from bilevo.optimizers.sampling import latin_hypercube

X = np.array([0.5, 0.5])
Function = Callable[[np.ndarray, np.ndarray], float]


def bowl(x: np.ndarray, y: np.ndarray) -> float:
    return float(y @ (np.arange(1, len(y) + 1) * y) - y.sum())


def settled(problem: Problem, y: np.ndarray, **switches: bool) -> tuple[Bed, WarmTask]:
    """A bed that has measured f at an answer, and a task there."""
    bed = Bed(problem, **switches)
    task = bed.at(X, y)
    bed.driven.run(bed.known.measure_hessian(task.pair))
    return bed, task


def split_starts(
    bed: Bed, answer: WarmTask, starts: np.ndarray
) -> tuple[list[WarmTask], list[WarmTask]]:
    tasks = [bed.at(X, y) for y in starts]
    made, ends = bed.driven.run(leave_out(bed.solver, tasks, answer.pair))
    assert len(made) + len(ends) == len(starts)
    return made, ends


def test_in_one_basin_no_search_is_made() -> None:
    n = 4
    bed, answer = settled(box_of(bowl, n), 0.5 / np.arange(1, n + 1))
    starts = latin_hypercube(20, n, np.random.default_rng(5))
    before = bed.driven.counts[Level.LOWER]
    made, ends = split_starts(bed, answer, starts)
    assert not made and all(end.arrived and end.solved for end in ends)
    distances = [np.abs(end.pair.y - answer.pair.y).max() for end in ends]
    assert max(distances) <= 1.01 * ARRIVED
    assert bed.driven.counts[Level.LOWER] - before <= 20 * (len(PLACES) + 2)


@pytest.mark.parametrize("width", [0.1, 0.03, 0.01])
def test_a_small_basin_at_the_start_is_noticed(width: float) -> None:
    place = np.array([0.85, 0.2])

    def f(x: np.ndarray, y: np.ndarray) -> float:
        away = np.abs(y - place).max() / width
        return bowl(x, y) - 0.5 * max(0.0, 1 - away) ** 2

    bed, answer = settled(box_of(f), np.array([0.5, 0.25]))
    offsets = width * np.random.default_rng(7).uniform(-0.6, 0.6, (40, 2))
    made, _ = split_starts(bed, answer, place + offsets)
    assert len(made) == 40


def two_wells(x: np.ndarray, y: np.ndarray) -> float:
    return float(((y[0] - 0.2) * (y[0] - 0.8)) ** 2 + (y[1] - 0.5) ** 2)


def test_beyond_a_barrier_searches_are_made() -> None:
    bed, answer = settled(box_of(two_wells), np.array([0.2, 0.5]))
    starts = np.array([[0.9, 0.3], [0.6, 0.5], [0.3, 0.9], [0.0, 0.1]])
    made, ends = split_starts(bed, answer, starts)
    assert [task.pair.y[0] for task in made] == [0.9, 0.6] and len(ends) == 2


def flat(x: np.ndarray, y: np.ndarray) -> float:
    return float((y[0] - 0.5) ** 2)


def failing(x: np.ndarray, y: np.ndarray) -> float:
    return float("nan") if 0.55 < y[0] < 0.6 else float(((y - 0.5) ** 2).sum())


@pytest.mark.parametrize("f", [flat, failing])
def test_where_f_is_level_or_fails_searches_are_made(f: Function) -> None:
    bed, answer = settled(box_of(f), np.array([0.5, 0.5]))
    assert split_starts(bed, answer, np.array([[0.9, 0.9]]))[1] == []


def test_with_constraints_searches_are_made() -> None:
    problem = Problem(
        lambda x, y: 0.0, bowl, [(0, 1)] * 2, [(0, 1)] * 2, g=lambda x, y: y[0] - 0.9
    )
    bed, answer = settled(problem, np.array([0.5, 0.25]))
    assert split_starts(bed, answer, np.array([[0.1, 0.1]]))[1] == []


def test_before_curvatures_are_measured_searches_are_made() -> None:
    bed = Bed(box_of(bowl))
    answer = bed.at(X, np.array([0.5, 0.25]))
    assert split_starts(bed, answer, np.array([[0.1, 0.1]]))[1] == []


def test_the_switch_turns_it_off() -> None:
    bed, answer = settled(box_of(bowl), np.array([0.5, 0.25]), lines=False)
    assert split_starts(bed, answer, np.array([[0.1, 0.1]]))[1] == []
