"""The laboratory's commands: `bilevo bench`, `table`, `figure`, `report`, `import` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bilevo import registry
from bilevo.experiments import exchange, formats, store, tables
from bilevo.experiments.campaign import Row, Task, complete, kept_settings, status_of, verified
from bilevo.experiments.paper import FLOOR
from bilevo.experiments.plans import Experiment, Plan, Run, read_plan
from bilevo.experiments.progress import longest_first, with_progress
from bilevo.experiments.selection import Selection
from bilevo.experiments.spread import executor as named_executor
from bilevo.experiments.statistics import ALPHA, Test
from bilevo.experiments.store import FAILED
from bilevo.named import parse_sizes
from bilevo.options import Flag, Paths, Several, Whole


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Which:
    """Of the stored runs.

    Parameters
    ----------
    problems
        Problems or suites, separated by commas.
    dim
        Sizes M,N; may be given several times.
    methods
        Methods, separated by commas.
    budget
        Of runs that were made with several budgets: those of this one; 0 for none.
    target
        Of runs that were made both ways: those that end at the known optimum, or those that do not.
    """

    problems: str | None = None
    dim: Several = ()
    methods: str | None = None
    budget: Whole | None = None
    target: bool | None = None

    def selection(self) -> Selection:
        sizes = tuple(map(parse_sizes, self.dim))
        names = {"problems": _listed(self.problems), "methods": _listed(self.methods)}
        return Selection(sizes=sizes, budget=self.budget, target=self.target, **names)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Comparison:
    """How runs are compared.

    Parameters
    ----------
    reference
        The method that others are tested against: drc-cma-es, or else the first.
    floor
        Accuracies below it count as this, as in the paper; 0 takes them as they are.
    test
        Wilcoxon's rank-sum test, or his signed-rank test of runs of the same number.
    holm
        Correct p values for the number of tests, by Holm's method.
    alpha
        The level of significance.
    """

    reference: str | None = None
    floor: float = FLOOR
    test: Test = "rank-sum"
    holm: Flag = False
    alpha: float = ALPHA


NOTHING, AS_THE_PAPER = Which(), Comparison()


def bench(
    plan: Path | None = None,
    /,
    *,
    suite: str | None = None,
    problems: str | None = None,
    dim: Several = (),
    methods: str | None = None,
    runs: Whole | None = None,
    budgets: str | None = None,
    target: bool = True,
    out: Path | None = None,
    executor: str = "processes",
    workers: Whole | None = None,
    max_time: float | None = None,
    again: Literal["failed", "all"] | None = None,
    report: Flag = False,
    progress: bool = True,
) -> int:
    """Make the runs of a plan that are not stored yet; the same command continues a killed one.

    Parameters
    ----------
    plan
        A TOML file. With one, --problems, --dim, --methods and --runs choose a part of it.
    suite
        smd (SMD1-12), tp or real.
    problems
        Names from `bilevo list` or module:object, separated by commas.
    dim
        Sizes M,N of scalable problems; may be given several times.
    methods
        Names from `bilevo list` or module:object, separated by commas.
    runs
        Runs of each method on each problem; 21 unless the plan says otherwise.
    budgets
        Evaluations of both levels at which runs end, separated by commas.
    target
        Do not end runs at the known optimum.
    out
        The folder of stored runs; results/NAME of the plan by default.
    executor
        processes, dask, dask://HOST:PORT, ray or ray://HOST:PORT.
    workers
        Processes; by default one per core.
    max_time
        Seconds after which a run has failed.
    again
        Make stored runs of the plan again: those that failed, or all.
    report
        Write report.html into the folder at the end.
    progress
        Show how far it has come on standard error.
    """
    wanted = {"problems": _listed(suite) + _listed(problems), "methods": _listed(methods)}
    sizes = tuple(map(parse_sizes, dim))
    limits = tuple(_count("--budgets", word) for word in _listed(budgets))
    if plan is not None:
        if limits or not target:
            raise ValueError("budgets and targets stand in the plan's file")
        chosen = read_plan(plan).narrowed(sizes=sizes, runs=runs, **wanted)
    else:
        chosen = _plan_of_options(wanted, sizes, runs, limits, target)
    folder = out or Path("results") / chosen.name
    spread = named_executor(executor, workers)
    total = len(chosen.all_runs())

    def make(tasks: list[Task]) -> Iterable[Row]:
        ordered = longest_first(tasks)
        if progress:
            print(f"{total} runs, {total - len(tasks)} of them stored: {folder}", file=sys.stderr)
        return with_progress(spread(ordered), ordered, progress)

    failures = 0
    try:
        for row in complete(folder, chosen, make, again, max_time):
            failures += row["status"] == FAILED
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    if report:
        print(write_report([folder]))
    if failures:
        print(f"{failures} runs failed; --again failed makes them again", file=sys.stderr)
    return 1 if failures else 0


def table(
    paths: Paths,
    /,
    *,
    kind: str = "accuracy,evaluations,total",
    form: Annotated[str, Parameter(name="--format")] = "text",
    paper: Flag = False,
    which: Which = NOTHING,
    comparison: Comparison = AS_THE_PAPER,
) -> int:
    """Show tables of stored runs on standard output.

    Parameters
    ----------
    paths
        Folders of `bilevo bench`, or CSV files.
    kind
        Of accuracy, evaluations, total, real, effort, ranks, summary; several with commas.
    form
        Of text, markdown, csv, latex, latex-document (which compiles by itself); several with
        commas.
    paper
        Show the figures that the DRC paper prints beside ours, in brackets.
    """
    print(tables_of(paths, kind, form, paper, which, comparison), end="")
    return 0


def tables_of(
    paths: Sequence[Path],
    kind: str,
    form: str,
    paper: bool,
    which: Which,
    comparison: Comparison,
) -> str:
    """What `bilevo table` prints."""
    runs = which.selection().runs(paths)
    made = [tables.make(runs, one, paper=paper, **asdict(comparison)) for one in _listed(kind)]
    return "\n".join(formats.write(table, one) for one in _listed(form) for table in made)


def figure(
    paths: Paths,
    /,
    *,
    kind: str = "convergence,allocation,runtime,ecdf,critical-difference",
    form: Annotated[str, Parameter(name="--format")] = "pdf,png",
    indicator: str = "Acc_u",
    out: Path | None = None,
    which: Which = NOTHING,
    floor: float = FLOOR,
) -> int:
    """Draw stored runs.

    Parameters
    ----------
    paths
        Folders of `bilevo bench`.
    kind
        Of convergence, allocation, runtime, ecdf, critical-difference; several with commas.
    form
        Of pdf, png, svg; several with commas.
    indicator
        What methods are ranked by in the critical-difference diagram.
    out
        The folder of the figures; FOLDER/figures by default.
    floor
        Accuracies below it rank alike, as in the paper.
    """
    from bilevo.experiments import figures

    folder = out or (paths[0] if paths[0].is_dir() else paths[0].parent) / "figures"
    forms = _listed(form)
    if unknown := set(forms) - {"pdf", "png", "svg"}:
        raise ValueError(f"unknown format {min(unknown)!r}; known are pdf, png, svg")
    chosen = which.selection()
    runs, history = chosen.runs(paths), chosen.history(paths)
    drawn = {
        one: figures.draw(one, runs, history, indicator=indicator, floor=floor)
        for one in _listed(kind)
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in drawn.items():
        for ending in forms:
            figures.save(picture, folder / f"{name}.{ending}")
            print(folder / f"{name}.{ending}")
    return 0


def report(
    paths: Paths,
    /,
    *,
    out: Path | None = None,
    which: Which = NOTHING,
    comparison: Comparison = AS_THE_PAPER,
) -> int:
    """Write one HTML file about stored runs, which needs no network.

    Parameters
    ----------
    paths
        Folders of `bilevo bench`, or CSV files.
    out
        The file; FOLDER/report.html by default.
    """
    print(write_report(paths, out, which, comparison))
    return 0


def write_report(
    paths: Sequence[Path],
    out: Path | None = None,
    which: Which = NOTHING,
    comparison: Comparison = AS_THE_PAPER,
) -> Path:
    """The report of some stored runs, and where it is."""
    from bilevo.experiments.report import write

    path = out or (paths[0] if paths[0].is_dir() else paths[0].parent) / "report.html"
    chosen = which.selection()
    runs, history = chosen.runs(paths), chosen.history(paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    folders = [path for path in paths if path.is_dir()]
    settings = {folder.name: kept for folder in folders if (kept := kept_settings(folder))}
    write(path, runs, history, settings=settings, **asdict(comparison))
    return path


def import_(
    file: Path,
    /,
    *,
    into: Path,
    verify: Flag = False,
    replace: Flag = False,
) -> int:
    """Add results of other programs, or exported ones, to a folder of stored runs.

    Parameters
    ----------
    file
        A CSV file; its columns are told in docs/laboratory.md.
    into
        The folder.
    verify
        Re-solve the follower at every x that the file has of registered problems.
    replace
        Put these in the place of runs of the same names that the folder has.
    """
    read = exchange.import_csv(file).iter_rows(named=True)
    rows = store.frame(verified(row) if verify else row for row in read)
    with store.Store(into) as kept:
        stored = status_of(into)
        names = rows.select(store.KEY)
        known = [run for row in names.iter_rows(named=True) if (run := Run(**row)) in stored]
        if known and not replace:
            raise ValueError(
                f"{into} has {len(known)} of these runs, such as {known[0]}; --replace puts the "
                "new ones in their place"
            )
        kept.forget(names)
        kept.add(rows)
        kept.merge()
    print(f"{len(rows)} runs, {len(known)} of them replaced: {into}")
    return 0


def export(
    paths: Paths,
    /,
    *,
    out: Path,
    form: Annotated[Literal["csv", "ioh"], Parameter(name="--format")] = "csv",
    which: Which = NOTHING,
) -> int:
    """Write stored runs for other programs.

    Parameters
    ----------
    paths
        Folders of `bilevo bench`, or CSV files.
    out
        A new file, for CSV; a new folder, for IOHprofiler.
    form
        csv: one line a run; ioh: with their histories, for IOHanalyzer and iohinspector.
    """
    chosen = which.selection()
    runs = chosen.runs(paths)
    if form == "csv":
        exchange.export_csv(runs, out)
    else:
        exchange.export_ioh(runs, chosen.history(paths), out)
    return 0


def _plan_of_options(
    wanted: dict[str, tuple[str, ...]],
    sizes: tuple[tuple[int, int], ...],
    runs: int | None,
    budgets: tuple[int, ...],
    target: bool,
) -> Plan:
    if not wanted["problems"]:
        raise ValueError("give a plan, or --suite or --problems (smd, tp and real are suites)")
    given: dict[str, Any] = {"sizes": sizes, "runs": runs, "budgets": budgets}
    values = {name: value for name, value in given.items() if value not in ((), None)}
    methods = wanted["methods"] or (registry.DEFAULT_METHOD,)
    return Plan((Experiment(methods, wanted["problems"], target=target, **values),))


def _listed(words: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip()) if words else ()


def _count(option: str, word: str) -> int:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if number < 1 or number != int(number):
        raise ValueError(f"{option} takes numbers of evaluations such as 50000; got {word!r}")
    return int(number)
