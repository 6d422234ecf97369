"""The driver: evaluates a session's batches one after another until the run has ended."""

from __future__ import annotations

from bilevo.core.budget import StopReason
from bilevo.core.result import Result
from bilevo.run.evaluate import Evaluator, OutOfTime
from bilevo.run.session import Session


def drive(session: Session, evaluate: Evaluator) -> Result:
    """Run a session to its end. Ctrl-C ends it with the best pair so far."""
    try:
        while session.batch is not None:
            session.send(*evaluate(session.batch))
    except KeyboardInterrupt:
        session.end(StopReason.INTERRUPTED, evaluate.done)
    except OutOfTime:
        session.end(StopReason.MAX_TIME, evaluate.done)
    return session.result()
