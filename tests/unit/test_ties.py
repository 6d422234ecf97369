"""Ties: equally good answers of a follower, and the leader's choice among them."""

import numpy as np
import pytest

from bilevo.algorithms.shared.follower_search import Pair
from bilevo.algorithms.shared.sqp import LocalRule
from bilevo.algorithms.shared.tie_sets import TieSet, look_at_face, search_face
from bilevo.algorithms.shared.ties import (
    FlatSet,
    flat_directions,
    is_tie,
    preferred,
    search_widely,
    tie_order,
)
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure, Values
from bilevo.core.stance import Stance

START = np.array([0.5, 0.3])
FLAT = FlatSet(START, np.array([[0.0, 1.0]]))


def values(objective: FloatArray, violation: FloatArray | None = None) -> Values:
    objective = np.asarray(objective, float)
    violation = np.zeros(len(objective)) if violation is None else np.asarray(violation, float)
    return Values(objective, violation, np.empty((len(objective), 0)), 0)


def valley(y: FloatArray) -> Procedure[Values]:
    """f = (y0 - 0.5)^2, which does not depend on y1."""
    yield from ()
    return values((y[:, 0] - 0.5) ** 2)


def run(procedure: Procedure[object]) -> object:
    with pytest.raises(StopIteration) as end:
        procedure.send(None)
    return end.value.value


def hill(y: FloatArray) -> FloatArray:
    """F, least at y1 = 0.2 and greatest at the far end of the box, y1 = 1."""
    return (y[:, 1] - 0.2) ** 2


def test_a_direction_without_curvature_is_found() -> None:
    directions = run(flat_directions(valley, START))
    assert np.abs(directions) == pytest.approx(np.array([[0.0, 1.0]]), abs=1e-6)


def test_a_small_curvature_is_none_beside_a_large_scale() -> None:
    def bowl(y: FloatArray) -> Procedure[Values]:
        yield from ()
        return values((y**2).sum(axis=1))

    assert len(run(flat_directions(bowl, START))) == 0
    assert len(run(flat_directions(bowl, START, scale=1e7))) == 2


def test_nothing_is_flat_where_a_neighbour_fails() -> None:
    def failing(y: FloatArray) -> Procedure[Values]:
        yield from ()
        return values(np.where(np.arange(len(y)) == 1, np.inf, 0.0))

    assert len(run(flat_directions(failing, START))) == 0


@pytest.mark.parametrize(("stance", "y"), [(Stance.OPTIMISTIC, 0.2), (Stance.PESSIMISTIC, 1.0)])
def test_the_leader_reckons_with_the_tie_of_its_stance(stance: Stance, y: float) -> None:
    def upper(t: FloatArray) -> Procedure[Values]:
        yield from ()
        return values(hill(FLAT.points(t)))

    def both(y: FloatArray) -> Procedure[tuple[Values, Values]]:
        return (yield from valley(y)), values(hill(y))

    end = run(FLAT.search(upper, LocalRule(200), stance=stance))
    assert FLAT.points(end.point) == pytest.approx(np.array([0.5, y]), abs=1e-4)
    found, f, violation = run(
        search_widely(FLAT, both, 1e-12, 0.0, np.random.default_rng(1), stance)
    )
    assert found == pytest.approx(np.array([0.5, y]), abs=1e-4) and f <= 1e-12 and violation == 0


def test_what_is_no_tie_is_not_chosen() -> None:
    def rising(y: FloatArray) -> Procedure[tuple[Values, Values]]:
        yield from ()
        return values(1.0 + y[:, 1]), values(hill(y))

    assert run(search_widely(FLAT, rising, 0.0, 0.0, np.random.default_rng(1))) is None


def test_of_some_ties_the_preferred_one_depends_on_the_stance() -> None:
    upper = values(np.array([3.0, 1.0, 2.0]))
    assert (preferred(upper), preferred(upper, Stance.PESSIMISTIC)) == (1, 0)
    upper = values(np.array([3.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]))
    assert (preferred(upper), preferred(upper, Stance.PESSIMISTIC)) == (2, 1)


def test_ties_are_ordered_by_the_leader_and_the_rest_by_the_follower() -> None:
    f, tied = np.array([0.0, 5.0, 0.0, 4.0]), np.array([True, False, True, False])
    order = tie_order(f, np.zeros(4), tied, values(np.array([2.0, 1.0])))
    assert order.tolist() == [2, 0, 3, 1]
    assert tie_order(f, np.zeros(4), np.zeros(4, bool), None).tolist() == [0, 2, 3, 1]


def test_answers_are_tied_if_they_are_apart_and_equally_good() -> None:
    def pair(y: float, f: float, violation: float = 0.0) -> Pair:
        return Pair(np.zeros(1), np.array([y]), f, violation)

    assert is_tie(pair(0.1, 1.0), pair(0.9, 1.0 + 1e-9), 1e-6)
    assert not is_tie(pair(0.1, 1.0), pair(0.105, 1.0), 1e-6)
    assert not is_tie(pair(0.1, 1.0), pair(0.9, 1.1), 1e-6)
    assert not is_tie(pair(0.1, 1.0), pair(0.9, 1.0, 0.1), 1e-6)


def test_ties_on_a_curved_constraint_are_searched() -> None:
    """f is the distance from the middle, which must be at least 0.3: all points at 0.3 tie."""

    def lower(y: FloatArray) -> Procedure[Values]:
        yield from ()
        square = ((y - 0.5) ** 2).sum(axis=1)
        c = (0.09 - square)[:, None]
        return Values(square, np.maximum(c[:, 0], 0.0), c, 0)

    def upper(y: FloatArray) -> Procedure[Values]:
        """F = y_1, under y_0 >= 0.5 + 0.3 cos(1): the best tie is at an angle of 1."""
        yield from ()
        c = (0.5 + 0.3 * np.cos(1.0) - y[:, 0])[:, None]
        return Values(-y[:, 1], np.maximum(c[:, 0], 0.0), c, 0)

    ties = TieSet(lower, upper, 0.09, 1e-10, Stance.OPTIMISTIC)
    run(search_face(ties, np.array([[0.8, 0.5]]), 1.0))
    assert ties.found is not None
    angle = np.array([np.cos(1.0), np.sin(1.0)])
    assert ties.found.y == pytest.approx(0.5 + 0.3 * angle, abs=1e-6)
    worst = TieSet(lower, upper, 0.09, 1e-10, Stance.PESSIMISTIC)
    worst.found = ties.found
    run(search_face(worst, np.array([[0.8, 0.5]]), 1.0))
    assert worst.found.violation > 0  # for a pessimistic leader this tie is worse than any F


def test_a_leaders_constraint_that_no_answer_changes_does_not_hide_the_best_tie() -> None:
    """f is y_0, which must be at least 0.3, and F is least at y_1 = 0.7."""

    def lower(y: FloatArray) -> Procedure[Values]:
        yield from ()
        c = (0.3 - y[:, 0])[:, None]
        return Values(y[:, 0], np.maximum(c[:, 0], 0.0), c, 0)

    def upper(y: FloatArray) -> Procedure[Values]:
        yield from ()
        G = np.column_stack([np.full(len(y), 5.0), y[:, 1] - 0.9])
        return Values((y[:, 1] - 0.7) ** 2, np.maximum(G, 0.0).sum(axis=1), G, 0)

    start = np.array([0.3, 0.95])
    ties = TieSet(lower, upper, 0.3, 1e-9, Stance.OPTIMISTIC)
    assert run(look_at_face(ties, start)) < 1e-9
    assert ties.felt is not None and ties.felt.tolist() == [False, True]
    run(search_face(ties, start[None], 1.0))
    assert ties.found is not None
    assert ties.found.y == pytest.approx([0.3, 0.7], abs=1e-4)
    assert not ties.misses_constraints
    assert ties.found.violation == 5


def test_an_answer_that_violates_a_constraint_a_little_has_an_f_that_no_other_tie_has() -> None:
    def lower(y: FloatArray) -> Procedure[Values]:
        yield from ()
        c = (0.3 - y[:, 0])[:, None]
        return Values(2 * y[:, 0], np.where(c[:, 0] > 1e-8, c[:, 0], 0.0), c, 0)

    def upper(y: FloatArray) -> Procedure[Values]:
        yield from ()
        return values(y[:, 1])

    ties = TieSet(lower, upper, 0.6 - 2e-9, 1e-12, Stance.OPTIMISTIC)
    cost = run(look_at_face(ties, np.array([0.3 - 1e-9, 0.5])))
    assert cost == pytest.approx(2e-9, rel=0.1)
