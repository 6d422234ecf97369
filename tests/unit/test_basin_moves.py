"""Moves from one basin of f to others."""

import numpy as np

from bilevo.algorithms.shared.basin_moves import all_at_once, moves_between


def test_moves_are_distances_between_basins_and_parts_of_them() -> None:
    moves = moves_between(np.array([[0.2, 0.5], [0.5, 0.5]]))
    steps = sorted(float(row[0]) for row in moves)
    assert np.allclose(steps, [-0.3, -0.15, -0.1, 0.1, 0.15, 0.3])
    assert not moves[:, 1].any()


def test_two_axes_are_moved_along_at_once() -> None:
    moves = moves_between(np.array([[0.2, 0.5], [0.5, 0.9]]))
    both = moves[(moves != 0).all(axis=1)]
    assert len(both) == 4
    assert {tuple(np.sign(row)) for row in both} == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_one_basin_gives_no_moves() -> None:
    assert moves_between(np.empty((0, 2))).shape == (0, 2)
    assert moves_between(np.array([[0.2, 0.5]])).shape == (0, 2)
    assert moves_between(np.array([[0.2, 0.5], [0.201, 0.5]])).shape == (0, 2)


def test_the_best_moves_that_share_no_axis_are_made_together() -> None:
    moves = np.array([[0.1, 0.0], [0.2, 0.0], [0.0, 0.3], [0.0, -0.3]])
    assert all_at_once(moves, np.array([1.0, 2.0, 0.5, -1.0]), 0.0).tolist() == [0.2, 0.3]
    assert all_at_once(moves, np.array([1.0, 2.0, 0.5, -1.0]), 1.5).tolist() == [0.2, 0.0]
