"""Selection of stored runs from several folders and files, all with one way of ending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilevo.core.extras import need
from bilevo.lab import store
from bilevo.lab.plans import SUITES

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("stored runs", "polars", "bench")


@dataclass(frozen=True, slots=True)
class Selection:
    """Problems, sizes and methods to select (empty: all), with one limit and target.

    Without a limit (target) named, there must be only one among the runs.
    """

    problems: Sequence[str] = ()
    sizes: Sequence[tuple[int, int]] = ()
    methods: Sequence[str] = ()
    max_evals: int | None = None  # the column `budget`
    target: bool | None = None

    def runs(self, paths: Sequence[Path]) -> pl.DataFrame:
        """Read the runs of several folders or files; refuse a run that stands in two of them."""
        rows = pl.concat([store.runs(path) for path in paths])
        twice = rows.filter(rows.select(store.KEY).is_duplicated())
        if len(twice):
            first = twice.row(0, named=True)
            name = ", ".join(f"{key} {first[key]}" for key in store.KEY)
            raise ValueError(f"the same run stands in two places: {name}")
        chosen = rows.filter(self._wanted(rows))
        if chosen.is_empty() and len(rows):
            have = ", ".join(
                f"({m}, {n})" for m, n in rows.select("m", "n").unique().sort("m").rows()
            )
            ends = sorted(rows.select("budget", "target").unique().rows())
            raise ValueError(
                "none of the runs is of the sizes, max_evals and target asked for; there are sizes "
                f"{have} and (max_evals, target) {ends}"
            )
        _require_one_way_of_ending(chosen)
        return store.in_order(chosen)

    def history(self, paths: Sequence[Path]) -> pl.DataFrame:
        """Read the histories of the same runs, as far as they have any."""
        rows = pl.concat([store.history(path) for path in paths])
        return rows.join(self.runs(paths), on=list(store.KEY), how="semi", maintain_order="left")

    def _wanted(self, rows: pl.DataFrame) -> pl.Expr:
        wanted = pl.lit(True)
        if self.problems:
            known = set(rows["problem"].unique())
            names = [name for word in self.problems for name in _meant(word, known)]
            wanted &= pl.col("problem").is_in(names)
        if self.methods:
            known = set(rows["method"].unique())
            if missing := [name for name in self.methods if name not in known]:
                raise ValueError(f"no runs of method {missing}; there are {sorted(known)}")
            wanted &= pl.col("method").is_in(list(self.methods))
        if self.sizes:
            sizes = [(pl.col("m") == m) & (pl.col("n") == n) for m, n in self.sizes]
            wanted &= pl.any_horizontal(sizes)
        for column, value in (("budget", self.max_evals), ("target", self.target)):
            if value is not None:
                wanted &= pl.col(column) == value
        return wanted


def _require_one_way_of_ending(rows: pl.DataFrame) -> None:
    """Refuse runs of several limits, or with and without a target."""
    options = {"max_evals": ("budget", "--max-evals")}
    options["target"] = ("target", "--target or --no-target")
    for name, (column, option) in options.items():
        if len(found := sorted(rows[column].unique())) > 1:
            raise ValueError(f"there are runs with {name} {found}: choose by {option}")


def _meant(word: str, known: set[str]) -> list[str]:
    """Return the stored problems that a word stands for: members of a suite, or a name."""
    suite = SUITES.get(word.lower(), ())
    found = [name for name in (*suite, word, word.lower()) if name in known]
    if not found:
        raise ValueError(f"no runs of problem {word!r}; there are {sorted(known)}")
    return found
