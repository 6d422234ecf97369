"""Workers that make the runs of a campaign: processes of this machine, a Dask cluster, or Ray.

All of them yield the rows in the order in which runs end. A run that dies gives a row, too. On this
machine every run has its own process, which is ended at the time limit or with the campaign. On a
cluster, a run checks its time limit only before each evaluation, so an evaluation that hangs is not
ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from threading import Thread
from types import ModuleType
from typing import Any

from loky import cpu_count

from bilevo.core.extras import need
from bilevo.lab.campaign import Task, carry_out, failed, in_words, too_long
from bilevo.lab.store import Row
from bilevo.run.executors import RayExecutor

RowMaker = Callable[[list[Task]], Iterator[Row]]
MAX_WORKERS = 4096  # The most workers of a campaign.
KNOWN = "processes, dask, dask://HOST:PORT, ray or ray://HOST:PORT"


def executor(name: str = "processes", workers: int | None = None) -> RowMaker:
    """Return a function that makes runs with the named executor and yields their rows.

    "dask" and "ray" without an address start a local cluster.
    """
    scheme, _, address = name.partition("://")
    workers = cpu_count() if workers is None else workers
    if not 1 <= workers <= MAX_WORKERS:
        raise ValueError(f"workers must be from 1 to {MAX_WORKERS}, got {workers}")
    if name == "processes":
        return partial(by_processes, workers=workers)
    if scheme not in CLUSTERS:
        raise ValueError(f"unknown executor {name!r}; known are {KNOWN}")
    module, opened = CLUSTERS[scheme]
    library = need(f"campaigns over {scheme.capitalize()}", module, scheme)
    return partial(by_executor, opened=partial(opened, library, address, workers))


def by_processes(
    tasks: list[Task], workers: int, make: Callable[[Task], Row] = carry_out
) -> Iterator[Row]:
    """Yield rows as runs end. Each run is forked from a process that has loaded all modules."""
    for library in ("OPENBLAS", "OMP"):  # one thread per process; children inherit the setting
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "bilevo.lab.preload"])
    waiting = iter(tasks)
    live: dict[Connection, tuple[Task, Any]] = {}
    try:
        while True:
            while len(live) < workers and (task := next(waiting, None)) is not None:
                ours, theirs = context.Pipe()
                process = context.Process(target=_child, args=(make, task, theirs))
                _start(process)
                theirs.close()
                live[ours] = task, process
            if not live:
                return
            for ended in connection.wait(list(live)):
                assert isinstance(ended, Connection)
                task, process = live.pop(ended)
                yield _received(task, process, ended)
    finally:
        for _, process in live.values():
            process.kill()


def _start(process: Any) -> None:
    """Start a process that does not run the caller's script again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script


def _child(make: Callable[[Task], Row], task: Task, answer: Connection) -> None:
    """Make a run in this child process, and send its row to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    Thread(target=_end_with_parent, args=(answer,), daemon=True).start()
    if task.max_time is not None:  # by default an alarm ends the process, whatever it does
        signal.setitimer(signal.ITIMER_REAL, task.max_time)
    row = make(task)
    signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(BrokenPipeError):  # the campaign was killed
        answer.send(row)


def _end_with_parent(answer: Connection) -> None:
    """End this process when its parent has ended.

    The parent sends nothing, so the connection only becomes readable when the parent closes it.
    """
    connection.wait([answer])
    os._exit(1)


def _received(task: Task, process: Any, answer: Connection) -> Row:
    """Return the row of a process that has ended."""
    row: Row | None = None
    with suppress(EOFError, OSError):  # it died, perhaps in the middle of its row
        row = answer.recv()
    answer.close()  # this also ends a child whose own threads keep it alive
    process.join()
    if row is None:
        late = process.exitcode == -signal.SIGALRM
        row = failed(task, too_long(task) if late else f"process ended: {process.exitcode}")
    return row


def by_executor(
    tasks: list[Task], opened: Callable[[], AbstractContextManager[Executor]]
) -> Iterator[Row]:
    """Yield the rows of a cluster's workers as runs end."""
    with opened() as pool:
        futures = {pool.submit(carry_out, task): task for task in tasks}
        try:
            for future in as_completed(list(futures)):
                task = futures.pop(future)
                error = future.exception()
                yield future.result() if error is None else failed(task, in_words(error))
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def dask_executor(distributed: Any, address: str, workers: int) -> Iterator[Executor]:
    """Open the executor of a Dask cluster, or of a temporary local one if no address is given."""
    loopback = "127.0.0.1"  # so that nobody else can reach our local cluster
    local = {"n_workers": workers, "threads_per_worker": 1, "host": loopback}
    local |= {"dashboard_address": f"{loopback}:0", "worker_dashboard_address": f"{loopback}:0"}
    with distributed.Client(**({"address": f"tcp://{address}"} if address else local)) as client:
        yield client.get_executor(pure=False)


@contextmanager
def ray_executor(ray: Any, address: str, workers: int) -> Iterator[Executor]:
    """Open the executor of a Ray cluster, or of a temporary local one if no address is given."""
    ours = not ray.is_initialized()
    if ours:
        remote = f"ray://{address}" if address else os.environ.get("RAY_ADDRESS")
        local = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(**({"address": remote} if remote else local), log_to_driver=False)
    try:
        yield RayExecutor(max_retries=0)
    finally:
        if ours:
            ray.shutdown()


CLUSTERS = {"dask": ("distributed", dask_executor), "ray": ("ray", ray_executor)}  # module, opener
