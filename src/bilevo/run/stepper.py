"""Steps of a follower that is a solver of the user's, and the states between them.

A state is a cache: with its task's leader, its random stream and the number of its steps it can be
made again, and is where it was lost. So only those in use are held, a run's directory keeps those
that took long (the shelf), and a step that failed, which may have left its state half changed,
is repeated from the start.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.core.problem import Problem
from bilevo.core.solver import StepOutcome, cost_of
from bilevo.run import files, snapshot
from bilevo.run.dispatch import NOTHING, Dispatcher, Keep, OnFailure
from bilevo.run.evaluator import piece_rows
from bilevo.run.executors import Workers
from bilevo.run.jobs import (
    Raised,
    Reply,
    StepJob,
    StepReply,
    described,
    opened,
    own_stream,
    packed,
    take_step,
)
from bilevo.run.journal import Position
from bilevo.run.session import StepBatch

HELD = 64  # states at least, however small a batch is
GENERATIONS = 4  # of tasks whose states are held
SHELVED_AFTER = 1.0  # seconds of steps that would have to be made again


@dataclass(slots=True)
class Held:
    """A task's state after `had` steps, its last outcome, and the seconds not stored in a file."""

    state: Any = None
    had: int = 0
    last: StepOutcome | None = None
    unsaved: float = 0.0


class Shelf:
    """The states in a run's directory, one file for each task under way.

    Those that are not arrays, numbers and the like are not kept.
    """

    def __init__(self, directory: Path, problem: Problem, seed: int) -> None:
        self._directory, self._problem, self._seed = directory, problem, seed
        self._usable = True

    def _path(self, task: int) -> Path:
        return self._directory / f"{task}.npz"

    def put(self, task: int, x: FloatArray, held: Held) -> None:
        if not self._usable:
            return
        files.require_folder(self._directory)
        self._directory.mkdir(exist_ok=True)
        try:
            place = Position(held.had, crc32(x.tobytes()))
            snapshot.save(self._path(task), opened(held.state), place)
        except snapshot.NotStorable:  # this follower's states are something else
            self._usable = False

    def get(self, task: int, x: FloatArray, most: int) -> tuple[Any, int]:
        """A task's state of at most so many steps, and how many they are; None if there is none."""
        files.require_folder(self._directory)
        if not files.exists(self._path(task)):
            return None, 0
        try:
            like = self._problem.checked_solver().start(x, own_stream(self._seed, task))
            kind = snapshot.StateKind.of(None, like)
            state, (had, leader) = snapshot.load(self._path(task), kind)
        except Exception:  # the user's start may do anything; it can be made again without this
            return None, 0
        return (state, had) if 0 < had <= most and leader == crc32(x.tobytes()) else (None, 0)

    def drop(self, task: int) -> None:
        files.require_folder(self._directory)
        files.remove(self._path(task))


class Stepper(Dispatcher[StepBatch, StepOutcome]):
    """Has a problem's own follower take steps, here or by workers."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        on_failure: OnFailure = "raise",
        retries: int = 0,
        workers: Workers | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        super().__init__(on_failure, retries, workers)
        self._problem, self._seed, self._shelf = problem, seed, shelf
        self._held: OrderedDict[int, Held] = OrderedDict()  # the one used last is the last
        self._most_held = HELD

    def __call__(
        self,
        batch: StepBatch,
        known: Mapping[int, StepOutcome] = NOTHING,
        keep: Keep[StepBatch, StepOutcome] | None = None,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> list[StepOutcome]:
        """What comes of a batch (see `make`)."""
        for i, outcome in known.items():
            self._of(int(batch.task[i])).last = outcome

        def kept(batch: StepBatch, i: int, outcome: StepOutcome) -> None:
            if keep is not None:
                keep(batch, i, outcome)
            self._shelve(int(batch.task[i]), batch.x[i])  # a batch may take hours

        outcomes = self.make(batch, known, kept, time_left)
        self._tidy(batch, outcomes)
        return outcomes

    def _of(self, task: int) -> Held:
        held = self._held.setdefault(task, Held())
        self._held.move_to_end(task)
        return held

    def _tidy(self, batch: StepBatch, outcomes: list[StepOutcome]) -> None:
        """Let go of what is done or was not used for long."""
        self._most_held = max(self._most_held, GENERATIONS * len(batch.task))
        over = [
            task
            for task, outcome in zip(batch.task.tolist(), outcomes, strict=True)
            if outcome.done
        ]
        excess = len(self._held) - len(over) - self._most_held
        for task in over + [task for task in self._held if task not in over][: max(excess, 0)]:
            del self._held[task]
            if self._shelf is not None:
                self._shelf.drop(task)

    def _shelve(self, task: int, x: FloatArray) -> None:
        """Keep a task's state if making it again would take long."""
        held = self._held[task]
        if self._shelf is None or held.state is None or held.unsaved < SHELVED_AFTER:
            return
        self._shelf.put(task, x, held)
        held.unsaved = 0.0

    def _pieces(self, batch: StepBatch) -> tuple[slice, ...]:
        return piece_rows(False, len(batch.task))

    def _job(self, batch: StepBatch, rows: slice) -> StepJob:
        task, taken, x = (column[rows.start] for column in batch)
        held = self._of(int(task))
        if held.state is None and taken and self._shelf is not None:
            held.state, held.had = self._shelf.get(int(task), x, int(taken))
            if self._workers is not None and held.state is not None:
                held.state = packed(held.state)  # threads would change it, and repeat from there
        return StepJob(int(task), int(taken), x, self._seed, held.had, held.state, held.last)

    def _attempt(self, batch: StepBatch, rows: slice) -> StepReply | Raised:
        job = self._job(batch, rows)
        try:
            return take_step(self._problem, job)
        except Exception as error:
            held = self._of(job.task)
            held.state, held.had = None, 0
            return Raised(error)

    def _made(self, batch: StepBatch, rows: slice, reply: Reply) -> StepOutcome:
        assert isinstance(reply, StepReply)
        held = self._of(int(batch.task[rows.start]))
        held.state, held.had, held.last = (
            reply.state,
            int(batch.taken[rows.start]) + 1,
            reply.outcome,
        )
        held.unsaved += reply.seconds
        return reply.outcome

    def _place(self, batch: StepBatch, rows: slice) -> str:
        x, taken = batch.x[rows.start].tolist(), int(batch.taken[rows.start])
        return f"in step {taken + 1} of the follower at x = {x}"

    def _lost(self, batch: StepBatch, rows: slice, error: Exception) -> StepOutcome:
        y = np.full(self._problem.n, np.nan)
        cost = cost_of(self._problem.follower)
        return StepOutcome(y, math.inf, math.inf, True, cost, described(error))
