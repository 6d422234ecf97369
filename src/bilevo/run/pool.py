"""Worker processes of our own: a hanging one can be ended, a dead one is replaced.

Each process stands in a loky executor of its own. In a pool of the usual kind, a worker that dies
takes all evaluations under way with it, and one that hangs cannot be told from the others. loky
starts processes without importing the main script again, and ends them with all their children.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import sleep
from typing import Any

from bilevo.core.arrays import FloatArray
from bilevo.core.request import Level
from bilevo.run.work import CannotTravel, Carrier, Raised, Reply, unpack

WATCH_EVERY = 0.5  # seconds between a worker's looks after its parent


class WorkerDied(RuntimeError):  # noqa: N818 (reads as what happened)
    """The process of an evaluation ended, or was killed, in the middle of it."""


class Task:
    """An evaluation handed to the pool."""

    def __init__(self, call: Callable[[], Reply | Raised]) -> None:
        self.call = call
        self.future: Future[Reply | Raised] = Future()


class Worker:
    """One process, made when it is first needed and again after it has ended."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._executor: Any = None
        self.task: Task | None = None  # what it is evaluating
        self.timer: threading.Timer | None = None
        self.timed_out = False

    def submit(self, call: Callable[[], Reply | Raised]) -> Future[Reply | Raised]:
        from concurrent.futures.process import BrokenProcessPool

        for _ in range(3):
            try:
                return self._running().submit(call)  # type: ignore[no-any-return]
            except BrokenProcessPool:  # it died while it had nothing to do
                self.end()
        raise WorkerDied("worker processes end as soon as they start")

    def _running(self) -> Any:
        if self._executor is None:
            from loky import ProcessPoolExecutor

            self._executor = ProcessPoolExecutor(
                max_workers=1,
                initializer=_prepare,
                initargs=(*self._carrier.__reduce__()[1], os.getpid()),
            )
        return self._executor

    def end(self) -> None:
        """Kill the process and its children; a new one starts with the next evaluation."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, kill_workers=True)


class WorkerPool:
    """A number of worker processes; evaluations wait in order for a free one.

    Whatever happens to an evaluation's process becomes its reply: `Raised` with a TimeoutError or a
    `WorkerDied`.
    """

    def __init__(self, workers: int, carrier: Carrier, timeout: float | None = None) -> None:
        carrier.packed  # noqa: B018 (a problem that cannot travel is refused before anything starts)
        self._timeout = timeout
        self._idle = [Worker(carrier) for _ in range(workers)]
        self._workers = list(self._idle)
        self._waiting: deque[Task] = deque()
        self._lock = threading.RLock()
        self._closed = False

    def evaluate(
        self, level: Level, x: FloatArray, y: FloatArray, count: int | None
    ) -> Future[Reply | Raised]:
        task = Task(partial(_run, level, x, y, count))
        with self._lock:
            self._waiting.append(task)
            self._feed()
        return task.future

    def _feed(self) -> None:
        """Give waiting tasks to idle workers."""
        while self._idle and self._waiting and not self._closed:
            task = self._waiting.popleft()
            if task.future.set_running_or_notify_cancel():
                self._start(self._idle.pop(), task)

    def _start(self, worker: Worker, task: Task) -> None:
        worker.task, worker.timed_out = task, False
        try:
            running = worker.submit(task.call)
        except Exception as error:
            self._finish(worker, task, Raised(error))
            return
        if self._timeout is not None:
            worker.timer = threading.Timer(self._timeout, self._expire, (worker, task))
            worker.timer.daemon = True
            worker.timer.start()
        running.add_done_callback(partial(self._ended, worker, task))

    def _expire(self, worker: Worker, task: Task) -> None:
        with self._lock:
            if worker.task is task:
                worker.timed_out = True
                worker.end()

    def _ended(self, worker: Worker, task: Task, running: Future[Reply | Raised]) -> None:
        error = running.exception()
        if error is None:
            reply = running.result()
        elif worker.timed_out:
            reply = Raised(TimeoutError(f"no answer within {self._timeout:g} s"))
        else:
            reply = Raised(WorkerDied(f"a worker process ended during an evaluation: {error}"))
        with self._lock:
            if error is not None:
                worker.end()
            self._finish(worker, task, reply)

    def _finish(self, worker: Worker, task: Task, reply: Reply | Raised) -> None:
        if worker.timer is not None:
            worker.timer.cancel()
        worker.task, worker.timer = None, None
        self._idle.append(worker)
        task.future.set_result(reply)
        self._feed()

    def close(self) -> None:
        """Kill all processes, whatever they are doing."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                if worker.timer is not None:
                    worker.timer.cancel()
                worker.end()


# In a worker process.

_carrier: Carrier | None = None
_trouble: CannotTravel | None = None


def _prepare(packed: bytes, key: bytes, parent: int) -> None:
    """Make a process ready: it leaves Ctrl-C to its parent, and ends when its parent has ended."""
    global _carrier, _trouble  # noqa: PLW0603 (a process of one purpose)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what objectives print must not get into the parent's output
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        _carrier = unpack(packed, key)
    except Exception as error:
        _trouble = CannotTravel(f"a worker cannot load the problem: {error!r}")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        sleep(WATCH_EVERY)
    os._exit(1)


def _run(level: Level, x: FloatArray, y: FloatArray, count: int | None) -> Reply | Raised:
    if _carrier is None:
        assert _trouble is not None
        return Raised(_trouble)
    return _carrier.run(level, x, y, count)
