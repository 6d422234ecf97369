"""The result of a run: the answer, its cost, why the run ended, and a compact history."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevo.core.archive import Archive, HasArchive
from bilevo.core.arrays import FloatArray
from bilevo.core.budget import SUCCESSFUL_ENDS, StopReason
from bilevo.core.checks import shown
from bilevo.core.extras import need
from bilevo.core.notebook import sparkline, table
from bilevo.core.plain_data import plain, revive, unpacked
from bilevo.core.stance import NOT_SEARCHED, Stance
from bilevo.core.terminal import on_one_line, printable
from bilevo.core.tolerances import alike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULT_FORMAT = "bilevo-result-1"
MAX_BYTES = 2**28  # The largest file that is read, in bytes.
MAX_ROWS = 10_000  # The most rows of a history; even, so that thinning keeps the last row.
NOT_CERTIFIED = "but its follower is not certified: bilevo.verify checks it"


@dataclass(frozen=True, slots=True)
class Generation:
    """An upper generation: evaluations so far, the elite, and what each task got.

    The elite is the best pair so far. `executions` and `survived` have an entry for each task.
    """

    nfev_upper: int
    nfev_lower: int
    F: float
    f: float
    violation: float
    executions: tuple[int, ...]
    survived: tuple[bool, ...]
    x: tuple[float, ...] = ()  # empty in files of earlier versions
    y: tuple[float, ...] = ()


@dataclass(slots=True)
class History:
    """The upper generations of a run: a sequence of rows, each a `Generation`, and a table.

    It keeps up to 10,000 rows. In a longer run it keeps the last generation, and of the others only
    every second (then every fourth, ...), so that memory is bounded. `numbers` says which
    generations the rows are.
    """

    generations: list[Generation] = field(default_factory=list)
    step: int = 1  # generations from one row to the next, except to the last row
    left_out: int = 0  # generations without a row

    def __post_init__(self) -> None:
        kept = len(self.generations)
        if self.step < 1 or self.left_out < 0 or len(self._evenly) + (kept > 0) != kept:
            raise ValueError(f"{kept} rows of a history with {self.step=}, {self.left_out=}")

    def add(self, generation: Generation) -> None:
        """Note the next generation."""
        if (self.count - 1) % self.step:  # the last row was kept only because it was the last
            del self.generations[-1]
            self.left_out += 1
        self.generations.append(generation)
        if len(self.generations) > MAX_ROWS:
            self.left_out += len(self.generations) // 2
            del self.generations[1::2]
            self.step *= 2

    def copy(self) -> History:
        return History(list(self.generations), self.step, self.left_out)

    @property
    def count(self) -> int:
        """Return the number of generations so far."""
        return len(self.generations) + self.left_out

    @property
    def numbers(self) -> list[int]:
        """Return the number of each row's generation, counted from 1."""
        return [*self._evenly, self.count] if self.generations else []

    @property
    def _evenly(self) -> range:
        """Return the generation numbers of all rows but the last."""
        return range(1, self.count, self.step)

    def __len__(self) -> int:
        return len(self.generations)

    def __iter__(self) -> Iterator[Generation]:
        return iter(self.generations)

    def __getitem__(self, index: int) -> Generation:
        return self.generations[index]

    def to_list(self) -> list[dict[str, Any]]:
        """Return a dictionary for each generation that is kept, with its number."""
        rows = zip(self.numbers, self.generations, strict=True)
        return [{"generation": i, **asdict(row)} for i, row in rows]

    def to_dataframe(self) -> Any:
        """Return a polars DataFrame, one row per generation that is kept, with its number."""
        return need("tables", "polars", "bench").DataFrame(self.to_list())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, with the rows of `to_dataframe`."""
        return need("tables of pandas", "pandas", "pandas").DataFrame(self.to_list())


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """An evaluation that failed: its level, its number at that level, the pair, and the error."""

    level: str
    evaluation: int
    x: FloatArray
    y: FloatArray
    error: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What independent searches of the follower at a result's x found.

    `y` is the best answer for the follower that was found (of several that tie, the leader's best);
    `F` and `f` are its values. `follower_gap` says how far the result's f is above the best f; it
    is inf if the result's y violates g, and NaN if it is not known. `feasible` tells whether x and
    this `y` meet the constraints of both levels. A violation of G that only comes from the last
    digits of y counts as met, and `message` says so (docs/howto_constraints.md).

    `confirmed` says that the result's answer stands: all planned searches were made, and none found
    a better answer. It does not say that x is the leader's best. `indifferent` says that the
    follower has other answers that are as good for it. Then F is between `F_best` and `F_worst` at
    the answers that were found.
    """

    y: FloatArray
    F: float
    f: float
    follower_gap: float
    feasible: bool
    nfev_lower: int
    nfev_upper: int
    message: str
    confirmed: bool = False
    by: str = "verify"  # who made the certificate: "verify" or a method's name
    effort: str = ""  # effort of `bilevo.verify`; "" if a method made the certificate
    searches: int = 0  # how many independent searches were made
    agreeing: int = 0  # how many of them ended at the best f
    indifferent: bool = False
    F_best: float = math.nan
    F_worst: float = math.nan
    failures: int = 0  # how many evaluations failed
    njev_lower: int = 0  # points at which the follower's gradients were asked for; not in nfev
    ties: str = ""  # what was found about ties; "" if they were not searched

    def __str__(self) -> str:
        """Say who made the certificate, what was searched, and what the searches found."""
        words = ["confirmed" if self.confirmed else "not confirmed", f"by {self.by}"]
        if self.effort:
            words.append(f"with effort {self.effort}")
        evals = f"{self.nfev_lower + self.nfev_upper} evaluations"
        searches = f"{self.agreeing} of {self.searches} independent searches agree"
        found = [searches] if self.searches else []
        found.append(evals)
        if not math.isnan(self.follower_gap):
            found.append(f"f is {self.follower_gap:.3g} above the best f found")
        return on_one_line(f"{' '.join(words)}: {', '.join(found)}")


@dataclass(slots=True)
class Result(HasArchive):
    """The answer of a run. `x` and `y` are NaN if the run ended before any pair was evaluated.

    `success` is True if three things hold. The run ended by its own rule or at its target; the
    answer is `feasible`; and the answer is `certified`, which means that independent searches found
    no better answer of the follower. `certificate` says what was searched, and `message` says what
    is missing for a success. No method can say that x is the best for the leader.

    `violation` is the sum of all positive constraints of both levels. The answer is `feasible` if
    `violation` is 0, or if `within_ctol` is True: each constraint is at most `ctol` (upper, lower)
    times its scale.

    `F_optimistic` and `F_pessimistic` are the best and the worst F among the follower's ties at x,
    as far as they were found, and `ties` says what was found. Ties are answers whose f is within
    `tie_tol` of the best. F is that of the answer which the leader's `stance` expects.

    Fields may also be read by name, as in `result["x"]`, and `dict(result)` has them all.
    """

    x: FloatArray
    y: FloatArray
    F: float
    f: float
    violation: float
    nfev_upper: int
    nfev_lower: int
    nit: int
    success: bool
    status: StopReason
    message: str
    time: float
    method: str
    seed: int
    version: str
    kernel: str = "numpy"  # what computed CMA-ES: "numpy" or "numba"
    failures: int = 0
    failed_points: list[Failure] = field(default_factory=list)  # the first hundred failures
    history: History = field(default_factory=History)
    certified: bool = False
    follower_gap: float = math.nan  # how far f is above the best that independent searches found
    certificate: Certificate | None = None
    rechecked: int = 0  # evaluations made again when a run was resumed; not in nfev
    within_ctol: bool = False
    ctol: tuple[float, ...] = (0.0, 0.0)
    constraint_scales: tuple[tuple[float, ...], ...] = ()  # (upper, lower), where ctol is not 0
    njev_upper: int = 0  # points at which the leader's gradients were asked for
    njev_lower: int = 0  # the same for the follower's gradients; both are not in nfev
    simulations: int | None = None  # of a joint problem: calls of its simulator, which nfev counts
    repeats: int = 0  # points decoded to pairs that were evaluated before; not in nfev
    labels: list[str] = field(default_factory=list)  # the answer's choices: "x[2] = coal"
    stance: Stance = Stance.OPTIMISTIC
    tie_tol: float | None = None  # None if the precision of the run decides what ties
    F_optimistic: float = math.nan  # the best F among the follower's ties at x; NaN: not searched
    F_pessimistic: float = math.nan  # the worst F among them
    ties: str = NOT_SEARCHED  # what was found about ties

    def __post_init__(self) -> None:
        # Files of earlier versions may have a success without a certificate.
        if self.success and not self.certified:
            self.success = False
            self.message = f"{self.message}, {NOT_CERTIFIED}"

    @property
    def nfev(self) -> int:
        """Return the evaluations of both levels; of a joint problem, the simulations."""
        asked = self.nfev_upper + self.nfev_lower
        return asked if self.simulations is None else self.simulations

    @property
    def njev(self) -> int:
        return self.njev_upper + self.njev_lower

    @property
    def feasible(self) -> bool:
        """Tell whether the answer meets all constraints, within `ctol`."""
        met = self.violation == 0 or self.within_ctol
        return met and math.isfinite(self.F) and math.isfinite(self.f)

    def accept(self, certificate: Certificate, same_ties: bool = False) -> None:
        """Adopt a certificate, and set `certified`, `success` and `message` accordingly.

        With `same_ties`, what was known about ties stays if it is more and the answer is confirmed.
        """
        self.certificate, self.certified = certificate, bool(certificate.confirmed)
        self.follower_gap = certificate.follower_gap
        kept = same_ties and self.certified and self._knows_more_ties_than(certificate)
        if certificate.ties and not kept:
            self.F_optimistic, self.F_pessimistic = certificate.F_best, certificate.F_worst
            self.ties = certificate.ties
        feasible = self.feasible and certificate.feasible
        self.success = self.status in SUCCESSFUL_ENDS and feasible and self.certified
        ending = self.message.partition("; ")[0]
        self.message = f"{ending}; {certificate.message}"

    def _knows_more_ties_than(self, certificate: Certificate) -> bool:
        """Tell whether the run has found a wider range of F among ties than a verification has."""
        worse = self.F_pessimistic > certificate.F_worst
        worse = worse and not alike(certificate.F_worst, self.F_pessimistic)
        lower, least = self.F_optimistic, certificate.F_best
        return bool(worse and (lower <= least or alike(least, lower)))

    def keys(self) -> list[str]:
        """Return the names of the fields, and `nfev` and `feasible`."""
        return [*(one.name for one in fields(self)), "nfev", "feasible"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(f"{shown(name)}: a result has {', '.join(self.keys())}")
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in plain types: numbers, texts, lists and dictionaries.

        The history is a list of its generations. `json.dumps` takes the dictionary; it writes
        numbers that are not finite as NaN and Infinity.
        """
        content = {**asdict(self), "nfev": self.nfev, "feasible": self.feasible}
        content["history"] = self.history.to_list()
        return {name: unpacked(value) for name, value in content.items()}

    def to_pandas(self) -> Any:
        """Return the history as a pandas DataFrame: `history.to_pandas()`."""
        return self.history.to_pandas()

    def archive(self) -> Archive:
        """Return the evaluations of the run, with x, y, F, f, G, g, level and time.

        The run must have been made with `run_dir` or `keep_archive`. A journal holds values and no
        points. So for a run in `run_dir` the method runs again here, with the stored values, and
        your functions are not called. A result that was loaded from a file has no archive: repeat
        the call that made the run, which evaluates nothing if the run has ended.
        """
        kept = getattr(self, "_archive", None)
        if kept is None:
            raise ValueError(
                "this result has no archive: call minimize with run_dir=... (again, if the run "
                "has ended) or with keep_archive=True, and use the result that it returns"
            )
        made: Archive = kept() if callable(kept) else kept
        return made

    def summary(self) -> dict[str, Any]:
        """Return the main fields as plain numbers, texts and lists, the most important first."""
        names = "x y F f violation nfev_upper nfev_lower nfev nit success certified status message"
        names += " method seed version time"
        values = {name: getattr(self, name) for name in names.split()}
        return {**values, "x": self.x.tolist(), "y": self.y.tolist()}

    def __repr__(self) -> str:
        texts = self._shown()
        width = max(map(len, texts))
        return "\n".join(f"{name:>{width}}: {text}" for name, text in texts.items())

    def __str__(self) -> str:
        """Return a text of lines of at most 79 columns, which says all that matters, for a mail."""
        verdict = "success" if self.success else "no success"
        evals = f"{self.nfev_upper} + {self.nfev_lower} = {self.nfev} (upper + lower)"
        if self.simulations is not None:
            asked = f"{self.nfev_upper} upper and {self.nfev_lower} lower values were asked for"
            evals = f"{self.simulations} simulations ({asked})"
        rows = {
            f"bilevo {self.version}": f"{self.method}, seed {self.seed}: {verdict}",
            "message": self.message,
            "x": _pretty(self.x.tolist()),
            "y": _pretty(self.y.tolist()),
            "F": f"{_pretty(self.F)} (leader)",
            "f": f"{_pretty(self.f)} (follower)",
            "violation": _pretty(self.violation),
            "ties": self._range_of_ties(),
            "evaluations": f"{evals} in {self.time:.2f} s",
        }
        if self.labels:
            rows["choices"] = ", ".join(self.labels)
        if self.failures:
            rows["failures"] = str(self.failures)
        if self.certificate is not None:
            rows["certificate"] = str(self.certificate)
        first, *others = ((printable(name), on_one_line(text)) for name, text in rows.items())
        indent = " " * 15
        lines = [_wrapped(f"{name + ':':<13}  {text}", indent) for name, text in others]
        return "\n".join([f"{first[0]}, {first[1]}", *lines])

    def _range_of_ties(self) -> str:
        if math.isnan(self.F_optimistic):
            return self.ties
        both = f"F from {_pretty(self.F_optimistic)} to {_pretty(self.F_pessimistic)}"
        return f"{both} ({self.stance}): {self.ties}"

    def _repr_html_(self) -> str:
        """Show a table and a small curve of F in notebooks."""
        texts = self._shown()
        if self.certificate is not None:
            texts["certificate"] = str(self.certificate)
        curve = sparkline([row.F for row in self.history], "F of the elite by generation")
        return table(f"Result of {self.method}", texts) + curve

    def _shown(self) -> dict[str, str]:
        """Return the fields to show, as texts by name."""
        values = {k: v for k, v in self.summary().items() if k not in ("version", "time")}
        if self.njev:
            values |= {name: getattr(self, name) for name in ("njev_upper", "njev_lower", "njev")}
        if self.labels:
            values["choices"] = ", ".join(self.labels)
        if self.repeats:
            values["repeats"] = self.repeats
        if self.failures:
            values["failures"] = self.failures
        return {name: _pretty(value) for name, value in values.items()}

    def plot(self, F_star: float | None = None) -> Figure:
        """Draw convergence and resource allocation in one figure: `bilevo.plot.run`."""
        from bilevo.plot import run  # late: needs matplotlib

        return run(self, F_star)

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; `Result.load` reads it back with the same bits."""
        text = json.dumps({"format": RESULT_FORMAT, **plain(asdict(self))}, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result that `save` wrote; raise ValueError for any other file."""
        file = Path(path)
        try:
            if file.exists() and not (file.is_file() and file.stat().st_size <= MAX_BYTES):
                raise ValueError(f"no plain file of at most {MAX_BYTES} bytes")
            content = json.loads(file.read_text(encoding="utf-8"))
            if content.pop("format") != RESULT_FORMAT:
                raise ValueError("another format")
            return revive(cls, content)
        except OSError:
            raise
        except Exception as error:  # a foreign file can be wrong in any way
            raise ValueError(f"{path} is not a result of this version: {error}") from None


def _wrapped(line: str, indent: str) -> str:
    """Break a line at spaces, so that no part is longer than 79 columns if words allow it."""
    from textwrap import wrap  # late: few programs print a result

    parts = wrap(line, 79, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


def _pretty(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, list):
        return "[" + ", ".join(_pretty(item) for item in value) + "]"
    return printable(str(value))  # a result may come from somebody else's file
