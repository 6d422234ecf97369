"""The driver: gets the answers to a session's batches, one by one, until the run has ended."""

from __future__ import annotations

from bilevo.core.budget import StopReason
from bilevo.core.result import Result
from bilevo.run.session import Session, Source, Stopped


def drive(session: Session, source: Source) -> Result:
    """Run a session to its end and return its result. Ctrl-C ends it with the best pair so far."""
    try:
        while (batch := session.batch) is not None:
            session.take(source.answer(session, batch))
    except KeyboardInterrupt:
        session.end(StopReason.INTERRUPTED, source.counted)
    except Stopped as stopped:
        session.end(stopped.reason, stopped.counted)
    return source.ended(session)
