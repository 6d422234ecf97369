"""The driver: evaluates a session's batches one after another until the run has ended."""

from __future__ import annotations

from bilevo.core.budget import StopReason
from bilevo.core.result import Result
from bilevo.run.evaluate import Evaluator, Outcome, OutOfTime
from bilevo.run.rundir import RunDir
from bilevo.run.session import Session


def drive(session: Session, evaluate: Evaluator, run_dir: RunDir | None = None) -> Result:
    """Run a session to its end. Ctrl-C ends it with the best pair so far."""
    if run_dir is None:
        return _drive(session, evaluate)
    run_dir.follow(session)
    result = _drive(session, evaluate, run_dir)
    run_dir.ended(result)
    return result


def _drive(session: Session, evaluate: Evaluator, run_dir: RunDir | None = None) -> Result:
    known: dict[int, Outcome] = {}
    keep = None if run_dir is None else run_dir.keep
    try:
        while (batch := session.batch) is not None:
            if run_dir is not None:
                known = run_dir.known(batch)
                if session.replaying and len(known) < len(run_dir.pieces) and session.go_live():
                    points = sum(len(outcome.objective) for outcome in known.values())
                    session.end(StopReason.CALLBACK, points)
                    break
            session.send(*evaluate(batch, known, keep, session.time_left))
        if session.replaying and session.go_live():  # a run that had ended
            session.end(StopReason.CALLBACK)
    except KeyboardInterrupt:
        session.end(StopReason.INTERRUPTED, evaluate.done)
    except OutOfTime:
        session.end(StopReason.MAX_TIME, evaluate.done)
    return session.result()
