"""Our own worker processes: a worker that hangs can be ended, and a worker that dies is replaced.

Other pools do not offer this. In concurrent.futures and loky, a worker that dies ends all running
evaluations, and a worker that hangs cannot be ended. In pebble, workers share a pipe and its lock,
and a worker that is killed while it holds the lock never releases it. Here each process has its own
pipe. The processes are started by loky, which does not import the main script again.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from time import perf_counter, sleep
from typing import Any

from bilevo.run.jobs import Carrier, Job, Raised, Reply, unpack

MAX_FAILED_STARTS = 10  # If more workers in a row fail to start, their jobs fail.
WATCH_EVERY = 0.5  # Seconds between two checks that the parent, or a worker, is alive.


class WorkerDied(RuntimeError):  # noqa: N818 (the name says what happened)
    """A worker process ended, or was killed, during an evaluation."""


class Worker:
    """One worker process, which forms a process group with all processes that it starts."""

    def __init__(self, carrier: Carrier, timeout: float) -> None:
        from loky.backend import get_context

        context = get_context("loky")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, *carrier.packed, os.getpid()))
        # Ctrl-C is for the parent alone: a new process inherits the set of blocked signals.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        other.close()
        self.key: int | None = None  # the key of the present job
        self.job: Job | None = None
        self.ready = False  # whether it has started; the timeout does not run before that
        self._timeout = timeout
        self.deadline = math.inf

    def give(self, key: int, job: Job) -> None:
        self.key, self.job = key, job
        if self.ready:
            self.deadline = perf_counter() + self._timeout
        try:
            self.pipe.send(job)
        except OSError:
            return  # the worker is dead, which `take` will find

    def take(self) -> Reply | Raised | None:
        """Return what the worker sent: a reply, or None, by which it says that it has started.

        If the worker is dead, return its death as `Raised`.
        """
        try:
            reply: Reply | Raised | None = self.pipe.recv()
            if reply is None:
                self.ready, self.deadline = True, perf_counter() + self._timeout
            return reply
        except (EOFError, OSError):
            return self.death()

    def death(self) -> Raised:
        self.process.join(1)
        code = self.process.exitcode
        how = f"exit status {code}" if code is None or code >= 0 else f"signal {-code}"
        return Raised(WorkerDied(f"a worker process ended during an evaluation ({how})"))

    @property
    def dead(self) -> bool:
        return not self.process.is_alive()

    def kill(self) -> None:
        """End the process and all that it has started, whatever they are doing."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.exitcode is None:  # it has not made its process group yet
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


class WorkerPool:
    """A number of worker processes. Jobs wait in order for a free worker.

    If the process of a job takes too long or dies, the reply to the job is `Raised` with a
    TimeoutError or a `WorkerDied`.
    """

    def __init__(self, workers: int, carrier: Carrier, timeout: float | None = None) -> None:
        carrier.packed  # noqa: B018 (a problem that cannot travel is refused at once)
        self._carrier = carrier
        self._timeout = math.inf if timeout is None else timeout
        self._free = workers  # how many more processes may be started
        self._workers: list[Worker] = []
        self._waiting: deque[tuple[int, Job]] = deque()
        self._failed_starts = 0  # how many workers in a row failed to start

    def submit(self, key: int, job: Job) -> None:
        self._waiting.append((key, job))
        self._feed()

    def _feed(self) -> None:
        """Give waiting jobs to idle workers, and start workers if more are allowed."""
        while self._waiting and (worker := self._idle()) is not None:
            key, job = self._waiting.popleft()
            worker.give(key, job)

    def _idle(self) -> Worker | None:
        for worker in [worker for worker in self._workers if worker.key is None]:
            if not worker.dead:
                return worker
            self._remove(worker)  # it died while it had nothing to do
        if not self._free:
            return None
        self._free -= 1
        self._workers.append(Worker(self._carrier, self._timeout))
        return self._workers[-1]

    def _remove(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)
        self._free += 1

    def next(self, seconds: float) -> tuple[int, Reply | Raised] | None:
        """Return the key and reply of the next job that ends, or None if time runs out first."""
        until = perf_counter() + seconds
        while True:
            busy = {worker.pipe: worker for worker in self._workers if worker.key is not None}
            soonest = min([until, *(worker.deadline for worker in busy.values())])
            # A worker's forked child keeps the pipe open after the worker's death: check regularly.
            patience = min(WATCH_EVERY, max(0.0, soonest - perf_counter()))
            ready: list[Any] = wait(list(busy), patience)
            for worker in (busy[pipe] for pipe in ready):
                if (ended := self._hear(worker)) is not None:
                    return ended
            now = perf_counter()
            for worker in [] if ready else list(busy.values()):
                if worker.dead and not worker.pipe.poll():
                    if (ended := self._replace(worker, worker.death())) is not None:
                        return ended
                elif worker.deadline <= now:
                    late = TimeoutError(f"no answer within {self._timeout:g} s")
                    return self._end(worker, Raised(late), kill=True)
            if until <= now:
                return None

    def _hear(self, worker: Worker) -> tuple[int, Reply | Raised] | None:
        """Read from a worker's pipe; return the key and reply of its job if the job has ended."""
        reply = worker.take()
        if reply is None:
            self._failed_starts = 0
            return None
        if isinstance(reply, Raised) and isinstance(reply.error, WorkerDied):
            return self._replace(worker, reply)
        return self._end(worker, reply)

    def _replace(self, worker: Worker, death: Raised) -> tuple[int, Reply | Raised] | None:
        """Remove a dead worker. Return the key of its job and `death`, or None.

        None means that the worker died before it had started, and that another worker gets the job.
        """
        if worker.ready or self._failed_starts > MAX_FAILED_STARTS:
            return self._end(worker, death, kill=True)
        self._failed_starts += 1
        assert worker.key is not None and worker.job is not None
        self._waiting.appendleft((worker.key, worker.job))
        self._remove(worker)
        self._feed()
        return None

    def _end(
        self, worker: Worker, reply: Reply | Raised, kill: bool = False
    ) -> tuple[int, Reply | Raised]:
        assert worker.key is not None
        key, worker.key, worker.deadline = worker.key, None, math.inf
        if kill:
            self._remove(worker)
        self._feed()
        return key, reply

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        self._waiting.clear()
        for worker in list(self._workers):
            self._remove(worker)


def serve(pipe: Connection[Any, Any], packed: bytes, key: bytes, parent: int) -> None:
    """Run a worker process: do the jobs that come through the pipe until the parent has ended."""
    os.setsid()  # a process group: all that is started here can be ended at once
    os.dup2(2, 1)  # what objectives print must not get into the parent's output
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    carrier = unpack(packed, key)
    with suppress(EOFError, OSError):  # the parent has ended, or has closed the pipe
        pipe.send(None)
        while True:
            job: Job = pipe.recv()
            pipe.send(carrier.run(job))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        sleep(WATCH_EVERY)
    os.killpg(0, signal.SIGKILL)
