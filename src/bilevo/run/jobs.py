"""One piece of work: the part of evaluation that may run in another thread, process or machine.

A problem's functions travel by cloudpickle, so that lambdas and functions of a notebook do, too.
What they raise travels as a value: an exception that comes out of an executor is its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.solver import StepOutcome
from bilevo.core.streams import stream
from bilevo.core.values import Returned


class CannotTravel(ValueError):  # noqa: N818 (reads as what is wrong)
    """A problem's functions cannot be sent to workers, or not be unpacked there."""


class EvaluationJob(NamedTuple):
    """A point x (m,), y (n,), or rows of a vectorized problem, to evaluate at a level.

    `width` is the number of constraints, if known.
    """

    level: Level
    x: FloatArray
    y: FloatArray
    width: int | None


class EvaluationReply(NamedTuple):
    """A piece's objective (k,), constraints (k, c), and the seconds they took."""

    objective: FloatArray
    constraints: FloatArray
    seconds: float


class StepJob(NamedTuple):
    """A step of the user's follower for a task: its leader x (m,), and where its search stands.

    The state, `Packed` once it has travelled, has had `had` steps, `taken` are wanted before this
    one: what is missing is made again, and must lead to `last`. No state: from the start.
    """

    task: int
    taken: int
    x: FloatArray
    seed: int
    had: int = 0
    state: Any = None
    last: StepOutcome | None = None


class StepReply(NamedTuple):
    """Where a step has led, the follower's state after it (None once done), and the seconds."""

    outcome: StepOutcome
    state: Any
    seconds: float


Job = EvaluationJob | StepJob
Reply = EvaluationReply | StepReply


class Changed(ValueError):  # noqa: N818 (reads as what is wrong)
    """A follower's steps, made again, did not lead to where they had led."""


class Raised:
    """An exception of the user's functions; one that cannot travel does so as its text."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Callable[..., Raised], tuple[Any, ...]]:
        import cloudpickle

        note = "".join(traceback.format_exception(self.error))
        try:
            sent = cloudpickle.dumps(self.error)
            cloudpickle.loads(sent)
        except Exception:
            sent = cloudpickle.dumps(RuntimeError(described(self.error)))
        return _unpack_raised, (sent, f"raised in a worker:\n{note}")


def described(error: BaseException) -> str:
    """An error in a line, of at most 500 characters."""
    try:
        text = str(error)
    except Exception:  # user classes may do anything
        text = "(it cannot be shown)"
    return f"{type(error).__name__}: {text}"[:500]


def _unpack_raised(sent: bytes, note: str) -> Raised:
    import cloudpickle

    error = cloudpickle.loads(sent)
    error.add_note(note)
    return Raised(error)


def evaluate_job(problem: Problem, job: EvaluationJob) -> EvaluationReply:
    """The values that a job asks for."""
    started = perf_counter()
    level, x, y, width = job
    returned = Returned(level, problem.vectorized, width, problem.repeats(level))
    objective, constraints = problem.functions(level)
    values = returned.objective(objective, x, y)
    return EvaluationReply(
        values, returned.constraints(constraints, x, y), perf_counter() - started
    )


def own_stream(seed: int, task: int) -> np.random.Generator:
    """The random numbers of the user's follower for a task."""
    return stream(seed, "own follower", 0, task)


def take_step(problem: Problem, job: StepJob) -> StepReply:
    """One step of the problem's own follower."""
    started, solver = perf_counter(), problem.checked_solver()
    state, had = job.state, job.had
    if state is None:
        state, had = solver.start(job.x, own_stream(job.seed, job.task)), 0
    while had < job.taken:
        state, outcome = solver.advance(state, had == 0)
        had += 1
        if had == job.taken and job.last is not None and not _same(outcome, job.last):
            raise Changed(
                f"the follower of x = {job.x.tolist()} does not answer as it did before the run "
                "was taken up again: the same steps must lead to the same answers"
            )
    state, outcome = solver.advance(state, had == 0)
    return StepReply(outcome, None if outcome.done else state, perf_counter() - started)


def _same(outcome: StepOutcome, other: StepOutcome) -> bool:
    return np.array_equal(outcome.y, other.y, equal_nan=True) and outcome[1:3] == other[1:3]


class Packed(NamedTuple):
    """A follower's state for its way between processes."""

    content: bytes


def packed(state: Any) -> Packed:
    """A state as it travels; nobody who works on it afterwards changes what is packed."""
    import cloudpickle

    try:
        return Packed(cloudpickle.dumps(state))
    except Exception as error:
        raise CannotTravel(
            f"the follower's state cannot travel between processes: {error}. It must not hold open "
            "files, locks, generators or the like; or leave workers out"
        ) from error


class Carrier:
    """A problem that can travel: packed once, and unpacked once in each process it comes to.

    One that could not be unpacked is an error, which answers all jobs.
    """

    def __init__(self, problem: Problem | CannotTravel) -> None:
        self.problem = problem

    @cached_property
    def parcel(self) -> tuple[bytes, bytes]:
        """The problem as bytes, and a key to know them by."""
        import cloudpickle

        try:
            packed: bytes = cloudpickle.dumps(self.problem)
            return packed, blake2b(packed, digest_size=16).digest()
        except Exception as error:
            raise CannotTravel(
                f"the problem's functions cannot be sent to workers: {error}. They must not hold "
                "open files, locks, connections or the like; make those inside them"
            ) from error

    def __reduce__(self) -> tuple[Callable[..., Carrier], tuple[Any, ...]]:
        return unpack, self.parcel

    def run(self, job: Job) -> Reply | Raised:
        if isinstance(self.problem, CannotTravel):
            return Raised(self.problem)
        try:
            job.x.flags.writeable = False  # lost on the way
            if isinstance(job, StepJob):
                return self._step(self.problem, job)
            job.y.flags.writeable = False
            return evaluate_job(self.problem, job)
        except Exception as error:
            return Raised(error)
        except BaseException as error:  # such as that of sys.exit
            return Raised(RuntimeError(f"the functions raised {described(error)}"))

    def _step(self, problem: Problem, job: StepJob) -> StepReply:
        reply = take_step(problem, job._replace(state=opened(job.state)))
        return reply if reply.state is None else reply._replace(state=packed(reply.state))


def opened(state: Any) -> Any:
    """A follower's state, whether it has travelled or not."""
    import cloudpickle

    return cloudpickle.loads(state.content) if isinstance(state, Packed) else state


_unpacked: dict[bytes, Carrier] = {}


def unpack(packed: bytes, key: bytes) -> Carrier:
    """The carrier of packed functions; the last few are kept."""
    import cloudpickle

    if key not in _unpacked:
        while len(_unpacked) > 3:
            _unpacked.pop(next(iter(_unpacked)), None)
        try:
            _unpacked[key] = Carrier(cloudpickle.loads(packed))
        except Exception as error:
            _unpacked[key] = Carrier(CannotTravel(f"a worker cannot load the problem: {error!r}"))
    return _unpacked[key]


def carry_out(carrier: Carrier, ticket: int, job: Job) -> Reply | Raised:
    """What a foreign executor is given to run.

    The ticket makes each call a different one: Dask takes equal calls for the same.
    """
    return carrier.run(job)
