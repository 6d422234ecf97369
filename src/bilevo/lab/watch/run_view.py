"""What the page shows of a run, as plain values that become JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from bilevo import problems
from bilevo.core.result import History, Result
from bilevo.core.terminal import on_one_line
from bilevo.lab.show.interactive import stage_numbers
from bilevo.plot import stages
from bilevo.run.follow import MAX_SHOWN, FollowedRun
from bilevo.run.state import RunState

MAX_WORD = 200  # The longest name that is shown.
MAX_SETTING = 1000  # The longest setting that is shown.
MAX_TASKS = 200  # The most tasks of a generation that are shown.
SETTINGS_SHOWN = ("budget", "target", "ftol", "ctol", "x0", "kernel", "functions", "vectorized")
DIGITS = 6  # Significant digits of numbers in charts.

Plain = dict[str, Any]


def plain_json(value: Any) -> Any:
    """Return a value in JSON's types; numbers that are not finite become None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_row(id: str, run: FollowedRun, now: float) -> Plain:
    """Return the row of a run in the list of runs; `now` is in seconds since 1970."""
    row = {
        "id": id,
        "kind": "run",
        "path": on_one_line(str(run.directory)),
        "error": run.error,
        "read": 1.0 if not run.unread else 1 - run.unread / run.size,
        **_named(run.header),
        **_standing(run, now),
    }
    with suppress(ValueError):  # there is no evaluation yet, or `error` says what is wrong
        row |= _answer(run, run.result())
    return plain_json(row)  # type: ignore[no-any-return]


def _named(header: Mapping[str, Any]) -> Plain:
    """Return which run it is, from a header that may come from anybody."""
    sizes = header.get("sizes")
    size = ""
    if isinstance(sizes, list) and len(sizes) == 2 and all(type(one) is int for one in sizes):
        size = f"({sizes[0]}, {sizes[1]})"[:40]
    named = {key: _word(header.get(key, "")) for key in ("problem", "method", "seed")}
    return {**named, "size": size}


def _word(value: Any) -> str:
    return on_one_line(str(value))[:MAX_WORD]


def _standing(run: FollowedRun, now: float) -> Plain:
    """Return the run's state, its counts, and how long it goes on."""
    shares, (upper, lower) = run.shares(now), run.counts
    return {
        "state": run.state,
        "sentence": run.sentence,
        "owner": run.owner.name[:MAX_WORD],
        "since": run.owner.since,
        "written": run.written or None,
        "elapsed": run.elapsed(now),
        "nfev_upper": upper,
        "nfev_lower": lower,
        "generations": run.rows.count,
        "failures": run.stored.run.failures,
        "limits": shares,
        "unlimited": run.owner.limits is not None and not shares,
        "share": max((used / limit for used, limit in shares.values()), default=None),
        "rate": run.rate(now),
        "left": run.time_left(now),
    }


def _answer(run: FollowedRun, result: Result) -> Plain:
    found = run.stored.run.best is not None or math.isfinite(result.F)
    certificate = result.certificate
    return {
        "F": result.F,
        "f": result.f,
        "violation": result.violation,
        "feasible": result.feasible if found else None,
        "certified": result.certified if found else None,
        "certificate": "" if certificate is None else str(certificate),
        "success": result.success,
        "message": on_one_line(result.message)[:1000] if run.end else "",
    }


def run_detail(id: str, run: FollowedRun, now: float) -> Plain:
    """Return all that the page shows of one run."""
    history = run.history()
    detail = {
        **run_row(id, run, now),
        "resume": how_to_resume(run),
        "settings": _settings(run.header),
        "target": _target(run.header),
        "pairs": _pairs(run),
        "allocation": _allocation(history),
        "failed": [
            {**_failed_pair(one), "level": one.level, "evaluation": one.evaluation}
            for one in run.stored.run.failed_points
        ],
    }
    if (best := run.stored.run.best) is not None:
        detail |= {"x": best.x[:MAX_SHOWN], "y": best.y[:MAX_SHOWN]}
        detail |= {"m": best.x.size, "n": best.y.size}
    return plain_json(detail)  # type: ignore[no-any-return]


def _failed_pair(failure: Any) -> Plain:
    return {"x": failure.x, "y": failure.y, "error": on_one_line(failure.error)}


def _target(header: Mapping[str, Any]) -> Plain | None:
    """Return the target that ends the run, if the header has one that makes sense."""
    target = header.get("target")
    if not isinstance(target, dict):
        return None
    value, optimum = target.get("F"), target.get("optimum")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"F": value, "optimum": optimum is True} if number else None


def _settings(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a run is continued with, as texts."""
    shown = {name: header[name] for name in SETTINGS_SHOWN if name in header}
    parameters = header.get("parameters")
    written = header.get("written_by")
    for name, part in (("method's parameters", parameters), ("written by", written)):
        if isinstance(part, dict):
            shown[name] = part
    if isinstance(functions := shown.get("functions"), str):
        shown["functions"] = ", ".join(functions)
    return {name: _setting(value) for name, value in shown.items()}


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name} {part}" for name, part in list(value.items())[:50])
    return on_one_line(str("none" if value is None else value))[:MAX_SETTING]


def _pairs(run: FollowedRun) -> Plain:
    """Return the best pairs over time, each variable as a list."""
    kept = run.best_pairs()
    size_x, size_y = (
        min((len(p.x) for p in kept), default=0),
        min((len(p.y) for p in kept), default=0),
    )
    return {
        "count": run.pairs.count,
        "step": run.pairs.step,
        "nfev": [pair.nfev for pair in kept],
        "elapsed": [_digits(pair.elapsed) for pair in kept],
        "F": [float(pair.F) for pair in kept],
        "f": [_digits(pair.f) for pair in kept],
        "violation": [_digits(pair.violation) for pair in kept],
        "x": [[_digits(float(pair.x[i])) for pair in kept] for i in range(size_x)],
        "y": [[_digits(float(pair.y[i])) for pair in kept] for i in range(size_y)],
    }


def _allocation(history: History) -> list[Plain]:
    """Return the executions of tasks in an early, a middle and a late generation."""
    kept = [
        (number, row.executions[:MAX_TASKS], row.survived[:MAX_TASKS])
        for number, row in zip(history.numbers, history, strict=True)
        if row.executions and len(row.executions) == len(row.survived)
    ]
    if not kept:
        return []
    return [stage_numbers(stage) for stage in stages(*map(list, zip(*kept, strict=True)))]


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def how_to_resume(run: FollowedRun) -> list[str]:
    """Return the calls that continue a run, if it can be continued and its header makes sense.

    The header has the name of a problem, but a user's own problem cannot be found by its name.
    """
    if run.state not in (RunState.DEAD, RunState.STOPPED) or run.error:
        return []
    named, folder = _named(run.header), on_one_line(str(run.directory))
    seed, method = named["seed"], named["method"]
    options = [f"method={method!r}", f"rng={seed}", f"run_dir={folder!r}"]
    calls = [f"bilevo.minimize(problem, {', '.join(options)})"]
    if named["problem"] in problems.names() and seed.isascii() and seed.isdigit():
        size = named["size"].strip("()").replace(" ", "")
        dim = ["--dim", size] if named["problem"] in problems.scalable() else []
        words = ["bilevo", "solve", named["problem"], *dim, "--method", method, "--seed", seed]
        calls.insert(0, shlex.join([*words, "--run-dir", folder]))
    return calls
