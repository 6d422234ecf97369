"""The header of a journal, which identifies the journal's run."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import Field, asdict, fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from bilevo.core.algorithm import Algorithm
from bilevo.core.problem import Problem, Spec
from bilevo.core.slopes import NO_SLOPES
from bilevo.core.stance import Stance
from bilevo.core.terminal import printable
from bilevo.run.errors import RunMismatch
from bilevo.version import __version__

JOINT = "joint"  # The entry of a header that says that a simulator gives the values of both levels.


def identity(problem: Problem, algorithm: Algorithm[Any], spec: Spec) -> dict[str, Any]:
    """Return the settings that must be the same when a run is continued.

    `written_by` is only information, and may differ.
    """
    sides = (problem.x_bounds, problem.y_bounds)
    bounds = b"".join(side.lower.tobytes() + side.upper.tobytes() for side in sides)
    functions = {"f": problem.f_is_known, "G": problem.G is not None, "g": problem.g is not None}
    content = {
        "method": algorithm.name,
        "revision": algorithm.revision,
        "parameters": _parameters(algorithm),
        "problem": problem.name,
        "sizes": [problem.m, problem.n],
        "bounds": blake2b(bounds, digest_size=8).hexdigest(),
        "functions": "F" + "".join(name for name, there in functions.items() if there),
        "repeats_lower": problem.repeats_lower,
        "vectorized": problem.vectorized,
        "seed": spec.seed,
        "budget": asdict(spec.budget),
        "target": None if spec.target is None else asdict(spec.target),
        "ftol": spec.ftol,
        "x0": None if spec.x0 is None else spec.x0.tolist(),
        "kernel": spec.kernel,  # another kernel rounds differently
        "written_by": {
            "bilevo": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        },
    }
    if spec.y0 is not None:
        content["y0"] = spec.y0.tolist()
    if spec.slopes != NO_SLOPES:
        content["gradients"] = "".join(name for name in "FfGg" if getattr(spec.slopes, name))
    if problem.simulator is not None:
        content[JOINT] = True
    if any(spec.ctol):
        content["ctol"] = spec.ctol
    for name, side in zip("xy", sides, strict=True):
        if side.whole.any():
            content[f"{name}_integrality"] = side.integrality.tolist()
        if side.choices:
            content[f"{name}_choices"] = {str(i): repr(one) for i, one in side.choices.items()}
    if spec.stance is not Stance.OPTIMISTIC:
        content["stance"] = str(spec.stance)
    if spec.tie_tol is not None:
        content["tie_tol"] = spec.tie_tol
    if problem.follower is not None:
        content["follower"] = _parameters(problem.follower)
    text = json.dumps(content, default=lambda number: number.item())  # converts numpy's numbers
    readable: dict[str, Any] = json.loads(text)  # as it will be read back
    return readable


def _parameters(value: Any) -> Any:
    """Return a dataclass's settings by name, a plain value, or the class of any other object."""
    if is_dataclass(value):
        settings = [field.name for field in fields(value) if _identifies(field, value)]
        content = {name: _parameters(getattr(value, name)) for name in settings}
        return {"class": type(value).__name__, **content}
    if value is None or isinstance(value, bool | int | float | str | np.number):
        return value
    return type(value).__name__


def _identifies(field: Field[Any], owner: Any) -> bool:
    """Tell whether a field tells runs apart; one that is newer than stored runs may not."""
    newer = "newer" in field.metadata
    return field.init and not (newer and getattr(owner, field.name) == field.default)


def require_same(directory: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuse a journal of another run, and say how the runs differ."""
    try:
        different = list(_differences(there, here))
    except RecursionError:  # no run writes such a header
        different = ["its header is nested too deeply"]
    if different:
        more = f" (and {len(different) - 3} more)" if len(different) > 3 else ""
        raise RunMismatch(
            f"{directory} holds another run: {'; '.join(different[:3])}{more}. Make the call that "
            "began it, or use another run_dir"
        )


def _differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    stored, wanted = dict(_leaves(there)), dict(_leaves(here))
    for name in sorted(stored.keys() | wanted.keys()):
        if repr(stored.get(name)) != repr(wanted.get(name)):  # NaN is the same as NaN
            values = (repr(side.get(name))[:200] for side in (stored, wanted))
            yield "{} is {} there and {} here".format(printable(name[:200]), *values)


def _leaves(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dictionaries under dotted names, except `written_by`."""
    for key, value in content.items():
        if prefix + key == "written_by":
            continue
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
