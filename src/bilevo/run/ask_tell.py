"""Ask and tell, for users who call their functions themselves: a thin layer over the session."""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.checks import require, whole_number
from bilevo.core.request import Level
from bilevo.core.result import Result
from bilevo.core.values import BadValue, Returned
from bilevo.run.session import Batch, Evaluated, Session

MAX_CONSTRAINTS = 2**31  # A level must have fewer constraints than this.


class AskTell:
    """Hands out batches by `ask` and takes their values by `tell` until `done`."""

    def __init__(self, session: Session, n_G: int | None, n_g: int | None) -> None:
        self._session = session
        self._returned = {
            Level.UPPER: Returned("upper", True, n_G),
            Level.LOWER: Returned("lower", True, n_g),
        }

    @property
    def done(self) -> bool:
        return self._session.batch is None

    @property
    def result(self) -> Result:
        """Return the answer so far; it is final when `done` is True."""
        return self._session.result()

    def ask(self) -> Batch:
        """Return the batch to evaluate next. It stays the same until `tell` is given its values."""
        batch = self._session.batch
        if batch is None:
            raise ValueError(f"the run has ended ({self._session.stop}); see .result")
        assert isinstance(batch, Batch)  # `Optimizer` refuses problems with a solver
        return batch

    def tell(self, batch: Batch, objective: Any, constraints: Any = None) -> None:
        """Take the values of a batch: objective (k,) and constraints (k, c).

        `constraints` may be None if the batch's level has no constraints.
        """
        if batch is not self._session.batch:
            raise ValueError("tell takes the batch that ask gave last, once")
        returned, points = self._returned[batch.level], len(batch.x)
        if constraints is None:
            if returned.count != 0:
                number = "its" if returned.count is None else f"its {returned.count}"
                raise BadValue(f"the {batch.level} level needs {number} constraints, got None")
            constraints = np.empty((points, 0))
        values = returned.check_objective(objective, points)
        constraints = returned.check_constraints(constraints, points)
        self._session.take(Evaluated(values, constraints, {}))


def constraint_count(name: str, count: float, declared: bool) -> int:
    """Return a number of constraints; only a problem without functions may have some."""
    number = whole_number(count)
    fine = number is not None and 0 <= number < MAX_CONSTRAINTS and (declared or not number)
    what = f"a number of constraints below {MAX_CONSTRAINTS}, without a Problem only"
    require(fine, name, what, count)
    return number or 0


def never(x: FloatArray, y: FloatArray) -> float:
    """Refuse to be called, in place of a function that the caller evaluates."""
    raise RuntimeError("with ask and tell, the caller evaluates the functions")
