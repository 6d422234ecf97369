"""Translations of requests: a step between what an algorithm asks for and what is evaluated.

An algorithm asks for values at single points, whatever the problem is. Some problems need fewer
evaluations for them. For each reason there is a translation: `Simulations`, `Repeats`, `Packing`.
The session passes each request through the list of its translations, hands out what is left of it,
and passes the answers back. Everything depends on the order of requests only, so a replay and
workers give the same run. Counting is left to the session.
"""

from __future__ import annotations

from typing import Protocol

from bilevo.core.problem import Problem
from bilevo.run.batches import Batch, Evaluated, Saved
from bilevo.run.packing import Packing
from bilevo.run.repeats import Repeats
from bilevo.run.simulations import Simulations


class Translation(Protocol):
    """Leaves out points of a batch, and puts their values back."""

    saved: Saved  # how the points count that are left out

    def reduce(self, asked: Batch) -> Batch:
        """Return what must be evaluated to answer a batch; it may have no points."""

    def complete(self, answers: Evaluated) -> Evaluated:
        """Return the answers to the batch that was reduced last, from those to what was left."""


def translations_for(problem: Problem, gives_parts: bool) -> list[Translation]:
    """Return the translations of a problem's requests, in the order in which they are applied.

    `gives_parts` says whether answers have the parts f_i of f; those that users tell have none.
    """
    if problem.simulator is not None:
        return [Simulations()]  # it remembers all pairs, whole or not
    found: list[Translation] = []
    if problem.has_whole:  # only whole numbers and choices make different unit points one pair
        found.append(Repeats())
    if problem.separable and gives_parts:
        found.append(Packing(problem))
    return found
