"""Who makes the runs of a campaign: processes of this machine, a Dask cluster, or Ray.

Each gives the rows in the order in which runs end, whatever becomes of a run: one that dies is a
row too. On this machine every run has a process, which ends itself after its time, and with the
campaign; on a cluster a run looks at its time before every evaluation, so one that hangs is not
ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from threading import Thread
from types import ModuleType
from typing import Any

from loky import cpu_count

from bilevo.core.extras import need
from bilevo.lab.campaign import Row, Task, carry_out, failed, told, too_long

Spread = Callable[[list[Task]], Iterator[Row]]
MOST = 4096  # workers
KNOWN = "processes, dask, dask://HOST:PORT, ray or ray://HOST:PORT"


def executor(name: str = "processes", workers: int | None = None) -> Spread:
    """The one that a name stands for; "dask" and "ray" alone start a local cluster."""
    scheme, _, address = name.partition("://")
    workers = cpu_count() if workers is None else workers
    if not 1 <= workers <= MOST:
        raise ValueError(f"workers must be from 1 to {MOST}, got {workers}")
    if name == "processes":
        return partial(by_processes, workers=workers)
    if scheme == "dask":
        distributed = need("campaigns over Dask", "distributed", "dask")
        return partial(by_dask, distributed, address, workers)
    if scheme == "ray":
        ray = need("campaigns over Ray", "ray", "ray")
        return partial(by_ray, ray, name if address else "", workers)
    raise ValueError(f"unknown executor {name!r}; known are {KNOWN}")


def by_processes(
    tasks: list[Task], workers: int, make: Callable[[Task], Row] = carry_out
) -> Iterator[Row]:
    """Rows as they are done; each run has a process, forked from one that has loaded all."""
    for library in ("OPENBLAS", "OMP"):  # one thread a process; children inherit it
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
                yield _answer(task, process, ended)
    finally:
        for _, process in live.values():
            process.kill()


def _start(process: Any) -> None:
    """Without the caller's script, which multiprocessing would have the child run again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script


def _child(make: Callable[[Task], Row], task: Task, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    Thread(target=_end_with_parent, args=(answer,), daemon=True).start()
    if task.max_time is not None:  # the alarm's default is to end the process, whatever it does
        signal.setitimer(signal.ITIMER_REAL, task.max_time)
    row = make(task)
    signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(BrokenPipeError):  # the campaign was killed
        answer.send(row)


def _end_with_parent(answer: Connection) -> None:
    """Nothing is ever sent to a child: when there is something to read, its parent is gone."""
    connection.wait([answer])
    os._exit(1)


def _answer(task: Task, process: Any, answer: Connection) -> Row:
    row: Row | None = None
    with suppress(EOFError, OSError):  # it died, perhaps in the middle of its row
        row = answer.recv()
    answer.close()  # which also ends a child that has threads of its own
    process.join()
    if row is None:
        late = process.exitcode == -signal.SIGALRM
        row = failed(task, too_long(task) if late else f"process ended: {process.exitcode}")
    return row


def by_dask(distributed: Any, address: str, workers: int, tasks: list[Task]) -> Iterator[Row]:
    """Rows from the workers of a Dask cluster, or of a local one for the time being."""
    loopback = "127.0.0.1"  # nobody else can give work to a cluster of our own, or look at it
    local = {"n_workers": workers, "threads_per_worker": 1, "host": loopback}
    local |= {"dashboard_address": f"{loopback}:0", "worker_dashboard_address": f"{loopback}:0"}
    where = {"address": f"tcp://{address}"} if address else local
    with distributed.Client(**where) as client:
        futures = {client.submit(carry_out, task, pure=False): task for task in tasks}
        try:
            for future in distributed.as_completed(list(futures)):
                error = future.exception()
                task = futures.pop(future)
                yield future.result() if error is None else failed(task, told(error))
                future.release()
        finally:
            client.cancel(list(futures))


def by_ray(ray: Any, address: str, workers: int, tasks: list[Task]) -> Iterator[Row]:
    """Rows from a Ray cluster, or from a local one for the time being."""
    ours = not ray.is_initialized()
    if ours:
        remote = address or os.environ.get("RAY_ADDRESS")
        local = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(**({"address": remote} if remote else local), log_to_driver=False)
    make = ray.remote(carry_out).options(max_retries=0)
    waiting = {make.remote(task): task for task in tasks}
    try:
        while waiting:
            (ended,), _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(ended)
            try:
                yield ray.get(ended)
            except ray.exceptions.RayError as error:
                yield failed(task, told(error))
    finally:
        for future in waiting:
            ray.cancel(future)
        if ours:
            ray.shutdown()
