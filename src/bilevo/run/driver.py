"""The driver: evaluates a session's batches one after another until the run has ended."""

from __future__ import annotations

from typing import Any

from bilevo.core.budget import StopReason
from bilevo.core.result import Result
from bilevo.run.advance import Advancer
from bilevo.run.evaluate import Evaluator
from bilevo.run.labour import OutOfTime
from bilevo.run.rundir import RunDir
from bilevo.run.session import Session, Turns


def drive(
    session: Session,
    evaluate: Evaluator,
    run_dir: RunDir | None = None,
    advance: Advancer | None = None,
) -> Result:
    """Run a session to its end. Ctrl-C ends it with the best pair so far.

    `advance` is for problems with a follower of their own.
    """
    if run_dir is None:
        return _drive(session, evaluate, None, advance)
    run_dir.follow(session)
    result = _drive(session, evaluate, run_dir, advance)
    run_dir.ended(result)
    return result


def _drive(
    session: Session, evaluate: Evaluator, run_dir: RunDir | None, advance: Advancer | None
) -> Result:
    known: dict[int, Any] = {}
    labour: Evaluator | Advancer = evaluate
    keep = None if run_dir is None else run_dir.keep
    try:
        while (batch := session.batch) is not None:
            if run_dir is not None:
                known = run_dir.known(batch)
                if session.replaying and len(known) < len(run_dir.pieces) and session.go_live():
                    points = sum(piece.counted for piece in known.values())
                    session.end(StopReason.CALLBACK, points)
                    break
            if isinstance(batch, Turns):
                assert advance is not None
                labour = advance
                session.moved(advance(batch, known, keep, session.time_left))
            else:
                labour = evaluate
                session.send(*evaluate(batch, known, keep, session.time_left))
        if session.replaying and session.go_live():  # a run that had ended
            session.end(StopReason.CALLBACK)
    except KeyboardInterrupt:
        session.end(StopReason.INTERRUPTED, labour.done)
    except OutOfTime:
        session.end(StopReason.MAX_TIME, labour.done)
    return session.result()
