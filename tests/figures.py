"""The table of docs/reliability.md, which `scripts/test --full` makes from its tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

PROMISES = {
    1: ("kill -9 of a run", "it resumes to a bit-identical result and equal counters"),
    2: ("a cut anywhere in the journal", "the same"),
    3: (
        "a damaged journal",
        "a torn tail is repaired; damage before good records is refused with `JournalCorrupt`",
    ),
    4: ("disk full, I/O errors", "an error that names the path; the run can be resumed"),
    5: ("power loss", "at most a second of evaluations is lost, and the run resumes"),
    6: ("a worker is killed", "it is replaced and its point repeated; the same result"),
    7: (
        "the objective raises",
        "`raise`: the original error, and the run resumes; `worst`: counted and journalled",
    ),
    8: (
        "NaN and infinity",
        "ranked last, never the answer; a run without other values ends with a clear status",
    ),
    9: ("wrong shapes and types", "accepted by rule, or `BadValue`"),
    10: ("an evaluation that hangs", "ended by its timeout, journalled as a failure, no orphans"),
    11: ("another executor", "the same bits with any executor and with 1 or 2 BLAS threads"),
    13: ("degenerate bounds and scales", "a result, or a ValueError before the first evaluation"),
    14: ("ill-conditioned covariances", "finite and positive, or a reason to stop; no LinAlgError"),
    15: ("allocation arithmetic", "probabilities finite, adding up to 1, each at least its base"),
    16: ("files from a stranger", "a named error; nothing is run"),
    17: ("old formats", "resumed, or refused with a reason"),
    18: (
        "two writers",
        "the second is refused, and the error names the first; a lock ends with its process",
    ),
    21: ("the parent is killed while workers run", "workers end; the same call goes on at once"),
    22: (
        "a kill, or a cut, while a problem's own solver is running",
        "its states are restored or computed again; the same result",
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
