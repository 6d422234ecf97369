"""A solver of followers that learns from the followers solved before.

Followers of neighbouring leaders have similar answers, and their objectives have similar curvature.
So a new search starts at the answer that a regression over solved followers predicts, with the
Hessian of the last search. Then one gradient (by finite differences, which count as evaluations)
and one step of `sqp` are usually enough. The solver checks its assumptions:

- A local search that does not settle shows that f is not smooth there. Then CMA-ES takes over, and
  `Experience.smooth` records how often that happens.
- A predicted start may lie in a wrong basin, or in a wrong part of the feasible set. So
  `test_against_neighbours` compares an answer with answers of other followers, `search_box`
  searches the whole box, and `check_answer` makes independent searches until enough of them agree.

The solver does not know the leader's objective, so it can serve any bilevel algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevo.algorithms.drc_plus.box_search import search_box
from bilevo.algorithms.drc_plus.experience import WarmTask
from bilevo.algorithms.drc_plus.local_follower import ITERATIONS, LocalFollower
from bilevo.core.arrays import FloatArray
from bilevo.core.request import Procedure

MAX_RIVALS = 6  # The most answers of other followers that an answer is compared with.


@dataclass(frozen=True, slots=True)
class WarmFollower(LocalFollower):
    """The solver of a run's followers. Each switch turns one ingredient off, to measure it."""

    regression: bool = True  # predict where searches start
    rivals: bool = True  # compare answers with answers of other followers

    def start(self, x: FloatArray, scale: FloatArray) -> Procedure[WarmTask]:
        """Return a task at the best of the answers that `Experience.predictions` gives for x."""
        return self.at(x, self.known.predictions(x, scale, self.regression))

    def improve(
        self,
        task: WarmTask,
        tolerance: float,
        rng: np.random.Generator,
        iterations: int = ITERATIONS,
        thorough: bool = False,
    ) -> Procedure[WarmTask]:
        """Continue a search for some iterations, or until f is within a tolerance of its minimum.

        If the local search does not settle, other searches take over. If they find no feasible
        answer, a `thorough` call also searches the whole box.
        """
        new = yield from self.search_locally(task, tolerance, iterations)
        if not new.solved and ITERATIONS > iterations <= new.executions / (self.spec.n_each + 1):
            return new  # it ran out of iterations, which does not show whether f is smooth
        if new.pair.lower_violation == 0:
            self.known.count(new.smooth)
        if not new.solved and new.pair.lower_violation > 0:
            new = yield from self.test_against_neighbours(new, tolerance)
            if new.pair.lower_violation > 0 and thorough:
                other = yield from search_box(self, task.pair.x, rng, relaxed=True)
                new = other.better(new)
        elif not new.solved:
            new = yield from self.search_around(new, tolerance, rng)
        self.known.learn(new.pair)
        return new

    def test_against_neighbours(self, task: WarmTask, tolerance: float) -> Procedure[WarmTask]:
        """Search from the best answer of other followers, if it may be better at this task's x.

        If there are constraints, the best answer without them is tried too. Returns the task itself
        or a task with a better answer, whose F is not evaluated.
        """
        if not self.rivals:
            return task
        y = self.known.rivals(task.pair.y, MAX_RIVALS)
        if task.lower.constraints.size:
            freed = yield from self.search_freely(task, tolerance)
            y = np.concatenate([y, freed.pair.y[None]])
        if not len(y):
            return task
        rival = yield from self.at(task.pair.x, y)
        if task.pair.lower_violation == 0 and task.pair.follower_no_worse(rival.pair):
            return task
        return task.better((yield from self.search_locally(rival, tolerance)))
