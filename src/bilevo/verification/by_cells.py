"""Verification of a follower with whole numbers or choices: its answers, compared cell by cell.

A cell is one combination of whole numbers and choices. If there are few cells, all of them are
compared, so that nothing can be missed if all variables are whole. In each cell the real numbers
are searched locally, and in the best cell from several starts. If there are too many cells, the
neighbours of the answer are compared, and independent searches start elsewhere. The certificate
says which of the two was done.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from bilevo.algorithms.shared.basin_moves import APART
from bilevo.algorithms.shared.cells import Cells, Compared, thorough_search
from bilevo.algorithms.shared.independent_search import Effort
from bilevo.algorithms.shared.polish import End
from bilevo.core.bounds import Grid
from bilevo.core.problem import Problem
from bilevo.core.request import Level, split
from bilevo.core.result import Certificate
from bilevo.core.streams import stream
from bilevo.core.tolerances import NEGLIGIBLE, rounding
from bilevo.run.session import Stopped
from bilevo.verification.certificate import UNKNOWN, Evidence, Tie, make_certificate
from bilevo.verification.follower_problem import (
    Answer,
    Claim,
    Evaluations,
    FollowerProblem,
    Settings,
    at_lower,
)
from bilevo.verification.inexact import settled

CELL_SEARCHES = {Effort.LOW: 4, Effort.NORMAL: 8, Effort.HIGH: 20}
AGREEING = 2  # So many searches must agree, if there are too many cells to compare.


def verify_by_cells(
    problem: Problem, claim: Claim, seed: int, effort: Effort, settings: Settings | None = None
) -> Certificate:
    """Return the certificate of a result's pair, whose y has whole numbers or choices."""
    evaluations = Evaluations(problem, settings)
    follower = FollowerProblem(problem, claim.x, evaluations)
    grid = Grid.of(problem.y_bounds)
    assert grid is not None
    cells = Cells(at_lower, grid)
    evaluations.progress = lambda: f"{len(cells.found)} of {grid.cells:g} combinations"
    nothing = Answer(claim.y, np.nan, np.nan)
    found = Evidence(
        Tie(nothing, UNKNOWN), nothing, np.maximum(problem.y_bounds.width, np.finfo(float).tiny)
    )
    searched = Compared()
    try:
        claimed = follower.claimed(claim.y)
        found.claimed = Tie(Answer(claim.y, claimed.f, claimed.violation), follower.leader(claim.y))
        found.best = found.claimed.answer
        evaluations.reserved = 1  # one evaluation is kept for F at a better answer
        rng = stream(seed, "verify")
        search = thorough_search(cells, [claimed.y], rng, CELL_SEARCHES[effort])
        searched = follower.run(search)
        found.missing = _doubt(cells, searched)
    except Stopped as stopped:
        tried = f"{len(cells.found)} of {grid.cells:g} combinations of whole numbers"
        found.missing = f"stopped at {stopped.reason} after {tried}"
    evaluations.reserved = 0
    found.searches, found.agreeing = searched.searches, searched.agreeing
    _compare(found, follower, cells)
    found.ties = settled(problem, claim.x, found.claimed, found.ties, evaluations)
    found.note = _note(cells, searched)
    return make_certificate(found, claim, effort, evaluations.counts, evaluations.failures)


def _doubt(cells: Cells, searched: Compared) -> str:
    """Return why the searches are not enough for a confirmation; "" if they are."""
    if searched.compared and cells.grid.all_whole:
        return ""
    if searched.agreeing >= AGREEING:
        return ""
    return f"only {searched.agreeing} of {searched.searches} independent searches agree"


def _note(cells: Cells, searched: Compared) -> str:
    if searched.compared:
        return f"all {searched.compared} combinations of its whole numbers were compared"
    return (
        f"its {cells.grid.cells:g} combinations of whole numbers are too many to compare: only "
        f"neighbours were, and {searched.searches} searches started elsewhere"
    )


def _compare(found: Evidence, follower: FollowerProblem, cells: Cells) -> None:
    """Compare the claimed answer with the best one, and list the answers that tie."""
    claimed = found.claimed.answer
    if np.isnan(claimed.f) or not cells.found:
        found.ties.append(found.claimed)
        return
    box, best = follower.box, cells.best

    def answer(end: End) -> Answer:
        return Answer(box.real(end.y[None])[0], end.f, end.violation)

    scale = min(cells.spread, 1.0 + abs(best.f)) if cells.real.size else 0.0
    found.negligible = max(4 * rounding(best.f), NEGLIGIBLE * scale)
    if not claimed.no_worse(answer(best)):
        found.best = answer(best)
    level = claimed.f <= found.best.f + found.negligible
    if claimed.violation == found.best.violation and level:
        found.ties.append(found.claimed)
    ends = cells.ties()
    with suppress(Stopped):
        upper = follower(Level.UPPER, np.array([end.y for end in ends]))
        rows = split(upper, [1] * len(ends))
        found.ties += [Tie(answer(end), row) for end, row in zip(ends, rows, strict=True)]
    if not found.ties:
        found.ties.append(Tie(found.best, UNKNOWN))
    places = np.array([tie.answer.y for tie in found.ties])
    found.indifferent = bool((np.ptp(places, axis=0) > APART * found.width).any())
