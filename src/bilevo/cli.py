"""The command line: `bilevo solve`, `show` and `list`; `bilevo.lab` has the other commands."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import sleep, time
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import App, CycloptsError, Parameter

from bilevo import problems, registry
from bilevo.api import load, minimize, verify
from bilevo.core.budget import StopReason
from bilevo.core.extras import MissingExtra
from bilevo.core.problem import Problem
from bilevo.core.result import Result
from bilevo.core.terminal import on_one_line, printable
from bilevo.core.users_code import is_marked
from bilevo.lookup import named_method, named_problem, parse_sizes, path_restored
from bilevo.options import Flag, Whole
from bilevo.run.follow import FollowedRun, followed
from bilevo.run.lock import owner_of
from bilevo.run.state import RunState, state_of, state_words
from bilevo.version import __version__

app = App(
    name="bilevo",
    help="Black-box bilevel optimization: a leader chooses x, a follower answers with y.",
    version=__version__,
)
# Modules and functions of `bilevo.lab`, and the help of each command. Commands are loaded when
# first used.
LABORATORY = {
    "bench:bench": "Compare methods: make those runs of a plan that are missing.",
    "commands:table": "Show medians and tests of stored runs, next to a baseline.",
    "commands:figure": "Draw stored runs: convergence, allocation, running time, ECDF, ranks.",
    "commands:report": "Write one HTML file about stored runs: sortable tables, live figures.",
    "watch.command:watch": "Show runs and campaigns on a page in the browser, live.",
    "commands:import_": "Add results of other programs to stored runs.",
    "commands:export": "Write stored runs as CSV or for IOHprofiler.",
}
for place, text in LABORATORY.items():
    command = place.partition(":")[2].rstrip("_")
    app.command(f"bilevo.lab.{place}", name=command, help=text)
FOLLOW_EVERY = 0.5  # Seconds between two looks at a run that is followed.


class UsageError(ValueError):
    """A mistake in the use of the command line."""


@app.command
def solve(
    problem: str,
    /,
    *,
    dim: str | None = None,
    method: str | None = None,
    seed: Whole = 1,
    max_evals: Whole | None = None,
    max_evals_upper: Whole | None = None,
    max_evals_lower: Whole | None = None,
    max_time: float | None = None,
    target: float | None = None,
    to_target: Annotated[
        bool, Parameter(name="", negative="--no-target", show_default=False)
    ] = True,
    ftol: float = 1e-6,
    ctol: float | None = None,
    stance: Literal["optimistic", "pessimistic"] = "optimistic",
    tie_tol: float | None = None,
    workers: Whole | None = None,
    on_failure: Literal["raise", "worst"] = "raise",
    retries: Whole = 0,
    timeout: float | None = None,
    run_dir: Path | None = None,
    recheck: bool = True,
    verified: Annotated[Flag, Parameter(name="--verify")] = False,
    verify_effort: Literal["low", "normal", "high"] | None = None,
    as_json: Annotated[Flag, Parameter(name="--json")] = False,
    progress: bool | None = None,
) -> int:
    """Solve a problem of the suites, or one of your own.

    The exit status is 0 if the run settled or reached its target, and its answer is feasible and
    certified; else the message says what is missing, and the status is 1.

    Parameters
    ----------
    problem
        A name from `bilevo list`, or `module:object`: a bilevo.Problem or a function making one.
    dim
        Sizes M,N of a scalable problem, such as 2,3.
    method
        A name from `bilevo list`, or `module:object`: an algorithm of your own.
    seed
        The same seed gives the same result.
    max_evals
        Limit on evaluations of both levels together.
    max_evals_upper
        Limit on upper-level evaluations.
    max_evals_lower
        Limit on lower-level evaluations.
    max_time
        Limit on seconds.
    target
        Stop when F is at or below this value. The default is the known optimum, if any.
    to_target
        Do not stop at a target, not even at a known optimum.
    ftol
        How close to the target is close enough.
    ctol
        How far a constraint may be exceeded, relative to its scale; by default, the method says.
    stance
        Which of the follower's ties the leader expects: the best or the worst one for F.
    tie_tol
        How much larger than the best f a tie's f may be; by default, equal at the run's precision.
    workers
        Evaluate in this number of processes.
    on_failure
        What an exception in an objective does: end the run (raise), or rank the point last (worst).
    retries
        How often a failed evaluation is repeated before it counts as failed.
    timeout
        Seconds after which an evaluation is stopped and counts as failed; --workers is needed.
    run_dir
        Keep every evaluation in this directory. The same command continues a run that was killed.
    recheck
        Evaluate the best pair again when a run is continued, and warn if its values have changed.
    verified
        Solve the follower of the answer again by independent searches; they decide the success.
    verify_effort
        How hard --verify looks; by default, low after a run of fewer than 2,000 evaluations, high
        after 20,000 or more, and else normal.
    as_json
        Print one JSON object and nothing else on standard output.
    progress
        Show a line of progress on standard error. By default it is shown on a terminal only.
    """
    show_progress = sys.stderr.isatty() if progress is None else progress
    with redirect_stdout(sys.stderr) if as_json else nullcontext():  # objectives may print
        chosen = load_problem(problem, dim)
        result = minimize(
            chosen,
            method=None if method is None else named_method(method),
            rng=seed,
            max_evals=max_evals,
            max_evals_upper=max_evals_upper,
            max_evals_lower=max_evals_lower,
            max_time=max_time,
            target=target if to_target else False,
            ftol=ftol,
            ctol=ctol,
            stance=stance,
            tie_tol=tie_tol,
            workers=workers,
            on_failure=on_failure,
            retries=retries,
            timeout=timeout,
            run_dir=run_dir,
            recheck=recheck,
            progress=show_progress,
        )
        if verified and np.isfinite(result.x).all():
            verify(
                chosen,
                result,
                effort=verify_effort,
                workers=workers,
                retries=retries,
                timeout=timeout,
                progress=show_progress,
            )
        elif verified:
            print("bilevo: there is no answer to verify", file=sys.stderr)
    present(result, as_json)
    return 0 if result.success else 1


@app.command
def show(
    run_dir: Path,
    /,
    *,
    watch: Flag = False,
    as_json: Annotated[Flag, Parameter(name="--json")] = False,
) -> int:
    """Show how far a run has come, or how it ended, and whether a process runs it.

    A run is running, dead (its process ended in the middle of it), stopped (by a limit, a callback,
    Ctrl-C or an error) or done. All but the last can go on.

    Parameters
    ----------
    run_dir
        The directory that `bilevo solve --run-dir` was given.
    watch
        Show a line that follows the run as long as it is running, and then the result.
    as_json
        Print one JSON object.
    """
    if watch:
        with suppress(KeyboardInterrupt):
            _follow(run_dir)
    result, owner = load(run_dir), owner_of(run_dir)
    end = None if result.status is StopReason.RUNNING else result.status
    if not as_json:
        print(f"state: {state_words(owner, end)}")
    present(result, as_json, state=state_of(owner, end))
    return 0


def _follow(run_dir: Path) -> None:
    """Show a line of progress as long as a process runs a run."""
    from bilevo.run.progress import status_line

    run = followed(run_dir)
    if run.state is not RunState.RUNNING:
        return
    with status_line(on_one_line(str(run_dir)), "reading") as write:
        while run.state is RunState.RUNNING and not run.error:
            write(_progress_of(run, time()))
            sleep(FOLLOW_EVERY)
            run.read(FOLLOW_EVERY)


def _progress_of(run: FollowedRun, now: float) -> str:
    """Return a line on how far a run has come, how fast it goes on, and how long."""
    (upper, lower), best = run.counts, run.stored.run.best
    words = [f"generation {run.rows.count}", f"{upper}+{lower} evaluations"]
    if best is not None:
        words.append(f"F {best.F:.5g} ({'certified' if best.certified else 'not certified'})")
    words += [f"{run.stored.run.failures} failed"] if run.stored.run.failures else []
    words += [f"{used / limit:.0%} of {name}" for name, (used, limit) in run.shares(now).items()]
    rate, left = run.rate(now), run.time_left(now)
    words += [] if rate is None else [f"{rate:.3g}/s"]
    words += [] if left is None else [f"about {left:.0f} s left"]
    return ", ".join(words)


@app.command(name="list")
def list_all(suite: Literal["literature"] | None = None, /) -> int:
    """Show the methods and the problems.

    Parameters
    ----------
    suite
        literature shows the problems of that suite, and nothing else.
    """
    from rich.console import Console

    console = Console()
    classes = problems.literature.CLASSES
    if suite is not None:
        console.print(problem_table("problems of the literature", list(classes), classes))
        return 0
    others = [name for name in problems.names() if name not in classes]
    console.print(method_table())
    console.print(problem_table("problems (F* of smd at m=2, n=3)", others))
    console.print(f"`bilevo list literature` shows {len(classes)} small problems of other papers")
    return 0


def problem_table(title: str, names: list[str], classes: Mapping[str, str] | None = None) -> Any:
    """Return a table of problems, with their classes if these are given."""
    from rich.table import Table
    from rich.text import Text

    head = ("problem", "m", "n", "F*") + (() if classes is None else ("class",))
    table = Table(*head, title=title, title_justify="left")
    for name in names:
        problem = problems.get(name)
        size = ("any", "any") if name in problems.scalable() else (str(problem.m), str(problem.n))
        known = "unknown" if problem.optimum is None else f"{problem.optimum.F:.6g}"
        words = (name, *size, known) + (() if classes is None else (classes[name],))
        table.add_row(*(Text(printable(word)) for word in words))
    return table


def method_table() -> Any:
    """Return the table of methods.

    On a terminal of 80 columns, no name or status is broken within a word.
    """
    from rich.table import Table
    from rich.text import Text

    rebuilt = registry.Status.RECONSTRUCTION
    note = f"{rebuilt}: our reading of a publication that leaves much open\n"
    able = ", ".join(registry.knowing_whole())
    note += f"for whole numbers and choices: {able}; the others search the decoded box"
    table = Table(title="methods", title_justify="left", caption=note, caption_justify="left")
    table.add_column("method", no_wrap=True)
    table.add_column("year", no_wrap=True)
    table.add_column("status", width=len(rebuilt))
    table.add_column("reference")
    for name, method in registry.methods().items():
        style = "yellow" if method.status == rebuilt else ""
        words = (name, str(method.year), method.status, method.reference)
        table.add_row(*(Text(printable(word)) for word in words), style=style)  # no markup
    return table


def present(result: Result, as_json: bool, **more: str) -> None:
    """Print a result, its certificate if any, and a note if the method is a reconstruction.

    With `as_json` the result is one JSON object, for scripts to read. It has the same keys for
    every method, and those in `more`. The note goes to standard error then.
    """
    print(to_json(result, **more) if as_json else printable(repr(_on_lines(result))))
    if not as_json:
        print(f"ties: {_range_of_ties(result)}")
    if not as_json and result.certificate is not None:
        print(f"certificate: {result.certificate}")
    known = registry.methods().get(result.method)
    if known is not None and known.status is registry.Status.RECONSTRUCTION:
        note = f"note: {result.method} is a reconstruction, not its authors' program"
        print(note, file=sys.stderr if as_json else sys.stdout)


def _range_of_ties(result: Result) -> str:
    """Return what is known about ties: the leader's best and worst F, and words."""
    ties = on_one_line(result.ties)
    if math.isnan(result.F_optimistic):
        return ties
    return f"F from {result.F_optimistic:.8g} to {result.F_pessimistic:.8g}: {ties}"


def _on_lines(result: Result) -> Result:
    """Return the result with its message and its method's name on one line each.

    These texts may come from a file. Line breaks in them could fake other lines of the output.
    """
    texts = on_one_line(result.message), on_one_line(result.method)
    return replace(result, message=texts[0], method=texts[1])


def load_problem(name: str, dim: str | None) -> Problem:
    """Return a problem of the suites in the given sizes, or a user's own problem."""
    if ":" in name and dim is not None:
        raise UsageError("--dim is for problems of the suites; your own problem has its sizes")
    return named_problem(name, *(() if dim is None else parse_sizes(dim)))


def to_json(result: Result, **more: str) -> str:
    """Return a result as one JSON object in printable ASCII.

    Numbers that are not finite become null.
    """

    def finite(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, dict):
            return {name: finite(item) for name, item in value.items()}
        if isinstance(value, list):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    made = None if result.certificate is None else asdict(result.certificate)
    ties = {name: getattr(result, name) for name in ("F_optimistic", "F_pessimistic", "ties")}
    text = json.dumps(finite({**more, **result.summary(), **ties, "certificate": made}))
    return text.replace("\x7f", "\\u007f")  # the one control character that JSON leaves alone


def main(tokens: list[str] | None = None) -> int:
    """Run a command and return its exit status: 0 on success, 2 on bad use, 1 otherwise."""
    with path_restored():
        return _run(tokens)


def _run(tokens: list[str] | None) -> int:
    try:
        status = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        # From here on output goes nowhere, so that the flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        message, status = explain(error)
        places = [note for note in _notes(error) if "\n" not in note]
        print(on_one_line(f"bilevo: {', '.join([message, *places])}"), file=sys.stderr)
        return status


def explain(error: Exception) -> tuple[str, int]:
    """Return the message for an error, and the exit status.

    The status is 2 if this package refused something by a ValueError, or if a file caused an
    OSError. It is 1 for all other errors, and for every error from user code.
    """
    for one in (error, error.__cause__):  # a command that is loaded late wraps the error
        if isinstance(one, MissingExtra):
            return str(one), 2
    try:
        if isinstance(error, CycloptsError):
            return str(error), 2
    except ImportError:  # the parser loads all commands to suggest similar names
        return "unknown command; bilevo --help shows them", 2
    if not is_marked(error):
        if isinstance(error, ValueError):
            return str(error), 2
        if isinstance(error, OSError) and error.filename is not None:
            return f"cannot use {error.filename}: {error.strerror}", 2
    return f"{type(error).__name__}: {error}{_line(error)}", 1


def _line(error: Exception) -> str:
    """Return the file and line that raised an error, or no text if a worker raised it."""
    if any("\n" in note for note in _notes(error)):
        return ""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({where.filename}:{where.lineno})"


def _notes(error: Exception) -> list[str]:
    """Return the notes on an error.

    A note of one line says where in a run the error was raised. A note of several lines is the
    traceback of a worker.
    """
    return [note for note in getattr(error, "__notes__", []) if isinstance(note, str)]


def entry() -> None:
    """Run the installed command, and print each warning on one line, like errors."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(on_one_line(f"bilevo: warning: {message}"), file=sys.stderr)

    warnings.showwarning = show
    sys.exit(main())
