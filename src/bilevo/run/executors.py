"""Workers that do jobs side by side: our own processes, or an executor that the user gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import count as tickets
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import numpy as np

from bilevo.core.budget import require_positive
from bilevo.core.checks import require, whole_number
from bilevo.core.problem import Problem
from bilevo.run.jobs import Carrier, Job, Raised, Reply, carry_out
from bilevo.run.warn import warn_user

MAX_WORKERS = 4096


class Workers(Protocol):
    """Does jobs side by side. The caller gives each job a key, and gets it back with the reply."""

    def submit(self, key: int, job: Job) -> None: ...

    def next(self, seconds: float) -> tuple[int, Reply | Raised] | None:
        """Return the key and reply of the next job that ends, or None if time runs out first."""

    def close(self) -> None: ...


class ExecutorWorkers:
    """Does jobs by an executor that the user gives, and leaves the executor open.

    Errors of the executor itself are raised as they are.
    """

    def __init__(self, executor: Any, carrier: Carrier) -> None:
        self._executor, self._carrier = executor, carrier
        self._tickets = tickets()
        self._keys: dict[Future[Reply | Raised], int] = {}
        self._ended: SimpleQueue[Future[Reply | Raised]] = SimpleQueue()

    def submit(self, key: int, job: Job) -> None:
        future = self._executor.submit(carry_out, self._carrier, next(self._tickets), job)
        self._keys[future] = key
        future.add_done_callback(self._ended.put)

    def next(self, seconds: float) -> tuple[int, Reply | Raised] | None:
        try:
            patience = None if seconds == math.inf else max(0.0, seconds)
            future = self._ended.get(timeout=patience)
        except Empty:
            return None
        return self._keys.pop(future), future.result()

    def close(self) -> None:
        for future in self._keys:
            future.cancel()


class RayExecutor(Executor):
    """Ray as a `concurrent.futures` executor: `workers=RayExecutor()` after `ray.init(...)`.

    Its arguments are options of Ray's remote functions: `RayExecutor(num_cpus=2, max_retries=0)`.
    """

    def __init__(self, **options: Any) -> None:
        try:
            import ray
        except ImportError:
            raise ImportError("RayExecutor needs ray: pip install 'bilevo[ray]'") from None
        self._ray: Any = ray
        self._options = options
        self._remote: dict[Callable[..., Any], Any] = {}  # remote functions, each sent to Ray once

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on the cluster; return its future, which can cancel the function."""
        if fn not in self._remote:
            made = self._ray.remote(fn)
            self._remote[fn] = made.options(**self._options) if self._options else made
        reference = self._remote[fn].remote(*args, **kwargs)
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda done: done.cancelled() and self._ray.cancel(reference))
        return future


def open_workers(workers: Any, problem: Problem, timeout: float | None) -> Workers | None:
    """Return the workers that `minimize(workers=...)` asks for, or None for this thread alone."""
    if timeout is not None:
        require_positive("timeout", timeout)
    number = isinstance(workers, int | float | np.number)
    processes = whole_number(workers)
    if processes == -1:
        from loky import cpu_count  # late: few runs need it

        processes = min(cpu_count(), MAX_WORKERS)
    if number:
        what = f"a number of processes from 1 to {MAX_WORKERS} (-1: all cores), or an executor"
        fine = processes is not None and 1 <= processes <= MAX_WORKERS
        require(fine, "workers", what, workers)
    if timeout is not None and not number:
        raise ValueError(
            f"timeout={timeout} needs processes that can be ended: give workers=1 or more; it "
            "cannot be kept in this process, by threads, or by your own executor"
        )
    if workers is None:
        return None
    if processes is not None:
        from bilevo.run.pool import WorkerPool  # late: it loads multiprocessing

        return WorkerPool(processes, Carrier(problem), timeout)
    if hasattr(workers, "get_executor"):  # a Dask client
        workers = workers.get_executor(pure=False)
    if not hasattr(workers, "submit"):
        raise ValueError(
            "workers must be a number of processes or an executor with a submit method "
            f"(concurrent.futures, Dask, RayExecutor, MPI, loky), got {workers!r}"
        )
    return ExecutorWorkers(workers, Carrier(problem))


class Overhead:
    """Warns at the start of a run if workers take longer than evaluations in this thread would."""

    POINTS = 50  # How many points are timed.
    CLEARLY = 1.5  # Warn if workers take more than this many times the functions' time.

    def __init__(self) -> None:
        self._batches, self._points, self._computing, self._waiting = 0, 0, 0.0, 0.0

    def note(self, points: int, computing: float, waiting: float) -> None:
        """Add the times of a batch, and warn when enough points are timed.

        `computing` is the seconds spent in the functions, `waiting` the seconds from the first job
        to the last reply.
        """
        self._batches += 1
        if self._batches == 1 or self._points >= self.POINTS:
            return  # the first batch also starts the workers, so it is left out
        self._points += points
        self._computing += computing
        self._waiting += waiting
        if self._points >= self.POINTS and self._waiting > self.CLEARLY * self._computing:
            slower = self._waiting / max(self._computing, 1e-9)
            factor = f"{slower:.1f}" if slower < 10 else f"{math.floor(slower)}"
            warn_user(
                f"workers slow this run down: an evaluation takes "
                f"{1e6 * self._computing / self._points:.0f} us, by way of workers "
                f"{1e6 * self._waiting / self._points:.0f} us ({factor} times as much); "
                "leave workers out, or use vectorized functions"
            )
