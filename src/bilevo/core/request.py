"""The language between algorithms and the driver.

Rules:
- An algorithm is a generator. It yields requests and is sent values; it does no I/O of its own.
- `Evaluate` asks for one level's values at k pairs, in unit coordinates; `Values` answer it.
- `Derive` asks for one level's slopes at k pairs, where the user gives gradients; `Slopes` answer
  it. `Spec.slopes` says which slopes there are.
- `Step` asks for one more step in each of k searches by the problem's own solver; `StepValues`
  answer it. The request says how many steps each search has taken, so that the driver can repeat
  it.
- `Incumbent` reports the best pair so far; it gets no answer.
- A procedure is a part of an algorithm: a generator that yields requests and returns a result.
  `yield from` composes procedures. `together` runs several procedures and joins their requests in
  one batch. `alongside` runs a second procedure within the batches of the first.
- Points are float64 arrays in the unit box. F must have been evaluated at a pair before it is
  reported as the best. The driver raises `BadRequest` if a request breaks a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from bilevo.core.arrays import BoolArray, FloatArray, IntArray
from bilevo.core.checks import described, shown

ALONE = -1  # in place of a neighbour's number: the search starts without a neighbour
HUGE = 1e300  # Sums of numbers below this do not overflow.
T = TypeVar("T")
U = TypeVar("U")


class BadRequest(ValueError):  # noqa: N818 (the name says what is wrong)
    """An algorithm has broken a rule above; the message says which one, and what is right."""


class Level(StrEnum):
    """The leader's level or the follower's."""

    UPPER = "upper"
    LOWER = "lower"

    __hash__ = str.__hash__  # levels are keys of dictionaries, and hashes of enums are slow


class Evaluate(NamedTuple):
    """Asks for one level's objective and constraints at pairs x (k, m), y (k, n)."""

    level: Level
    x: FloatArray
    y: FloatArray


class Derive(NamedTuple):
    """Asks for the slopes of one level's objective and constraints at pairs x (k, m), y (k, n)."""

    level: Level
    x: FloatArray
    y: FloatArray


class Step(NamedTuple):
    """Asks for one more step of the problem's own solver in tasks (k,), whose leaders are x (k, m).

    Each task of a run has its own number; `taken` (k,) says how many steps it has had. `near` (k,)
    says near which finished task it starts: that task's number, or `ALONE`. The answer of the
    finished task is in the journal, so the driver can always make the same start again. `near` is
    the same in all steps of a task. None stands for `ALONE` in all rows.
    """

    task: IntArray
    taken: IntArray
    x: FloatArray
    near: IntArray | None = None

    @property
    def level(self) -> Level:
        return Level.LOWER

    def neighbour(self, row: int) -> int:
        """Return the task near which the task of a row starts, or `ALONE`."""
        return ALONE if self.near is None else int(self.near[row])


class Incumbent(NamedTuple):
    """The best pair so far: x (m,), y (n,), its values and its violation at both levels.

    `violation` is the sum of the violations in the `Values` of both levels. The driver fills in
    `tolerated`, the violation that `ctol` has left out of these. `unfinished` says that the
    problem's own solver was not done with this answer.

    The other fields hold what a method found when it checked the follower's answer. It made
    `searches` independent searches, which cost `check_evals` evaluations. `agreeing` of them ended
    at the best f. The pair's f is `gap` above the best f; `gap` is NaN without a check. `certified`
    says that the answer passed the check; if it did not, `doubt` may say why. `compared` is the
    number of combinations of whole numbers, if the check compared all of them. `F_optimistic`,
    `F_pessimistic` and `ties` say what is known about ties at x (see `core.result`).
    """

    x: FloatArray
    y: FloatArray
    F: float
    f: float
    violation: float
    gap: float = math.nan
    unfinished: bool = False
    certified: bool = False
    searches: int = 0
    agreeing: int = 0
    check_evals: int = 0
    doubt: str = ""
    tolerated: float = 0.0
    compared: int = 0
    F_optimistic: float = math.nan
    F_pessimistic: float = math.nan
    ties: str = ""


class Values(NamedTuple):
    """The answer to `Evaluate`: objective (k,), violation (k,) and constraints (k, c).

    The violation leaves out constraints within their tolerances (see `bilevo.core.feasibility`);
    `constraints` are as they were computed. `spent` is the driver's count of this level's
    evaluations so far, including these k. A row with a number that is not finite gets objective and
    violation inf: it ranks last and is never feasible. `parts` (k, N) has all f_i (`Spec.blocks`).
    """

    objective: FloatArray
    violation: FloatArray
    constraints: FloatArray
    spent: int
    parts: FloatArray | None = None

    @classmethod
    def of(
        cls,
        objective: FloatArray,
        constraints: FloatArray,
        repeats: int,
        spent: int,
        tolerances: FloatArray | None = None,
    ) -> Values:
        """Make values from raw numbers; the violation leaves out the last `repeats` constraints.

        In the violation, a constraint up to its tolerance counts as 0, and a larger one counts in
        full. The `tolerances` (c,) are 0 if they are not given. See `bilevo.core.feasibility`.
        """
        # A sum is finite only if all its terms are. For a few numbers this test is the fastest.
        total = sum(objective.tolist())
        count = constraints.shape[1]
        if not count:
            violation = np.zeros(len(objective))
        else:
            numbers = constraints.ravel().tolist()
            moderate = max(numbers, default=0.0) < HUGE
            counted = constraints
            if tolerances is not None:
                counted = np.where(constraints > tolerances, constraints, 0.0)
            violation = _violation(counted[:, : count - repeats], moderate)
            total += sum(numbers) + sum(violation.tolist())
        if not math.isfinite(total):
            finite = np.isfinite(objective) & np.isfinite(violation)
            finite &= np.isfinite(constraints).all(axis=1)
            objective = np.where(finite, objective, np.inf)
            violation = np.where(finite, violation, np.inf)
        return cls(objective, violation, constraints, spent)

    def part(self, start: int, end: int) -> Values:
        """Return the values of some consecutive rows."""
        rows, parts = slice(start, end), None if self.parts is None else self.parts[start:end]
        numbers = self.objective[rows], self.violation[rows], self.constraints[rows]
        return Values(*numbers, self.spent, parts)


class StepValues(NamedTuple):
    """The answer to `Step`: the followers' best answers y (k, n) so far, in the user's units.

    f (k,) and violation (k,) are inf where an answer is not finite or the solver failed; `done`
    (k,) says which searches have ended. `spent` is the lower level's total cost so far.
    """

    y: FloatArray
    f: FloatArray
    violation: FloatArray
    done: BoolArray
    spent: int

    def part(self, start: int, end: int) -> StepValues:
        """Return the values of some consecutive tasks."""
        rows = slice(start, end)
        return StepValues(
            self.y[rows], self.f[rows], self.violation[rows], self.done[rows], self.spent
        )


class Slopes(NamedTuple):
    """The answer to `Derive`: derivatives with respect to x and to y, in unit coordinates.

    `objective_x` is (k, m), `objective_y` (k, n), `constraints_x` (k, c, m) and `constraints_y`
    (k, c, n). NaN stands for what the user does not give, and for what failed. c is 0 if the number
    of constraints is not known yet. `spent` is the driver's count of this level's gradients so far;
    they are no evaluations.
    """

    objective_x: FloatArray
    objective_y: FloatArray
    constraints_x: FloatArray
    constraints_y: FloatArray
    spent: int

    def part(self, start: int, end: int) -> Slopes:
        """Return the slopes of some consecutive rows."""
        rows = slice(start, end)
        return Slopes(
            self.objective_x[rows],
            self.objective_y[rows],
            self.constraints_x[rows],
            self.constraints_y[rows],
            self.spent,
        )


AnswerT = TypeVar("AnswerT", Values, StepValues, Slopes)
Answer = Values | StepValues | Slopes


def split(answer: AnswerT, sizes: Iterable[int]) -> Iterator[AnswerT]:
    """Split an answer into parts of consecutive rows, of the given sizes."""
    start = 0
    for size in sizes:
        yield answer.part(start, start + size)
        start += size


def _violation(constraints: FloatArray, moderate: bool) -> FloatArray:
    """Return the sum of each row's positive entries; it may overflow unless `moderate`."""
    if not moderate:
        with np.errstate(over="ignore"):
            return _violation(constraints, moderate=True)
    sums: FloatArray = np.maximum(constraints, 0.0).dot(_ones(constraints.shape[1]))
    return sums


@cache
def _ones(count: int) -> FloatArray:
    return np.ones(count)


Question = Evaluate | Derive | Step  # a request that waits for an answer
Request = Question | Incumbent
Procedure = Generator[Request, Any, T]


def evaluate(level: Level, x: FloatArray, y: FloatArray) -> Procedure[Values]:
    """Request one level's values and return them."""
    values: Values = yield Evaluate(level, x, y)
    return values


def derive(level: Level, x: FloatArray, y: FloatArray) -> Procedure[Slopes]:
    """Request one level's slopes and return them."""
    slopes: Slopes = yield Derive(level, x, y)
    return slopes


def run(procedure: Procedure[T], answer: Callable[[Any], Any]) -> T:
    """Run a procedure to its end and return its result; `answer` answers its requests."""
    sent = None
    while True:
        try:
            request = procedure.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result
        sent = answer(request)


def relayed(
    procedure: Procedure[T],
    asked: Callable[[Request], Request | None],
    answered: Callable[[Level, Values], Values],
) -> Procedure[T]:
    """Run a procedure with its requests changed by `asked`, and their values by `answered`.

    A request that `asked` changes to None is not made; only an `Incumbent` can be left out.
    """
    sent = None
    while True:
        try:
            request = procedure.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result
        sent, changed = None, asked(request)
        if changed is not None:
            sent = yield changed
            if isinstance(request, Evaluate):
                sent = answered(request.level, sent)


def together(procedures: Iterable[Procedure[T]], fair: bool = False) -> Procedure[list[T]]:
    """Run several procedures side by side; their requests of one level form one batch.

    Lower-level requests are served first, so that upper-level ones gather in one batch too. If
    `fair`, the level of the request that has waited longest is. Returns all results in order.
    """

    def next_level(waiting: dict[int, Question]) -> Level:
        levels = [request.level for request in waiting.values()]  # the one that waits longest first
        return levels[0] if fair or Level.LOWER not in levels else Level.LOWER

    return (yield from _joined(list(procedures), next_level))


def alongside(main: Procedure[T], side: Procedure[U]) -> Procedure[tuple[T, U]]:
    """Run two procedures; requests of `side` join the batches of `main` of the same level.

    While `main` runs, `side` waits for such a batch. After the end of `main`, `side` makes its own
    batches. Returns both results.
    """

    def main_first(waiting: dict[int, Question]) -> Level:
        return waiting[min(waiting)].level

    results = yield from _joined([main, side], main_first)
    return results[0], results[1]


def _joined(
    running: Sequence[Procedure[Any]], next_level: Callable[[dict[int, Question]], Level]
) -> Procedure[list[Any]]:
    """Run procedures side by side, and return their results in their order.

    `next_level` picks the level of the next joint batch from the requests that wait.
    """
    for procedure in running:
        if not isinstance(procedure, Generator):
            raise BadRequest(f"procedures that run together are generators, got {shown(procedure)}")
    results: dict[int, Any] = {}
    waiting: dict[int, Question] = {}
    answers: Iterable[tuple[int, Answer | None]] = [(i, None) for i in range(len(running))]
    while True:
        for i, answer in answers:  # run each procedure to its next question or its end
            try:
                request = running[i].send(answer)
                while isinstance(request, Incumbent):
                    yield request
                    request = running[i].send(None)
                if not _has_rows(request):
                    _refuse(running[i], request)
                waiting[i] = request
            except StopIteration as end:
                results[i] = end.value
        if not waiting:
            return [results[i] for i in range(len(running))]
        level = next_level(waiting)
        batch = sorted([i for i, request in waiting.items() if request.level is level])
        kind = type(waiting[batch[0]])  # only requests of one kind can be joined
        batch = [i for i in batch if type(waiting[i]) is kind]
        requests = [waiting.pop(i) for i in batch]
        try:
            joined = _as_one(requests)
        except ValueError:  # rows of different sizes
            widths = [(request.x.shape[1], request[2].shape[-1]) for request in requests]
            odd = next(k for k, width in enumerate(widths) if width != widths[0])
            text = f"rows of the sizes {widths[odd]} run together with others of {widths[0]}"
            _raise_in(running[batch[odd]], BadRequest(f"{text}: all must be (m, n)"))
        answer = yield joined
        sizes = [len(request.x) for request in requests]
        answers = zip(batch, split(answer, sizes), strict=True)


def _has_rows(request: Any) -> bool:
    """Tell quickly whether a request is right. If False, `require_rows` has to check it."""
    if type(request) is Evaluate or type(request) is Derive:
        level, x, y = request
        return (
            type(level) is Level
            and type(x) is type(y) is np.ndarray
            and x.ndim == y.ndim == 2
            and len(x) == len(y)
        )
    return False


# The dimensions of a request's arrays.
_SHAPES = {"x": "km", "y": "kn", "task": "k", "taken": "k", "near": "k"}


def require_rows(request: Any) -> None:
    """Refuse a request whose parts are not arrays with the same number of rows."""
    if not isinstance(request, Question):
        instead = "yield an Evaluate, a Derive, a Step or an Incumbent"
        if isinstance(request, Generator):
            instead = "did you mean `yield from`?"
        raise BadRequest(f"it yielded {described(request)}; {instead}")
    kind, parts = type(request).__name__, request._asdict()
    if "level" in parts and type(parts.pop("level")) is not Level:
        level = described(request.level)
        raise BadRequest(f"{kind}.level is {level}; give Level.UPPER or Level.LOWER")
    if parts.get("near", 0) is None:
        del parts["near"]
    for name, part in parts.items():
        if type(part) is not np.ndarray or part.ndim != len(_SHAPES[name]):
            shape = f"({', '.join(_SHAPES[name])})".replace("(k)", "(k,)")
            raise BadRequest(f"{kind}.{name} is {described(part)}; give an array {shape}")
    rows = [f"{len(part)} rows of {name}" for name, part in parts.items()]
    if len({len(part) for part in parts.values()}) > 1:
        raise BadRequest(f"{kind} has {', '.join(rows)}: give the same number of each")


def _refuse(procedure: Procedure[Any], request: Any) -> None:
    """Refuse a procedure's request if it cannot be joined with others."""
    try:
        require_rows(request)
    except BadRequest as error:
        _raise_in(procedure, error)


def _raise_in(procedure: Procedure[Any], error: BadRequest) -> NoReturn:
    """Raise an error inside a procedure, at the line that made the request."""
    with suppress(StopIteration):
        procedure.throw(error)
    raise error


def _as_one(requests: list[Question]) -> Question:
    """Join several requests of one kind and one level into one request."""
    if isinstance(requests[0], Step):
        return _joined_steps([request for request in requests if isinstance(request, Step)])
    pairs = [request for request in requests if not isinstance(request, Step)]
    x, y = np.concatenate([pair.x for pair in pairs]), np.concatenate([pair.y for pair in pairs])
    kind = type(pairs[0])
    return kind(pairs[0].level, x, y)


def _joined_steps(steps: list[Step]) -> Step:
    near = [np.full(len(step.x), ALONE) if step.near is None else step.near for step in steps]
    return Step(
        np.concatenate([step.task for step in steps]),
        np.concatenate([step.taken for step in steps]),
        np.concatenate([step.x for step in steps]),
        np.concatenate(near),
    )
