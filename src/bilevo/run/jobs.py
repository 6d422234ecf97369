"""Jobs: evaluations and solver steps that may run in another thread, process or machine.

A job computes one piece of a batch (see `dispatch`), such as one evaluation. A problem's functions
are sent by cloudpickle, so they may be lambdas or come from a notebook. An exception in these
functions is returned as a value; an exception of the executor is raised.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import blake2b
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray, frozen
from bilevo.core.problem import Problem
from bilevo.core.request import Level
from bilevo.core.slopes import RawSlopes
from bilevo.core.solver import Neighbour, StepOutcome
from bilevo.core.streams import stream
from bilevo.core.values import Returned


class CannotTravel(ValueError):  # noqa: N818 (the name says what is wrong)
    """A problem's functions cannot be sent to workers, or cannot be unpacked there."""


class EvaluationJob(NamedTuple):
    """A pair x (m,), y (n,) to evaluate at a level, or rows of pairs if the problem is vectorized.

    `width` is the number of constraints, or None if it is not known yet, and `other_width` is that
    of the other level, which counts in joint problems.
    """

    level: Level
    x: FloatArray
    y: FloatArray
    width: int | None
    other_width: int | None = None


class EvaluationOutcome(NamedTuple):
    """The outcome of a piece: objective (k,), constraints (k, c), and the error if it failed.

    `other` has both for the other level, if one simulation gives the values of both levels.
    """

    objective: FloatArray
    constraints: FloatArray
    error: str | None = None
    other: tuple[FloatArray, FloatArray] | None = None

    @classmethod
    def failed(cls, points: int, error: str) -> EvaluationOutcome:
        """Return the outcome of a failed piece: `points` objectives of NaN, and no constraints."""
        return cls(np.full(points, np.nan), np.empty((points, 0)), error)

    @property
    def counted(self) -> int:
        return len(self.objective)


class SlopeJob(NamedTuple):
    """A pair, or rows of pairs, at which a level's gradients are called; see `EvaluationJob`."""

    level: Level
    x: FloatArray
    y: FloatArray
    width: int | None


class SlopeOutcome(NamedTuple):
    """The outcome of a piece of `SlopeJob`: the slopes, and the error if it failed."""

    slopes: RawSlopes
    error: str | None = None

    @classmethod
    def failed(cls, points: int, m: int, n: int, error: str) -> SlopeOutcome:
        """Return the outcome of a failed piece: NaN, without constraints."""
        return cls(RawSlopes.unknown(points, 0, m, n), error)

    @property
    def counted(self) -> int:
        return len(self.slopes.objective_x)


class StepJob(NamedTuple):
    """A step of the problem's own solver in a task, the search for the answer to the leader x (m,).

    The task has taken `taken` steps before this one. `state` is the solver's state after the first
    `had` of these steps, or None if no state is kept. Steps `had` + 1 to `taken` are taken again.
    They must lead to the outcome `last`, unless it is None. A state that comes from another process
    is `Packed`. `near` is the finished search near which this one starts, if there is one.
    """

    task: int
    taken: int
    x: FloatArray
    seed: int
    had: int = 0
    state: Any = None
    last: StepOutcome | None = None
    near: Neighbour | None = None


Job = EvaluationJob | SlopeJob | StepJob
Outcome = EvaluationOutcome | SlopeOutcome | StepOutcome


class Reply(NamedTuple):
    """The outcome of a piece, the seconds it took, and the solver's state after a step.

    The state is None if the solver is done, and for evaluations.
    """

    outcome: Outcome
    seconds: float
    state: Any = None


class Changed(ValueError):  # noqa: N818 (the name says what is wrong)
    """A solver's steps, taken again, did not lead to the same outcome."""


class Raised:
    """An exception from user code. A worker that cannot send the exception sends its text."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Callable[..., Raised], tuple[Any, ...]]:
        import cloudpickle

        trace = "".join(traceback.format_exception(self.error))
        try:
            sent = cloudpickle.dumps(self.error)
            cloudpickle.loads(sent)
        except Exception:
            sent = cloudpickle.dumps(RuntimeError(error_line(self.error)))
        where = traceback.extract_tb(self.error.__traceback__)[-1:]
        lines = [f"{frame.filename}:{frame.lineno}" for frame in where]
        note = f"raised in a worker ({', '.join(lines) or 'that ended'})"
        return _unpack_raised, (sent, note, f"in the worker:\n{trace}")


def error_line(error: BaseException) -> str:
    """Return an error's type and message, of at most 500 characters."""
    try:
        text = str(error)
    except Exception:  # user classes may do anything
        text = "(it cannot be shown)"
    return f"{type(error).__name__}: {text}"[:500]


def _unpack_raised(sent: bytes, *notes: str) -> Raised:
    import cloudpickle

    error = cloudpickle.loads(sent)
    for note in notes:
        error.add_note(note)
    return Raised(error)


def evaluate_job(problem: Problem, job: EvaluationJob) -> Reply:
    """Return the values that a job asks for."""
    started = perf_counter()
    widths = dict.fromkeys(Level, job.other_width) | {job.level: job.width}
    returned = {
        level: Returned(level, problem.vectorized, width, problem.repeats(level))
        for level, width in widths.items()
    }
    outcome = evaluated(problem, returned, job.level, job.x, job.y)
    return Reply(outcome, perf_counter() - started)


def evaluated(
    problem: Problem, returned: Mapping[Level, Returned], level: Level, x: FloatArray, y: FloatArray
) -> EvaluationOutcome:
    """Return the outcome of a level at one pair, or at rows of pairs if functions take these."""
    if problem.simulator is not None:
        upper, lower = problem.simulator.levels(x, y, returned[Level.UPPER], returned[Level.LOWER])
        own, other = (upper, lower) if level is Level.UPPER else (lower, upper)
        return EvaluationOutcome(*own, other=other)
    if level is Level.LOWER and problem.separable and problem.several is not None:
        parts = np.atleast_2d(problem.several.each(x, y))
        return EvaluationOutcome(parts.sum(axis=-1), parts)
    objective, constraints = problem.functions(level)
    values = returned[level].objective(objective, x, y)
    return EvaluationOutcome(values, returned[level].constraints(constraints, x, y))


def derive_job(problem: Problem, job: SlopeJob) -> Reply:
    """Return the slopes that a job asks for."""
    started = perf_counter()
    level, x, y, width = job
    returned = Returned(level, problem.vectorized, width, problem.repeats(level))
    outcome = SlopeOutcome(problem.slopes_at(level, x, y, returned))
    return Reply(outcome, perf_counter() - started)


def solver_stream(seed: int, task: int) -> np.random.Generator:
    """Return the random numbers of the problem's own solver for a task."""
    return stream(seed, "own follower", 0, task)  # stored results depend on this name


def neighbour_of(x: FloatArray, outcome: StepOutcome) -> Neighbour | None:
    """Return what searches near x may start from, by the outcome of the last step at x.

    Return None if the search at x failed.
    """
    if not math.isfinite(outcome.f):
        return None
    return read_only(Neighbour(x, outcome.y, outcome.f, outcome.hint))


def read_only(near: Neighbour) -> Neighbour:
    x, y, f, hint = near
    return Neighbour(frozen(x), frozen(y), f, None if hint is None else frozen(hint))


def take_step(problem: Problem, job: StepJob) -> Reply:
    """Take one step of the problem's own solver, after those that the job's state lacks.

    Raise `Changed` if the steps that are taken again lead to another outcome than before.
    """
    started, solver = perf_counter(), problem.checked_solver()
    state, had = job.state, job.had
    if state is None:
        state, had = solver.start(job.x, solver_stream(job.seed, job.task), job.near), 0
    while had < job.taken:
        state, outcome = solver.advance(state, had == 0)
        had += 1
        if had == job.taken and job.last is not None and not _same(outcome, job.last):
            raise Changed(
                f"the follower of x = {job.x.tolist()} does not answer as it did before the run "
                "was resumed: the same steps must lead to the same answers"
            )
    state, outcome = solver.advance(state, had == 0)
    return Reply(outcome, perf_counter() - started, None if outcome.done else state)


def _same(outcome: StepOutcome, other: StepOutcome) -> bool:
    return np.array_equal(outcome.y, other.y, equal_nan=True) and outcome[1:3] == other[1:3]


class Packed(NamedTuple):
    """A solver's state as bytes, on its way between processes."""

    content: bytes


def pack_state(state: Any) -> Packed:
    """Return a state as bytes, which stay the same when the state changes later."""
    import cloudpickle

    try:
        return Packed(cloudpickle.dumps(state))
    except Exception as error:
        raise CannotTravel(
            f"the follower's state cannot travel between processes: {error}. It must not hold open "
            "files, locks, generators or the like; or leave workers out"
        ) from error


class Carrier:
    """A problem that can be sent to workers. It is packed once, and unpacked once in each process.

    If it cannot be unpacked, `problem` is an error, which is the reply to all jobs.
    """

    def __init__(self, problem: Problem | CannotTravel) -> None:
        self.problem = problem

    @cached_property
    def packed(self) -> tuple[bytes, bytes]:
        """Return the problem as bytes, and a key that identifies these bytes."""
        import cloudpickle

        try:
            content: bytes = cloudpickle.dumps(self.problem)
            return content, blake2b(content, digest_size=16).digest()
        except Exception as error:
            raise CannotTravel(
                f"the problem's functions cannot be sent to workers: {error}. They must not hold "
                "open files, locks, connections or the like; make those inside them"
            ) from error

    def __reduce__(self) -> tuple[Callable[..., Carrier], tuple[Any, ...]]:
        return unpack, self.packed

    def run(self, job: Job) -> Reply | Raised:
        """Do a job, and return its reply or the exception that it raised."""
        if isinstance(self.problem, CannotTravel):
            return Raised(self.problem)
        try:
            job.x.flags.writeable = False  # this flag is lost on the way to a worker
            if isinstance(job, StepJob):
                if job.near is not None:
                    job = job._replace(near=read_only(job.near))
                reply = take_step(self.problem, job._replace(state=unpack_state(job.state)))
                state = None if reply.state is None else pack_state(reply.state)
                return reply._replace(state=state)
            job.y.flags.writeable = False
            if isinstance(job, SlopeJob):
                return derive_job(self.problem, job)
            return evaluate_job(self.problem, job)
        except Exception as error:
            return Raised(error)
        except BaseException as error:  # such as SystemExit
            return Raised(RuntimeError(f"the functions raised {error_line(error)}"))


def unpack_state(state: Any) -> Any:
    """Return a solver's state, unpacked if it is `Packed`."""
    import cloudpickle

    return cloudpickle.loads(state.content) if isinstance(state, Packed) else state


_unpacked: dict[bytes, Carrier] = {}


def unpack(packed: bytes, key: bytes) -> Carrier:
    """Return the carrier of a packed problem; the last four carriers are kept."""
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
    """Do a job. This is the function that executors are given.

    `ticket` makes each call different, because Dask computes equal calls only once.
    """
    return carrier.run(job)
