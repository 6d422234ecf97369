"""Cells of the table of executors: prints each method's course when evaluated that way.

python cell.py KIND ..., of serial | vectorized | processes-N | threads | dask | ray
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import contextmanager
from typing import Any

import numpy as np
import solvers
from crashes import METHODS, course

import bilevo

BUDGET = bilevo.Budget(lower_max=20, upper_max=30)
BOUNDS = [(-5.0, 10.0)] * 2


def F(x: Any, y: Any) -> Any:
    """The leader's objective, for a pair or for rows of pairs, with the same bits."""
    return x[..., 0] ** 2 + x[..., 1] ** 2 + np.sin(y[..., 0]) * y[..., 1]


def f(x: Any, y: Any) -> Any:
    return (y[..., 0] - x[..., 0]) ** 2 + (y[..., 1] - x[..., 1] * y[..., 0]) ** 2


def g(x: Any, y: Any) -> Any:
    return (y[..., 0] + y[..., 1] - 8)[..., None]


@contextmanager
def executor(kind: str) -> Any:
    """What to give as `workers`."""
    if kind == "threads":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(4) as threads:
            yield threads
    elif kind == "dask":
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            yield client.get_executor()
    elif kind == "ray":
        import ray

        settings = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=2, **settings)  # not the cluster of another test
        yield bilevo.RayExecutor()
        ray.shutdown()
    else:
        yield int(kind.partition("-")[2]) if kind.startswith("processes") else None


def cell(kind: str) -> dict[str, str]:
    """Return the course of each method by this kind of executor."""
    problem = bilevo.Problem(F, f, BOUNDS, BOUNDS, None, g, vectorized=kind == "vectorized")
    with executor(kind) as workers:
        courses = {
            method: course(
                bilevo.minimize(
                    problem, method=method, rng=5, budget=BUDGET, max_evals=450, workers=workers
                )
            )
            for method in METHODS
        }
        solved = solvers.problem(solvers.Walker())
        courses["solver"] = course(bilevo.minimize(solved, max_evals=120, workers=workers))
    return courses


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of course workers slow this down
    print(json.dumps({kind: cell(kind) for kind in sys.argv[1:]}))
