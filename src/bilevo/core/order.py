"""Deb's order: first feasible points by objective, then infeasible points by violation.

Objectives and violations hold no NaN (see `Values`): both are infinite where a point failed.
"""

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray

Key = tuple[float, float]


def order_key(objective: float, violation: float) -> Key:
    """Return a key that sorts in Deb's order: the violation, then the objective if feasible."""
    return violation, 0.0 if violation > 0 else objective


def ranking(objective: FloatArray, violation: FloatArray) -> IntArray:
    """Return indices from best to worst; ties keep their order."""
    if not any(violation.tolist()):  # for few numbers this is four times as fast as violation.any()
        return objective.argsort(kind="stable")
    feasible_objective = np.where(violation > 0, 0.0, objective)
    return np.lexsort((feasible_objective, violation))


def best_index(objective: FloatArray, violation: FloatArray) -> int:
    """Return the index that `ranking` puts first, without sorting if all are feasible."""
    if not any(violation.tolist()):
        return int(objective.argmin())
    return int(ranking(objective, violation)[0])


def no_worse(
    objective: float, violation: float, than_objective: float, than_violation: float
) -> bool:
    """Tell whether a point is better than another point, or tied with it."""
    if violation != than_violation:
        return violation < than_violation
    return violation > 0 or objective <= than_objective
