"""Import and export of results as CSV, and export in IOHprofiler's format.

A file of results may come from anybody. It is read cell by cell with the CSV reader of the standard
library, because an error has to name the line, the column and the value. A problem's name is looked
up only among the registered problems, because `module:object` would run code.

IOHprofiler's format is the one of IOHexperimenter since 0.3.3, which IOHanalyzer and iohinspector
read. It has one count and one value. The count is the evaluations of both levels together. The
value, raw_y, is |F - F*|, or F if the optimum is not known. Readers take the best value so far, so
an elite (the best pair at the end of a generation) that is infeasible has the value Inf. The first
evaluation has Inf, too, because its value is not known. It must be there, because iohinspector
finds the beginning of a run by it; IOHanalyzer finds the beginning by the column names.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from bilevo import problems
from bilevo.core.optimum import Optimum
from bilevo.lab.frames import pl
from bilevo.lab.show.formats import csv_line, guarded, unguarded
from bilevo.lab.store import FAILED, IMPORTED, KEY, RUNS, Row, in_order
from bilevo.safe_files import opened

REQUIRED = ("problem", "m", "n", "method", "F", "f", "nfev_upper", "nfev_lower")
SIGNED = ("F", "f", "F_verified", "follower_gap", "F_star", "f_star")  # may be negative
IN_CSV = {"budget": "max_evals"}  # Columns whose names in files differ; files may have either.
TRUTH = {"true": True, "1": True, "false": False, "0": False}
MAX_CSV = 2**29  # The largest CSV file, in bytes.
MAX_VARIABLES = 10_000  # The most variables of a level of a problem that is created on import.
INT64_LIMIT = 2**63  # Whole numbers are smaller, because they are stored in 64 bits.

FORMAT = "0.3.5"  # The version of the format that JSON files name.
SUITE = "bilevo"
ATTRIBUTES = ("nfev_upper", "nfev_lower", "F", "f", "violation")
IOH_COLUMNS = ["evaluations", "raw_y", *ATTRIBUTES]


def import_csv(path: str | Path) -> pl.DataFrame:
    """Read runs from a CSV file, in its order; docs/laboratory.md describes its columns.

    A mistake in the file raises ValueError with the line, the column and the value.
    """
    path = Path(path)
    records = _records(path)
    _, names = next(records, (0, []))
    stored = {name: column for column, name in IN_CSV.items()}
    header = [stored.get(name, name) for name in names]
    _check_header(path, header)
    rows: list[Row] = []
    lines: dict[tuple[Any, ...], int] = {}
    numbers: Counter[tuple[Any, ...]] = Counter()
    for line, cells in records:
        try:
            row = _completed(_values(header, cells))
            kind = tuple(row[name] for name in KEY if name != "number")
            if row["number"] is None:
                row["number"] = numbers[kind]
                numbers[kind] += 1
            first = lines.setdefault((*kind, row["number"]), line)
            if first != line:
                number = row["number"]
                raise ValueError(f"the same run as in line {first}: number {number} of {kind}")
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} has no runs, only a line of column names")
    return pl.DataFrame(rows, schema=RUNS)


def export_csv(runs: pl.DataFrame, path: str | Path) -> None:
    """Write runs with all columns, sorted, for `import_csv` or other programs.

    Raise ValueError if the file exists, and leave it unchanged.
    """
    missing = [name for name in (*REQUIRED, *KEY) if name not in runs.columns]
    if missing:
        raise ValueError(f"runs have no column {', '.join(missing)}")
    _write_new(Path(path), "".join(csv_lines(in_order(runs.sort(list(KEY))))))


def csv_lines(runs: pl.DataFrame) -> list[str]:
    """Return the lines of a CSV file of runs in their order; the first one names the columns."""
    rows = pl.concat([runs, pl.DataFrame(schema=RUNS)], how="diagonal_relaxed")
    rows = rows.select(list(RUNS)).with_columns(pl.selectors.float().fill_null(math.nan))
    names = [IN_CSV.get(name, name) for name in rows.columns]
    return [csv_line(names), *(csv_line(map(_cell, row)) for row in rows.iter_rows())]


def export_ioh(runs: pl.DataFrame, history: pl.DataFrame, folder: str | Path) -> None:
    """Write runs in IOHprofiler's format into a new or empty directory.

    Each method gets a directory inside it. Runs without a history, such as imported runs, have only
    their last value.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty; name a new directory or an empty one")
    _check_dimensions(runs)
    runs = in_order(runs.sort(list(KEY)))
    kept = history.sort("generation").partition_by(list(KEY), as_dict=True)
    methods = runs["method"].unique(maintain_order=True).to_list()
    # Registered problems come first, so that they have the same numbers in every export.
    names = dict.fromkeys([*problems.names(), *runs["problem"]])
    functions = {problem: number for number, problem in enumerate(names, 1)}
    by = ["method", "problem", "m", "n"]
    for (method, problem, m, n), group in runs.group_by(by, maintain_order=True):
        home = folder / f"a{methods.index(method) + 1}_{_safe(method)}"
        traces = []
        for run in group.iter_rows(named=True):
            generations = kept.get(tuple(run[name] for name in KEY))
            steps = [] if generations is None else generations.iter_rows(named=True)
            traces.append(_trace(run, steps, _optimum(problem, m, n)))
        function = functions[problem]
        name = f"f{function}_{_safe(problem)}"
        data = f"data_{name}/IOHprofiler_f{function}_DIM{m + n}.dat"
        _write_new(home / data, "".join(map(_block, traces)))
        about = json.dumps(_description(group, function, data, traces), indent=1, allow_nan=False)
        _write_new(home / f"IOHprofiler_{name}_DIM{m + n}.json", about + "\n")


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank, with the number of its first line."""
    line = 1
    try:
        with TextIOWrapper(opened(path, MAX_CSV), "utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                if cells:
                    yield line, cells
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: not CSV: {error}") from None


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise ValueError(f"{path} is empty; its first line should name its columns")
    if unknown := [name for name in header if name not in RUNS]:
        known = ", ".join(IN_CSV.get(name, name) for name in RUNS)
        raise ValueError(f"{path} has unknown columns {unknown}; known are {known}")
    if twice := [IN_CSV.get(name, name) for name, times in Counter(header).items() if times > 1]:
        raise ValueError(f"{path} has more than one column of the names {', '.join(twice)}")
    if missing := [name for name in REQUIRED if name not in header]:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(header)}")


def _values(header: list[str], cells: list[str]) -> Row:
    """Return the values of a line by column; an empty cell, if allowed, gives no value."""
    if len(cells) != len(header):
        raise ValueError(f"{len(cells)} values, but there are {len(header)} columns")
    row = {name: _value(name, cell) for name, cell in zip(header, cells, strict=True) if cell}
    needed = (*REQUIRED, *(("number",) if "number" in header else ()))
    if empty := [name for name in needed if name not in row]:
        raise ValueError(f"column {', '.join(empty)} is empty")
    return row


def _value(name: str, cell: str) -> Any:
    kind, read = READERS[RUNS[name]]
    try:
        value = read(cell)
    except (ValueError, KeyError):
        raise ValueError(f"column {name}: {cell[:60]!r} is no {kind}") from None
    if name in ("m", "n") and value < 1:
        raise ValueError(f"column {name}: {value} is no size; it should be 1 or more")
    if isinstance(value, int | float) and name not in SIGNED and value < 0:
        raise ValueError(f"column {name}: {value} is negative")
    return value


def _parse_number(cell: str) -> float:
    if "_" in cell:  # Python would read 1_0 as 10
        raise ValueError
    return float(cell)


def _whole(cell: str) -> int:
    """Read a whole number, which other programs may write as 2e5 or 100.0."""
    number = _parse_number(cell)
    value = int(number) if re.search(r"[.eE]", cell) and number.is_integer() else int(cell)
    if abs(value) >= INT64_LIMIT:
        raise ValueError
    return value


READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {  # by type: its name in errors, its reader
    pl.String: ("text", unguarded),
    pl.Int64: ("whole number of 64 bits", _whole),
    pl.Float64: ("number", _parse_number),
    pl.Boolean: ("truth value (true or false)", lambda cell: TRUTH[cell.lower()]),
    pl.List(pl.Float64): (
        "list of numbers such as 0.5;1.25",
        lambda cell: [_parse_number(part) for part in cell.split(";")],
    ),
}


def _completed(row: Row) -> Row:
    """Check a row as a whole, and add the columns that follow from others."""
    for name in ("problem", "method"):
        if not row[name].strip():
            raise ValueError(f"column {name} is blank")
    if row["problem"].lower() in problems.names():
        row["problem"] = row["problem"].lower()
    row = {"violation": 0.0, "status": IMPORTED, "budget": 0, "target": True, **row}
    _check_answer(row)
    known = _optimum(row["problem"], row["m"], row["n"])
    if known is not None:
        row = {"F_star": known.F, "f_star": known.f, **row}
    if "F_star" in row and "f_star" in row:
        distances = abs(row["F"] - row["F_star"]), abs(row["f"] - row["f_star"])
        row = {"Acc_u": distances[0], "Acc_l": distances[1], **row}
    absent = {pl.String: "", pl.Float64: math.nan, pl.List(pl.Float64): []}
    return {name: row.get(name, absent.get(kind)) for name, kind in RUNS.items()}


def _check_answer(row: Row) -> None:
    """Refuse an answer with NaN, or with a wrong number of variables.

    NaN is allowed if the run failed or found no pair at all.
    """
    if row["status"] != FAILED and row["violation"] != math.inf:
        for name in ("F", "f", "violation"):
            if math.isnan(row[name]):
                raise ValueError(f"column {name}: nan is no number, and status is not {FAILED!r}")
    for name, size in (("x", "m"), ("y", "n")):
        if name in row and len(row[name]) != row[size]:
            raise ValueError(f"column {name}: {len(row[name])} numbers, but {size} is {row[size]}")


@cache
def _optimum(problem: str, m: int, n: int) -> Optimum | None:
    """Return the known optimum of a registered problem; refuse sizes that it does not have."""
    if problem not in problems.names():
        return None
    if max(m, n) > MAX_VARIABLES:
        raise ValueError(
            f"{problem} with m={m}, n={n}: more than {MAX_VARIABLES} variables of a level"
        )
    known = problems.get(problem, m, n).optimum
    return known if known is not None and math.isfinite(known.F) else None


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ";".join(map(repr, value))
    if isinstance(value, str):
        return guarded(value)
    return str(value).lower() if isinstance(value, bool) else value


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def _check_dimensions(runs: pl.DataFrame) -> None:
    """Refuse two sizes of a problem with the same m + n: the format cannot tell them apart."""
    sizes: dict[tuple[str, int], tuple[int, int]] = {}
    for problem, m, n in runs.select("problem", "m", "n").unique().sort("m").iter_rows():
        other = sizes.setdefault((problem, m + n), (m, n))
        if other != (m, n):
            raise ValueError(
                f"IOHprofiler cannot tell {problem} with m, n = {other} from {(m, n)}, both of "
                f"dimension {m + n}: export them apart"
            )


def _safe(name: str) -> str:
    """Return a name with hyphens in place of letters that a file's name should not have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40]


def _trace(run: Row, generations: Iterable[Row], known: Optimum | None) -> list[list[float]]:
    """Return a record (evaluations, raw_y and ATTRIBUTES) for each generation of a run.

    The first record is that of the first evaluation, and the last one that of the run's end.
    """
    steps: dict[int, list[float]] = {1: [math.inf, *(math.nan for _ in ATTRIBUTES)]}
    for step in (*generations, run):  # at equal evaluations, the later step counts
        evaluations = max(1, step["nfev_upper"] + step["nfev_lower"])
        raw = step["F"] if known is None else abs(step["F"] - known.F)
        good = step["violation"] == 0 and math.isfinite(step["F"])
        steps[evaluations] = [float(raw) if good else math.inf, *(step[x] for x in ATTRIBUTES)]
    return [[evaluations, *steps[evaluations]] for evaluations in sorted(steps)]


def _block(trace: list[list[float]]) -> str:
    """Write the lines of a run: the column names, then numbers in the notation of R."""
    in_r = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}
    lines = [IOH_COLUMNS, *([in_r.get(repr(one), repr(one)) for one in record] for record in trace)]
    return "".join(" ".join(line) + "\n" for line in lines)


def _description(
    group: pl.DataFrame, function: int, data: str, traces: list[list[list[float]]]
) -> Row:
    """Describe the runs of one method on one problem of one size for the JSON file.

    iohinspector evaluates experiment attributes as Python code, so they hold only our own numbers.
    """
    method, problem, m, n = group.select("method", "problem", "m", "n").row(0)
    attributes = [{"m": str(m)}, {"n": str(n)}]
    if (known := _optimum(problem, m, n)) is not None:
        attributes.append({"optimum": repr(float(known.F))})
    both = zip(group.iter_rows(named=True), traces, strict=True)
    records = [_run_record(run, trace) for run, trace in both]
    versions = sorted({version for version in group["version"] if version})
    return {
        "version": FORMAT,
        "suite": SUITE,
        "function_id": function,
        "function_name": problem,
        "maximization": False,
        "algorithm": {"name": method, "info": ", ".join(versions)},
        "experiment_attributes": attributes,
        "run_attributes": ["number"],
        "attributes": IOH_COLUMNS,
        "scenarios": [{"dimension": m + n, "path": data, "runs": records}],
    }


def _run_record(run: Row, trace: list[list[float]]) -> Row:
    """Describe a run by its best record; x and y are known only for the last record."""
    best = min(trace, key=lambda record: record[1])
    point = [*run["x"], *run["y"]] if best is trace[-1] else []
    y = best[1] if math.isfinite(best[1]) else None
    x = point if all(map(math.isfinite, point)) else []
    found = {"evals": best[0], "y": y, "x": x}
    return {"instance": 1, "evals": trace[-1][0], "best": found, "number": run["number"]}
