"""Deb's order: feasible before infeasible, then the objective; among infeasible, the violation.

Objectives and violations hold no NaN (see `Values`): what failed has both infinite.
"""

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray

Key = tuple[float, float]


def order_key(objective: float, violation: float) -> Key:
    """A key that sorts in Deb's order: the violation, then the objective where it counts."""
    return violation, 0.0 if violation > 0 else objective


def ranking(objective: FloatArray, violation: FloatArray) -> IntArray:
    """Indices from best to worst; ties keep their order."""
    if not any(violation.tolist()):  # of a few numbers a quarter of the time of violation.any()
        return objective.argsort(kind="stable")
    feasible_objective = np.where(violation > 0, 0.0, objective)
    return np.lexsort((feasible_objective, violation))


def best_index(objective: FloatArray, violation: FloatArray) -> int:
    """The index that `ranking` puts first, without sorting where nothing is infeasible."""
    if not any(violation.tolist()):
        return int(objective.argmin())
    return int(ranking(objective, violation)[0])


def no_worse(
    objective: float, violation: float, than_objective: float, than_violation: float
) -> bool:
    """Whether the first of two is better than or tied with the second."""
    if violation != than_violation:
        return violation < than_violation
    return violation > 0 or objective <= than_objective
