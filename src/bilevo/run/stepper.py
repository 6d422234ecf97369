"""Steps of the problem's own solver, and the states of its searches between them.

A state is a cache: it can be made again from its leader, its random stream and its number of steps.
So only states in use are held, and only states that took long are stored (`StateFiles`). A step
that fails may leave its state half changed, so its search is repeated from the start.
"""

from __future__ import annotations

import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from bilevo import safe_files
from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.request import ALONE, BadRequest
from bilevo.core.solver import Neighbour, StepOutcome, cost_of, takes_neighbours
from bilevo.run import snapshot
from bilevo.run.dispatch import NOTHING, Dispatcher, Keep, OnFailure
from bilevo.run.executors import Overhead, Workers
from bilevo.run.jobs import (
    Raised,
    Reply,
    StepJob,
    error_line,
    neighbour_of,
    pack_state,
    solver_stream,
    take_step,
    unpack_state,
)
from bilevo.run.journal import Position
from bilevo.run.session import StepBatch

MIN_HELD = 64  # This many states may be held in memory in any case.
GENERATIONS = 4  # If generations are large, the states of this many may be held.
STORED_AFTER = 1.0  # A state is stored after steps that took this many seconds together.
Earlier = Callable[[], Iterable[tuple[int, Neighbour | None]]]
_FILE_NAME = re.compile(r"\d+\.npz(\.new)?")


@dataclass(slots=True)
class TaskState:
    """What is held of a task's search.

    `state` is the solver's state after `had` steps, or None if no state is held. `last` is the
    outcome of the last step. `unsaved` is the seconds of all steps since a state was stored.
    """

    state: Any = None
    had: int = 0
    last: StepOutcome | None = None
    unsaved: float = 0.0


class StateFiles:
    """States of searches in a run directory: one file for each task that is not done.

    States that `snapshot` cannot write are not stored.
    """

    def __init__(self, folder: Path, problem: Problem, seed: int) -> None:
        self._folder, self._problem, self._seed = folder, problem, seed
        self._usable = True

    def _path(self, task: int) -> Path:
        safe_files.require_directory(self._folder)
        return self._folder / f"{task}.npz"

    def write(self, task: int, x: FloatArray, search: TaskState) -> None:
        """Store the state of a task whose leader is x (m,)."""
        if not self._usable:
            return
        path = self._path(task)
        self._folder.mkdir(exist_ok=True)
        try:
            # In place of a position in the journal: the steps, and a checksum of the leader.
            place = Position(search.had, crc32(x.tobytes()))
            snapshot.write(path, unpack_state(search.state), place)
        except snapshot.NotStorable:  # the solver's other states cannot be stored either
            self._usable = False

    def read(
        self, task: int, x: FloatArray, most: int, near: Neighbour | None = None
    ) -> tuple[Any, int]:
        """Return the stored state of a task and its number of steps, which is at most `most`.

        Return None and 0 if there is no such state. `near` is what the task has started from.
        """
        path = self._folder / f"{task}.npz"
        if self._folder.is_symlink() or not os.path.lexists(path):
            return None, 0
        try:
            stream = solver_stream(self._seed, task)
            like = self._problem.checked_solver().start(x, stream, near)
            state, (had, leader) = snapshot.read(path, snapshot.StateKind.of(None, like))
        except Exception:  # `start` may raise anything; the state can be made again
            return None, 0
        return (state, had) if 0 < had <= most and leader == crc32(x.tobytes()) else (None, 0)

    def remove(self, task: int) -> None:
        """Remove a task's state."""
        safe_files.remove(self._path(task))


def remove_states(folder: Path) -> None:
    """Remove all stored states, and their directory if nothing else is in it."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with suppress(OSError):  # files that are left do no harm
        for entry in list(os.scandir(folder)):
            if _FILE_NAME.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
        folder.rmdir()


class Finished:
    """Searches that have ended, from which later searches near by may start.

    Searches from before a snapshot are read from the journal, by `earlier`, when one is needed.
    """

    def __init__(self, earlier: Earlier | None) -> None:
        self._found: dict[int, Neighbour | None] = {}  # None: the search failed
        self._earlier = earlier

    def add(self, task: int, x: FloatArray, outcome: StepOutcome) -> None:
        """Add a search that is done."""
        self._found[task] = neighbour_of(x, outcome)

    def get(self, task: int) -> Neighbour | None:
        """Return a search that is done; None if it failed."""
        if task not in self._found and self._earlier is not None:
            self._found = {**dict(self._earlier()), **self._found}
            self._earlier = None
        if task not in self._found:
            raise BadRequest(f"Step.near names task {task}, which is not done")
        return self._found[task]


class Stepper(Dispatcher[StepBatch, StepOutcome]):
    """Takes steps of the problem's own solver, here or by workers.

    `earlier` yields the searches that a journal holds, by the numbers of their tasks.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        on_failure: OnFailure = "raise",
        retries: float = 0,
        workers: Workers | None = None,
        files: StateFiles | None = None,
        earlier: Earlier | None = None,
    ) -> None:
        super().__init__(on_failure, retries, workers, vectorized=False, overhead=Overhead())
        self._problem, self._seed, self._files = problem, seed, files
        self._searches: OrderedDict[int, TaskState] = OrderedDict()  # the one used last is last
        self._most_held = MIN_HELD
        self._finished = Finished(earlier) if takes_neighbours(problem.follower) else None

    def __call__(
        self,
        batch: StepBatch,
        known: Mapping[int, StepOutcome] = NOTHING,
        keep: Keep[StepBatch, StepOutcome] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> list[StepOutcome]:
        """Return the outcomes of a batch. `outcomes` explains the other arguments."""
        for i, outcome in known.items():
            self._search(int(batch.task[i])).last = outcome

        def kept(batch: StepBatch, i: int, outcome: StepOutcome) -> None:
            if keep is not None:
                keep(batch, i, outcome)
            self._store(int(batch.task[i]), batch.x[i])  # at once: a batch may take hours

        outcomes = self.outcomes(batch, known, kept, time_left)
        if self._finished is not None:
            for i, outcome in enumerate(outcomes):
                if outcome.done:
                    self._finished.add(int(batch.task[i]), batch.x[i], outcome)
        self._forget(batch, outcomes)
        return outcomes

    def _search(self, task: int) -> TaskState:
        search = self._searches.setdefault(task, TaskState())
        self._searches.move_to_end(task)
        return search

    def _forget(self, batch: StepBatch, outcomes: list[StepOutcome]) -> None:
        """Drop states of tasks that are done, and the least recently used ones beyond the limit."""
        self._most_held = max(self._most_held, GENERATIONS * len(batch.task))
        pairs = zip(batch.task.tolist(), outcomes, strict=True)
        over = [task for task, outcome in pairs if outcome.done]
        excess = len(self._searches) - len(over) - self._most_held
        for task in over + [task for task in self._searches if task not in over][: max(excess, 0)]:
            del self._searches[task]
            if self._files is not None:
                self._files.remove(task)

    def _store(self, task: int, x: FloatArray) -> None:
        """Store a task's state if making it again would take long."""
        search = self._searches[task]
        if self._files is None or search.state is None or search.unsaved < STORED_AFTER:
            return
        self._files.write(task, x, search)
        search.unsaved = 0.0

    def _job(self, batch: StepBatch, rows: slice) -> StepJob:
        row = rows.start
        task, taken, x, near = batch.task[row], batch.taken[row], batch.x[row], None
        if self._finished is not None and batch.neighbour(row) != ALONE:
            near = self._finished.get(batch.neighbour(row))
        search = self._search(int(task))
        if search.state is None and taken and self._files is not None:
            search.state, search.had = self._files.read(int(task), x, int(taken), near)
            if self._workers is not None and search.state is not None:
                search.state = pack_state(search.state)  # a worker's thread must not change it
        known = search.had, search.state, search.last
        return StepJob(int(task), int(taken), x, self._seed, *known, near)

    def _compute(self, batch: StepBatch, rows: slice) -> Reply:
        job = self._job(batch, rows)
        search = self._search(job.task)
        search.state, search.had = None, 0  # a step that fails may leave its state half changed
        return take_step(self._problem, job)

    def _settle(self, batch: StepBatch, rows: slice, reply: Reply | Raised) -> StepOutcome:
        outcome = super()._settle(batch, rows, reply)
        if isinstance(reply, Reply):
            search = self._search(int(batch.task[rows.start]))
            search.state, search.had = reply.state, int(batch.taken[rows.start]) + 1
            search.last = outcome
            search.unsaved += reply.seconds
        return outcome

    def _failed(self, rows: slice, error: Exception) -> StepOutcome:
        y = np.full(self._problem.n, np.nan)
        cost = cost_of(self._problem.follower)
        return StepOutcome(y, math.inf, math.inf, True, cost, error_line(error))

    def _place(self, batch: StepBatch, rows: slice) -> str:
        x, taken = batch.x[rows.start].tolist(), int(batch.taken[rows.start])
        return f"in step {taken + 1} of the follower at x = {x}"
