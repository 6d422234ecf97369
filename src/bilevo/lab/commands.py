"""The commands on stored runs: `bilevo table`, `figure`, `report`, `import` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bilevo import problems
from bilevo.core.terminal import on_one_line, printable
from bilevo.lab import exchange, store
from bilevo.lab.analysis import tables
from bilevo.lab.analysis.samples import FLOOR
from bilevo.lab.campaign import read_settings
from bilevo.lab.checks import verified
from bilevo.lab.choices import Against, Which, run_name, split_words
from bilevo.lab.frames import pl
from bilevo.lab.show import formats
from bilevo.lab.store import Row
from bilevo.options import Flag, Paths

ALL_RUNS, USUAL = Which(), Against()


def table(
    paths: Paths,
    /,
    *,
    kind: str | None = None,
    form: Annotated[str, Parameter(name="--format")] = "text",
    which: Which = ALL_RUNS,
    against: Against = USUAL,
) -> int:
    """Show tables of stored runs on standard output.

    Parameters
    ----------
    paths
        Directories of `bilevo bench`, or CSV files.
    kind
        best, groups, accuracy, evaluations, total, real, effort, ranks, agreement, differences,
        summary, solved, ablation or sensitivity; several are separated by commas. The default is
        accuracy, evaluations and total, and real if an optimum is not known.
    form
        text, markdown, csv, latex or latex-document (a complete document); several are
        separated by commas.
    """
    runs = which.runs(paths)
    kinds, forms = chosen_words(kind, form)
    options = against.options()
    made = [tables.make_table(runs, one, **options) for one in kinds or usual_kinds(runs)]
    text = "\n".join(formats.format_tables(made, one) for one in forms)
    print(printable(text) if sys.stdout.isatty() else text, end="")
    return 0


def usual_kinds(runs: pl.DataFrame) -> list[str]:
    """Return the default kinds of tables, which depend on whether optima are known."""
    known = runs["F_star"].is_finite()
    kinds = ["accuracy", "evaluations", "total"] if known.any() else []
    return kinds if known.all() else [*kinds, "real"]


def figure(
    paths: Paths,
    /,
    *,
    kind: str | None = None,
    form: Annotated[str, Parameter(name="--format")] = "pdf,png",
    indicator: str = "Acc_u",
    out: Path | None = None,
    which: Which = ALL_RUNS,
    floor: float = FLOOR,
) -> int:
    """Draw stored runs.

    Parameters
    ----------
    paths
        Directories of `bilevo bench`.
    kind
        convergence, allocation, runtime, ecdf, critical-difference or sensitivity; several are
        separated by commas. The default is all that the runs allow.
    form
        pdf, png or svg; several are separated by commas.
    indicator
        The indicator that the critical-difference diagram ranks methods by.
    out
        The directory of the figures; DIRECTORY/figures by default.
    floor
        Accuracies below the floor count as equal.
    """
    from bilevo.lab.show import figures

    folder = out or output_folder(paths) / "figures"
    kinds, forms = chosen_words(kind, form)
    if unknown := set(forms) - {"pdf", "png", "svg"}:
        raise ValueError(f"unknown format {min(unknown)!r}; known are pdf, png, svg")
    runs, history = which.runs_and_history(paths)
    drawn = {}
    for one in kinds or figures.FIGURES:
        try:
            drawn[one] = figures.draw(one, runs, history, indicator=indicator, floor=floor)
        except ValueError as error:
            if kinds:
                raise
            print(on_one_line(f"no {one}: {error}"), file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    for name, ending in product(drawn, forms):
        path = folder / f"{name}.{ending}"
        path.unlink(missing_ok=True)  # so that a link is not followed
        figures.save(drawn[name], path)
        print(printable(str(path)))
    return 0


def report(
    paths: Paths,
    /,
    *,
    out: Path | None = None,
    which: Which = ALL_RUNS,
    against: Against = USUAL,
) -> int:
    """Write one HTML file about stored runs, which needs no network to be read.

    Parameters
    ----------
    paths
        Directories of `bilevo bench`, or CSV files.
    out
        The file; DIRECTORY/report.html by default.
    """
    print(printable(str(write_report(paths, out, which, against))))
    return 0


def write_report(paths: Sequence[Path], out: Path | None, which: Which, against: Against) -> Path:
    """Write the report of some stored runs, and return its path."""
    from bilevo.lab.show.report import write_page

    path = out or output_folder(paths) / "report.html"
    runs, history = which.runs_and_history(paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    folders = [path for path in paths if path.is_dir()]
    settings = {str(folder): kept for folder in folders if (kept := read_settings(folder))}
    write_page(path, runs, history, settings=settings, **against.options())
    return path


def import_(
    file: Path,
    /,
    *,
    into: Path,
    verify: Flag = False,
    replace: Flag = False,
) -> int:
    """Add results of other programs, or exported results, to a directory of stored runs.

    Parameters
    ----------
    file
        A CSV file; docs/laboratory.md describes its columns.
    into
        The directory.
    verify
        Solve the follower again for each run that has x and y of a registered problem.
    replace
        Replace stored runs that have the same names; if a run has not changed, it keeps its
        history.
    """
    read = exchange.import_csv(file).iter_rows(named=True)
    rows = [verified(row) if verify else row for row in read]
    fresh = not into.exists()
    with store.Store(into) as kept:
        stored = {key_of(row): row for row in store.whole_rows(into).iter_rows(named=True)}
        known = [row for row in rows if key_of(row) in stored]
        if known and not replace:
            raise ValueError(
                f"{into} has {len(known)} of these runs, such as {run_name(known[0])}; --replace "
                "puts the new ones in their place"
            )
        kept.add(store.frame(with_history(row, stored.get(key_of(row))) for row in rows))
        kept.merge()
    where = f"the new directory {into}" if fresh else str(into)
    print(printable(f"{len(rows)} runs imported into {where}, {len(known)} in place of others"))
    if verify:
        print(f"{sum(row['x'] != [] and row['y'] != [] for row in rows)} of them have x and y")
    for name in dict.fromkeys(row["problem"] for row in rows):
        if name not in problems.names():
            print(on_one_line(f"note: bilevo has no problem {name}, and does not know its optimum"))
    return 0


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in store.KEY)


def with_history(row: Row, old: Row | None) -> Row:
    """Return an imported row with the history of the stored row `old`, if both are of one run.

    CSV files have no histories, so an imported row has none of its own.
    """
    same = ("seed", "F", "f", "nfev_upper", "nfev_lower")
    if old is not None and all(row[name] == old[name] for name in same):
        return {**row, "history": old["history"]}
    return row


def export(
    paths: Paths,
    /,
    *,
    out: Path,
    form: Annotated[Literal["csv", "ioh"], Parameter(name="--format")] = "csv",
    which: Which = ALL_RUNS,
) -> int:
    """Write stored runs for other programs.

    Parameters
    ----------
    paths
        Directories of `bilevo bench`, or CSV files.
    out
        A new file for csv, or a new directory for ioh.
    form
        csv has one line for each run; ioh has the histories, for IOHanalyzer and iohinspector.
    """
    if form == "csv":
        exchange.export_csv(which.runs(paths), out)
    else:
        exchange.export_ioh(*which.runs_and_history(paths), out)
    return 0


def output_folder(paths: Sequence[Path]) -> Path:
    """Return the directory for reports and figures: the first path, or that file's directory."""
    return paths[0] if paths[0].is_dir() else paths[0].parent


def chosen_words(kind: str | None, form: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kinds, which are empty if the user named none, and the formats."""
    kinds, forms = split_words(kind), split_words(form)
    if not forms or (kind is not None and not kinds):
        raise ValueError("--kind and --format need a word each")
    return kinds, forms
