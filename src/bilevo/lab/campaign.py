"""Campaigns: many runs, and a directory that keeps their results.

A run's seed comes from its name: the same run gives the same row wherever and whenever it is made.
So a campaign only makes the runs that its directory lacks. A campaign that was killed and started
again ends with the same rows as an undisturbed one. A run that raises, dies or takes too long gives
a row, too, with status "failed" and its error.
"""

from __future__ import annotations

import json
import math
import os
import platform
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Literal

import numpy as np

from bilevo.api import minimize
from bilevo.core.budget import StopReason
from bilevo.core.feasibility import level_tolerances
from bilevo.core.problem import Problem
from bilevo.core.result import Result
from bilevo.lab.checks import checked, known_optimum
from bilevo.lab.frames import pl
from bilevo.lab.plans import Form, Plan, Run
from bilevo.lab.store import FAILED, HISTORY, KEY, RUNS, Row, Store, frame, runs, segments
from bilevo.lookup import named_problem, path_restored
from bilevo.safe_files import content, replacing
from bilevo.settings import Ties
from bilevo.version import __version__

SETTINGS = "settings.json"  # The file of settings in the directory of the runs.
MAX_SETTINGS = 2**24  # The largest file of settings, in bytes.
BLAS_KERNELS = "OPENBLAS_CORETYPE"  # The variable by which one chooses the kernels of OpenBLAS.
NEAR = 1e-4  # The largest |F - F*| that counts as near the optimum.


@dataclass(frozen=True, slots=True)
class Task:
    """A run to make, with the form of its method and its time limit."""

    run: Run
    form: Form
    max_time: float | None = None  # in seconds; includes the time to verify the answer


def carry_out(task: Task) -> Row:
    """Make a run in this process and return its row, even if the run raises."""
    try:
        with path_restored():
            return _run_row(task)
    except Exception as error:
        return failed(task, in_words(error))


def _run_row(task: Task) -> Row:
    run, began = task.run, perf_counter()
    problem = named_problem(run.problem, run.m, run.n)
    algorithm = task.form.algorithm()
    used = thread_time()
    result = minimize(
        problem,
        method=algorithm,
        rng=run.seed,
        max_evals=run.budget or None,
        max_time=task.max_time,
        target=None if run.target else False,
        stance=task.form.ties.stance.value,
        tie_tol=task.form.ties.tolerance,
    )
    used = thread_time() - used
    late = result.status == StopReason.MAX_TIME
    row = {} if late else {**result_columns(problem, result), "processor_time": used}
    if late or perf_counter() - began > (task.max_time or math.inf):
        return failed(task, too_long(task))
    return {**_named(task), **row, "revision": algorithm.revision}


def in_words(error: BaseException) -> str:
    """Describe an error on one line: its message, its file and line, and its notes.

    A note may be the pair (x, y) that was evaluated when the error was raised.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    notes = [note for note in getattr(error, "__notes__", []) if "\n" not in note]
    return ", ".join([f"{type(error).__name__}: {error}{place}", *notes])


def failed(task: Task, error: str) -> Row:
    """Return the row of a run that failed."""
    none = {name: np.nan for name, kind in RUNS.items() if kind == pl.Float64}
    counts = dict.fromkeys(("nfev_upper", "nfev_lower", "nit", "near"), 0)
    with suppress(Exception):  # there may be no such problem
        problem = named_problem(task.run.problem, task.run.m, task.run.n)
        none["F_star"], none["f_star"] = known_optimum(problem)
    why = {"status": FAILED, "error": " ".join(error.split())[:300], "kernel": ""}
    return {**none, **counts, **_named(task), **_here(), **why, "x": [], "y": []}


def too_long(task: Task) -> str:
    return f"more than {task.max_time:g} s"


def result_columns(problem: Problem, result: Result) -> Row:
    """Return the columns of a result: reported values, verified values, and distances to F*."""
    ties = Ties.of(result.stance, result.tie_tol)
    best_F, best_f = known_optimum(problem, ties)
    tolerances = level_tolerances(result.ctol, result.constraint_scales)
    checks = checked(problem, result.x, result.y, result.f, result.violation, tolerances, ties)
    violation = 0.0 if result.feasible else float(result.violation)  # 0 also within ctol
    rows, names = list(result.history), list(HISTORY)[1:]
    history = {name: [getattr(row, name) for row in rows] for name in names}
    return {
        **{"F": float(result.F), "f": float(result.f), "violation": violation},
        "Acc_u": float(abs(result.F - best_F)),
        "Acc_l": float(abs(result.f - best_f)),
        **checks._asdict(),
        "verified": float(abs(checks.F_verified - best_F)),
        **{"F_star": best_F, "f_star": best_f},
        **{"nfev_upper": result.nfev_upper, "nfev_lower": result.nfev_lower, "nit": result.nit},
        "near": evaluations_until_near(result, best_F),
        "time": result.time,
        **{"status": str(result.status), "error": ""},
        **_here(),
        "kernel": result.kernel,
        **{"x": result.x.tolist(), "y": result.y.tolist()},
        "history": {"generation": result.history.numbers, **history},
    }


def _named(task: Task) -> Row:
    return {**asdict(task.run), "seed": task.run.seed, "form": str(task.form)}


def _here() -> Row:
    """Describe the software and the machine that a run is made with.

    The kernels of OpenBLAS belong to it if they were chosen by hand, because other kernels round
    differently.
    """
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    libraries = f"Python {platform.python_version()}, numpy {np.__version__}"
    kernels = f", {BLAS_KERNELS} {name}" if (name := os.environ.get(BLAS_KERNELS)) else ""
    return {"version": __version__, "machine": f"{system}, {libraries}{kernels}"}


def evaluations_until_near(result: Result, best_F: float) -> int:
    """Return the evaluations until the best pair was feasible and near F*, or 0 if it never was."""
    for row in result.history:
        if row.violation == 0 and abs(row.F - best_F) <= NEAR:
            return row.nfev_upper + row.nfev_lower
    return 0


def tasks_of(plan: Plan, max_time: float | None = None) -> list[Task]:
    """Return the runs of a plan as tasks; raise ValueError if the plan is wrong."""
    return [Task(run, plan.form(run.method), max_time) for run in plan.all_runs()]


def complete(
    folder: Path,
    plan: Plan,
    rows_of: Callable[[list[Task]], Iterable[Row]],
    again: Literal["failed", "all"] | None = None,
    max_time: float | None = None,
) -> Iterator[Row]:
    """Make the runs of a plan that the directory lacks, and yield each row when it is stored.

    `rows_of` makes runs and yields their rows in any order; see `bilevo.lab.workers`. `again`
    says which stored runs are made again: those that failed, or all. A new run replaces the old one
    when it is stored.
    """
    wanted = tasks_of(plan, max_time)
    with Store(folder) as store:
        stored = stored_runs(folder)
        if again != "all":
            refuse_other_forms(plan, stored.values())
        since = keep_settings(folder, plan, max_time, again == "all")
        if again == "failed":
            stored = {run: row for run, row in stored.items() if row["status"] != FAILED}
        if again == "all":
            stored = {run: row for run, row in stored.items() if (row["made"] or "") >= since}
        for row in rows_of([task for task in wanted if task.run not in stored]):
            store.add(frame([{**row, "made": now()}]))
            yield row
        store.merge()
        keep_settings(folder, plan, max_time, anew=False)


def now() -> str:
    """Return the present time as a text that sorts by time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def stored_runs(folder: Path) -> dict[Run, Row]:
    """Return rows of a directory by run: status, form, revision, and the time of storing."""
    if not segments(folder):
        return {}
    found = runs(folder).select(*KEY, "status", "form", "revision", "made").iter_rows(named=True)
    return {Run.of(row): row for row in found}


def refuse_other_forms(plan: Plan, stored: Iterable[Row]) -> None:
    """Refuse a plan if stored runs of a method have another form or revision."""
    forms = {name: plan.form(name) for part in plan.experiments for name in part.methods}
    ours = {name: (str(form), form.algorithm().revision) for name, form in forms.items()}
    for row in stored:
        form, revision = ours.get(row["method"], ("", 0))
        then = row["form"], revision if row["revision"] is None else row["revision"]
        if form and row["form"] and then != (form, revision):  # imported runs have no form
            raise ValueError(
                f"stored runs of {row['method']} are of {then[0]}, revision {then[1]}, and not of "
                f"{form}, revision {revision}: --again all makes them again, another directory "
                "keeps both"
            )


def keep_settings(folder: Path, plan: Plan, max_time: float | None, anew: bool) -> str:
    """Add a plan to a directory's settings, and return the time since which rows are new.

    This time matters only if all runs are made again (`anew`): rows that were stored later need not
    be made again. The settings keep the time until the campaign ends, so that a command that was
    killed, and is repeated, does not begin from the start.
    """
    old = read_settings(folder)
    asked = json.loads(json.dumps([asdict(part) for part in plan.experiments]))
    parts = [*old.get("experiments", []), *asked]
    forms = {name: str(form) for name, form in plan.forms.items()}
    since = old.get("anew_since") or now()
    settings = {
        "experiments": [part for i, part in enumerate(parts) if part not in parts[:i]],
        "forms": {**old.get("forms", {}), **forms},
        "max_time": max_time,
        "anew_since": since if anew else None,
    }
    with replacing(folder / SETTINGS) as file:
        file.write((json.dumps(settings, indent=1) + "\n").encode())
    return str(since)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a directory; they are empty if its runs were only imported."""
    try:
        found = json.loads(content(folder / SETTINGS, MAX_SETTINGS))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder / SETTINGS} cannot be read: {error}") from None
    kinds = {"experiments": list, "forms": dict}
    about = found if isinstance(found, dict) else {}
    if not all(isinstance(about.get(name), kind) for name, kind in kinds.items()):
        raise ValueError(f"{folder / SETTINGS} does not have a campaign's settings")
    return about
