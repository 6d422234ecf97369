"""Plans of experiments, from a TOML file or from options, and the runs that they name.

An experiment runs every method on every problem, size and limit, `runs` times. A plan has one or
more experiments. Keys at the head of its file hold for all of them:

    methods = ["drc-cma-es", "bl-cma-es", "drc-cma-es/plain"]
    runs = 21

    [[experiments]]
    problems = ["smd"]              # a suite, a problem, or module:object
    sizes = ["2,3", "10,10"]        # of scalable problems; others have fixed sizes
    max_evals = [10000, 50000]      # limits for both levels together

    [forms."drc-cma-es/plain"]      # a method with some of its parameters changed
    method = "drc-cma-es"
    cooperation = false

    [forms."nested-ties/worst"]     # stance and tie_tol are those of `minimize`
    method = "nested-ties"
    stance = "pessimistic"
    tie_tol = 1e-4

A grid of settings stands for many forms; see `bilevo.lab.grids`.

A run's seed comes from its name, so a new method, problem or limit changes no other run.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bilevo import optimizers, problems, registry
from bilevo.core.algorithm import Algorithm
from bilevo.core.budget import require_count
from bilevo.lab.grids import forms_of_grid
from bilevo.lookup import named_method, named_problem, parse_sizes, require_sizes
from bilevo.safe_files import content
from bilevo.settings import Ties

SMD = tuple(f"smd{i}" for i in range(1, 13))
SUITES = {
    "smd": SMD,
    "tp": tuple(f"tp{i}" for i in range(1, 11)),
    "real": ("gold-mining", "decision-making"),
    "rotated": tuple(f"smd{i}-rot" for i in range(1, 9)),
    "nonsmooth": ("smd1-abs", "smd2-abs", "smd5-abs", "smd1-max", "tp9", "tp10"),
    "noisy": tuple(f"smd{i}-noise{digit}" for i in (1, 2, 3, 5) for digit in (6, 3)),
    "literature": tuple(problems.literature.CLASSES),
    "roads": tuple(problems.roads.BEST),
}
MAX_PLAN = 2**20  # The largest plan file, in bytes.
MAX_RUNS = 1_000_000  # The most runs of a plan.
MAX_EVALUATIONS = 2**53  # The largest limit on the evaluations of a run.


@dataclass(frozen=True, slots=True)
class Run:
    """The name of a run. If its limit is 0, the method's own rules end it."""

    problem: str
    m: int
    n: int
    method: str
    number: int
    budget: int = 0  # the limit `max_evals`, which stored files call budget
    target: bool = True  # whether it ends at the known optimum

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Run:
        """Return the run that a stored row belongs to."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    @property
    def seed(self) -> int:
        """Return a seed that ignores the limit, so that a larger limit continues the same run."""
        name = f"{self.problem}/{self.m},{self.n}/{self.method}/{self.number}"
        return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a method: the method with some of its parameters changed."""

    method: str
    changes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Write the method and its changes; a stored run keeps this text, to tell forms apart."""
        changes = ", ".join(f"{name}={value!r}" for name, value in sorted(self.changes))
        return f"{self.method}: {changes}" if changes else self.method

    @property
    def ties(self) -> Ties:
        """Return the leader's stance and the tolerance of ties, which are no parameters."""
        chosen = dict(self.changes)
        return Ties.of(chosen.get("stance", "optimistic"), chosen.get("tie_tol"))

    def algorithm(self) -> Algorithm[Any]:
        """Make the algorithm. Changes of `upper` and `lower` are names of optimizers."""
        made: Any = named_method(self.method)
        values = {key: value for key, value in self.changes if key not in ("stance", "tie_tol")}
        self.ties.require_taken_by(made)
        if not values:
            return made  # type: ignore[no-any-return]
        known = [f.name for f in fields(made)] if is_dataclass(made) else []
        if unknown := [name for name in values if name not in known]:
            raise ValueError(f"{self.method} has no parameter {unknown[0]!r}; it has {known}")
        levels = [name for name in ("upper", "lower") if name in values]
        values |= {name: optimizers.make(values[name]) for name in levels}
        return replace(made, **values)  # type: ignore[no-any-return]


def members(names: Iterable[str]) -> list[str]:
    """Return the names of problems, with the members of a suite in place of the suite."""
    small = [name if ":" in name else name.lower() for name in names]
    return [member for name in small for member in SUITES.get(name, (name,))]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs of every method on every problem, size and limit, `runs` times each."""

    methods: tuple[str, ...]
    problems: tuple[str, ...] = ("smd",)
    sizes: tuple[tuple[int, int], ...] = ((2, 3),)
    runs: int = 21
    max_evals: tuple[int, ...] = (0,)
    target: bool = True

    def __post_init__(self) -> None:
        for name in ("methods", "problems", "sizes", "max_evals"):
            if not getattr(self, name):
                raise ValueError(f"an experiment needs {name}")
        require_count("runs", self.runs, optional=False)
        for m, n in self.sizes:
            require_sizes(m, n)
        for limit in self.max_evals:
            if limit > MAX_EVALUATIONS:
                raise ValueError(f"a limit in max_evals is at most {MAX_EVALUATIONS}, got {limit}")
        if not isinstance(self.target, bool):
            raise ValueError(f"target must be true or false, got {self.target!r}")
        object.__setattr__(self, "problems", tuple(members(self.problems)))

    @property
    def most_runs(self) -> int:
        """Return an upper bound on the number of runs, as if all problems were scalable."""
        lists = self.problems, self.sizes, self.methods, self.max_evals
        return math.prod(map(len, lists)) * int(self.runs)

    def all_runs(self) -> list[Run]:
        """Return the runs of the experiment; raise ValueError for an unknown problem or size."""
        return [
            Run(problem, m, n, method, number, limit, self.target)
            for problem in self.problems
            for m, n in self._sizes_of(problem)
            for method in self.methods
            for limit in self.max_evals
            for number in range(self.runs)
        ]

    def _sizes_of(self, problem: str) -> list[tuple[int, int]]:
        if problem in problems.scalable():
            return [(named_problem(problem, *size).m, size[1]) for size in self.sizes]
        own = named_problem(problem)
        return [(own.m, own.n)]


@dataclass(frozen=True, slots=True)
class Plan:
    """Experiments, the forms of methods that they name, and grids that have many of the forms."""

    experiments: tuple[Experiment, ...]
    name: str = "bench"
    forms: Mapping[str, Form] = field(default_factory=dict)
    grids: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the forms of each grid

    def __post_init__(self) -> None:
        if (runs := sum(part.most_runs for part in self.experiments)) > MAX_RUNS:
            raise ValueError(f"a plan has at most {MAX_RUNS:,} runs; {self.name} has {runs:,}")

    def form(self, method: str) -> Form:
        return self.forms.get(method, Form(method))

    def all_runs(self) -> list[Run]:
        """Return each run once, in order; raise ValueError for a method that cannot be made."""
        for method in {name: None for part in self.experiments for name in part.methods}:
            self.form(method).algorithm()
        return list(dict.fromkeys(run for part in self.experiments for run in part.all_runs()))

    def narrowed(
        self,
        problems: Sequence[str] = (),
        sizes: Sequence[tuple[int, int]] = (),
        methods: Sequence[str] = (),
        runs: int | None = None,
    ) -> Plan:
        """Return the part of the plan with these problems, sizes, methods and number of runs.

        The name of a grid stands for its forms.
        """
        parts, forms = self.experiments, _spread(methods, self.grids)
        chosen = {"problems": members(problems), "sizes": sizes, "methods": forms}
        for key, values in chosen.items():
            if values:
                parts = self._with_only(parts, key, values)
        if runs is not None:
            parts = tuple(replace(part, runs=runs) for part in parts)
        return replace(self, experiments=parts)

    def _with_only(
        self, parts: tuple[Experiment, ...], key: str, values: Sequence[Any]
    ) -> tuple[Experiment, ...]:
        """Keep only these values of a key, and leave out experiments that have none of them."""
        known = list(dict.fromkeys(value for part in parts for value in getattr(part, key)))
        if missing := [value for value in values if value not in known]:
            raise ValueError(f"{key} {missing} are not in the plan {self.name}, which has {known}")
        kept: list[tuple[Experiment, Any]] = [
            (part, tuple(value for value in getattr(part, key) if value in values))
            for part in parts
        ]
        return tuple(replace(part, **{key: few}) for part, few in kept if few)


def read_plan(path: Path) -> Plan:
    """Read a plan from a TOML file; a mistake raises ValueError with the file's name."""
    try:
        table = tomllib.loads(content(path, MAX_PLAN).decode())
        return plan_of(table, name=path.stem)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"plan {path}: {error}") from None


def plan_of(table: Mapping[str, Any], name: str) -> Plan:
    """Make a plan from the content of a TOML file."""
    keys = [f.name for f in fields(Experiment)]
    require_known_keys(table, [*keys, "experiments", "forms", "grids"], "a plan")
    common = {key: value for key, value in table.items() if key in keys}
    parts = table.get("experiments", [{}])
    forms, grids = _tables(table, "forms"), _tables(table, "grids")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("experiments must be tables: [[experiments]]")
    spread = {label: forms_of_grid(label, grid) for label, grid in grids.items()}
    forms = {label: _form(label, form) for label, form in forms.items()}
    for label, points in spread.items():
        require_new_name(label, "grid", forms)
        forms |= {name: _form(name, form) for name, form in points.items()}
    made = []
    for part in parts:
        require_known_keys(part, keys, "an experiment")
        values = {key: _read_setting(key, value) for key, value in {**common, **part}.items()}
        values["methods"] = tuple(_spread(values.get("methods", ()), spread))
        made.append(Experiment(**values))
    return Plan(tuple(made), name, forms, {label: [*points] for label, points in spread.items()})


def _spread(methods: Sequence[str], grids: Mapping[str, Iterable[str]]) -> list[str]:
    """Return names of methods, with the forms of a grid in place of the grid."""
    return [form for name in methods for form in grids.get(name, (name,))]


def _tables(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the tables below a key, such as `[forms."name"]`."""
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError(f'{key} must be tables: [{key}."name"]')
    return found


def _read_setting(key: str, value: Any) -> Any:
    """Return a setting from a file as an experiment holds it: a list becomes a tuple."""
    if key == "max_evals":
        if not isinstance(value, list):
            raise ValueError(f"max_evals must be a list of numbers such as [3000], got {value!r}")
        for limit in value:
            require_count("a limit in max_evals", limit, optional=False)
        return tuple(value)
    if key in ("methods", "problems", "sizes"):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError(f"{key} must be a list of texts, got {value!r}")
        return tuple(map(parse_sizes, value) if key == "sizes" else value)
    return value


def _form(label: str, table: Mapping[str, Any]) -> Form:
    require_new_name(label, "form")
    if not isinstance(table.get("method"), str):
        raise ValueError(f"the form {label!r} needs a method")
    changes = {name: value for name, value in table.items() if name != "method"}
    return Form(table["method"], tuple(changes.items()))


def require_new_name(label: str, what: str, forms: Iterable[str] = ()) -> None:
    """Refuse a form or a grid that has the name of a method or of another form."""
    if label in registry.methods():
        raise ValueError(f"the {what} {label!r} has the name of a method; give it one of its own")
    if label in forms:
        raise ValueError(f"the {what} {label!r} has the name of a form; give it one of its own")


def require_known_keys(table: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuse a table that has a key which is not known."""
    for key in table:
        if key not in known:
            hint = registry.suggestion(key[:60], list(known))
            raise ValueError(f"{what} has no key {key[:60]!r}{hint}")
