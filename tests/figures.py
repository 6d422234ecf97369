"""The table of docs/reliability.md, which `scripts/test --full` makes from its tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

PROMISES = {
    1: ("kill -9 of a run", "it resumes, and its result and counters are the same to the last bit"),
    2: ("a cut anywhere in the journal", "the run resumes to the same result"),
    3: (
        "a damaged journal",
        "a torn tail is repaired; damage before good records is refused with `JournalCorrupt`",
    ),
    4: ("disk full, I/O errors", "an error names the path, and the run can be resumed"),
    5: ("power loss", "at most a second of evaluations is lost, and the run resumes"),
    6: (
        "a worker is killed",
        "it is replaced, its point is evaluated again, and the result is the same",
    ),
    7: (
        "the objective raises",
        "`raise`: the original error is raised, and the run can be resumed; `worst`: the "
        "failure is counted and stored",
    ),
    8: (
        "NaN and infinity",
        "they rank last and are never the answer; a run without other values ends with a "
        "clear status",
    ),
    9: ("wrong shapes and types", "converted by fixed rules, or refused with `BadValue`"),
    10: (
        "an evaluation that hangs",
        "it is ended by its timeout and stored as a failure, and no process is left over",
    ),
    11: ("another executor", "the same bits with any executor and with 1 or 2 BLAS threads"),
    13: ("degenerate bounds and scales", "a result, or a ValueError before the first evaluation"),
    14: (
        "ill-conditioned covariances",
        "they stay finite and positive, or the search stops with a reason; no LinAlgError",
    ),
    15: (
        "allocation arithmetic",
        "probabilities are finite, add up to 1, and are never below their base",
    ),
    16: ("files from a stranger", "a named error, and no code from them is run"),
    17: ("old formats", "resumed, or refused with a reason"),
    18: (
        "two writers",
        "the second is refused, and the error names the first; a lock ends with its process",
    ),
    21: ("the parent is killed while workers run", "workers end; the same call goes on at once"),
    22: (
        "a kill, or a cut, while a problem's own solver is running",
        "its states are restored or computed again, and the result is the same",
    ),
    23: (
        "an algorithm that breaks the rules",
        "`BadRequest`, which says what is wrong, or a right result; no call outside the bounds",
    ),
    24: (
        "a run directory that somebody else has made",
        "no link is followed, only plain files are opened, sizes are bounded; "
        "a named error or the right result, and files outside are untouched",
    ),
    25: (
        "functions or a solver that changed between two calls of one run",
        "the best pair is evaluated again on resume, and a warning names it",
    ),
    40: ("texts with control characters", "a terminal shows them as visible escapes"),
    41: ("formulas in names", "CSV has them as text, and an import gives the same names"),
    42: (
        "plans and stored runs of absurd size, pipes, devices and links",
        "refused before they are read; writing follows no link",
    ),
    43: ("code named by a plan or a command", "it is found, and `sys.path` is left as it was"),
    44: ("a local Dask cluster", "it listens on the loopback interface only"),
}


def figures_of(reports: list[Any]) -> Counter[tuple[int, str]]:
    """Return the figures of tests that passed."""
    found: Counter[tuple[int, str]] = Counter()
    for report in reports:
        for name, value in getattr(report, "user_properties", []):
            if name == "figure":
                row, number, of = value
                found[row, of] += number
    return found


def write_figures(path: str, figures: Counter[tuple[int, str]]) -> None:
    """Write the table; promises that were not tested this time keep their row."""
    page = Path(path)
    kept = page.read_text().splitlines() if page.exists() else []
    lines = [
        "# Reliability",
        "",
        "This table lists what bilevo promises, and how often each promise was tested without a",
        "failure. No failure in n trials bounds the rate of failures by 3/n (95%). The table is",
        "made by `scripts/test --full`; the tests are in `tests/crash`.",
        "",
        "| # | threat | promise | trials, none of which failed |",
        "|---|---|---|---|",
    ]
    for row, (threat, promise) in PROMISES.items():
        made = "; ".join(f"{n:,} {of}" for (r, of), n in sorted(figures.items()) if r == row)
        before = [line for line in kept if line.startswith(f"| {row} |")]
        lines += before if before and not made else [f"| {row} | {threat} | {promise} | {made} |"]
    page.write_text("\n".join(lines) + "\n")
