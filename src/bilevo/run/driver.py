"""The driver: evaluates a session's batches one after another until the run has ended."""

from __future__ import annotations

from collections.abc import Callable

from bilevo.core.budget import StopReason
from bilevo.core.result import Result
from bilevo.run.evaluate import Outcome
from bilevo.run.session import Batch, Session


def drive(session: Session, evaluate: Callable[[Batch], Outcome]) -> Result:
    """Run a session to its end. Ctrl-C ends it with the best pair so far.

    Points of a batch that Ctrl-C or an exception breaks off are not counted.
    """
    try:
        while session.batch is not None:
            session.send(*evaluate(session.batch))
    except KeyboardInterrupt:
        session.end(StopReason.INTERRUPTED)
    return session.result()
