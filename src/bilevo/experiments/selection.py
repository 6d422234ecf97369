"""Stored runs to look at: from several folders and files, and of one way of ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilevo.core.extras import need
from bilevo.experiments import store
from bilevo.experiments.plans import members

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("stored runs", "polars", "bench")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which runs: of these problems, sizes and methods (empty: all), of one budget and target.

    Without a budget (target) named, there must be only one among the runs.
    """

    problems: Sequence[str] = ()
    sizes: Sequence[tuple[int, int]] = ()
    methods: Sequence[str] = ()
    budget: int | None = None
    target: bool | None = None

    def runs(self, paths: Sequence[Path]) -> pl.DataFrame:
        """Of several folders or files together; a run that stands in two of them is refused."""
        found = self._of(paths, store.runs)
        twice = found.filter(found.select(store.KEY).is_duplicated())
        if len(twice):
            first = twice.row(0, named=True)
            name = ", ".join(f"{key} {first[key]}" for key in store.KEY)
            raise ValueError(f"the same run stands in two places: {name}")
        return found

    def history(self, paths: Sequence[Path]) -> pl.DataFrame:
        """The histories of the same runs."""
        return self._of(paths, store.history)

    def _of(self, paths: Sequence[Path], read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        rows = pl.concat([read(path) for path in paths])
        wanted = pl.lit(True)
        for column, values in (("problem", members(self.problems)), ("method", self.methods)):
            if values:
                known = set(rows[column].unique())
                if missing := [value for value in values if value not in known]:
                    raise ValueError(f"no runs of {column} {missing}; there are {sorted(known)}")
                wanted &= pl.col(column).is_in(list(values))
        if self.sizes:
            sizes = [(pl.col("m") == m) & (pl.col("n") == n) for m, n in self.sizes]
            wanted &= pl.any_horizontal(sizes)
        for column, value in (("budget", self.budget), ("target", self.target)):
            if value is not None:
                wanted &= pl.col(column) == value
        chosen = rows.filter(wanted)
        if chosen.is_empty() and len(rows):
            raise ValueError("none of the runs is of the sizes, budget and target asked for")
        self._one_way_of_ending(chosen)
        return store.in_order(chosen)

    def _one_way_of_ending(self, rows: pl.DataFrame) -> None:
        for column, option in (("budget", "--budget"), ("target", "--target or --no-target")):
            if len(found := sorted(rows[column].unique())) > 1:
                raise ValueError(f"there are runs with {column} {found}: choose by {option}")
