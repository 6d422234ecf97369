"""Options that the commands on stored runs share: which runs, and what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from bilevo.lab import store
from bilevo.lab.analysis.baseline import read_baseline
from bilevo.lab.analysis.samples import FLOOR
from bilevo.lab.analysis.statistics import ALPHA, Test
from bilevo.lab.frames import pl
from bilevo.lab.plans import SUITES
from bilevo.lookup import parse_sizes
from bilevo.options import Flag, Several, Whole

# Settings that end runs. Runs that differ in them are not mixed. Each setting has a column in the
# stored runs, and an option that chooses among its values.
ENDS = {
    "max_evals": ("budget", "--max-evals"),
    "target": ("target", "--target or --no-target"),
}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Which:
    """Options that choose some of the stored runs.

    Parameters
    ----------
    problems
        Problems or suites, separated by commas.
    dim
        Sizes M,N; may be given several times.
    methods
        Methods, separated by commas.
    max_evals
        Choose the runs with this limit on evaluations, if limits differ; 0 means without a limit.
    target
        Choose the runs that end at the known optimum, or those that do not, if there are both.
    """

    problems: str | None = None
    dim: Several = ()
    methods: str | None = None
    max_evals: Whole | None = None
    target: bool | None = None

    def runs(self, paths: Sequence[Path]) -> pl.DataFrame:
        """Read the chosen runs from directories or files.

        Raise ValueError if a run is in two places, or if limits or targets of the runs differ.
        """
        rows = pl.concat([store.runs(path) for path in paths])
        if twice := rows.filter(rows.select(store.KEY).is_duplicated()).rows(named=True):
            raise ValueError(f"the same run is in two places: {run_name(twice[0])}")
        chosen = rows.filter(self._wanted(rows))
        if chosen.is_empty() and len(rows):
            sizes = rows.select("m", "n").unique().sort("m", "n").rows()
            ends = sorted(rows.select("budget", "target").unique().rows())
            raise ValueError(
                "none of the runs is of the sizes, max_evals and target asked for; there are sizes "
                f"{', '.join(map(str, sizes))} and (max_evals, target) {ends}"
            )
        for name, (column, option) in ENDS.items():
            if len(found := sorted(chosen[column].unique())) > 1:
                raise ValueError(f"there are runs with {name} {found}: choose by {option}")
        return store.in_order(chosen)

    def runs_and_history(self, paths: Sequence[Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read the chosen runs and the histories of those that have one."""
        runs = self.runs(paths)
        rows = pl.concat([store.history(path) for path in paths])
        return runs, rows.join(runs, on=list(store.KEY), how="semi", maintain_order="left")

    def _wanted(self, rows: pl.DataFrame) -> pl.Expr:
        wanted = pl.lit(True)
        if words := split_words(self.problems):
            known = set(rows["problem"].unique())
            names = [name for word in words for name in _problems_meant(word, known)]
            wanted &= pl.col("problem").is_in(names)
        if methods := split_words(self.methods):
            known = set(rows["method"].unique())
            if missing := [name for name in methods if name not in known]:
                raise ValueError(f"no runs of method {missing}; there are {sorted(known)}")
            wanted &= pl.col("method").is_in(list(methods))
        if sizes := [parse_sizes(size) for size in self.dim]:
            wanted &= pl.any_horizontal((pl.col("m") == m) & (pl.col("n") == n) for m, n in sizes)
        for name, (column, _) in ENDS.items():
            if (value := getattr(self, name)) is not None:
                wanted &= pl.col(column) == value
        return wanted


def _problems_meant(word: str, known: set[str]) -> list[str]:
    """Return the stored problems that a word stands for: members of a suite, or a name."""
    suite = SUITES.get(word.lower(), ())
    found = [name for name in (*suite, word, word.lower()) if name in known]
    if not found:
        raise ValueError(f"no runs of problem {word!r}; there are {sorted(known)}")
    return found


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Against:
    """Options that say what runs are compared with, and how.

    Parameters
    ----------
    baseline
        A JSON file of published medians, shown in brackets beside the medians of the runs;
        docs/laboratory.md describes its format.
    reference
        The method that the other methods are tested against. The default is drc-cma-es, or the
        first method if drc-cma-es has no runs.
    floor
        Accuracies below the floor count as the floor; 0 leaves them as they are.
    test
        Wilcoxon's rank-sum test, or his signed-rank test, which pairs runs of the same number.
    holm
        Correct p values for the number of tests, by Holm's method.
    alpha
        The level of significance.
    """

    baseline: Path | None = None
    reference: str | None = None
    floor: float = FLOOR
    test: Test = "rank-sum"
    holm: Flag = False
    alpha: float = ALPHA

    def options(self) -> dict[str, Any]:
        """Return the options of `tables.make_table`, with the baseline read from its file."""
        read = None if self.baseline is None else read_baseline(self.baseline)
        return {**asdict(self), "baseline": read}


def run_name(row: store.Row) -> str:
    """Return the name of a run in words."""
    return ", ".join(f"{key} {row[key]}" for key in store.KEY)


def split_words(words: str | None) -> tuple[str, ...]:
    """Split words that are separated by commas."""
    return tuple(word.strip() for word in words.split(",") if word.strip()) if words else ()
