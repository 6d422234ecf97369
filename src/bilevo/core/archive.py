"""The archive of a run: its evaluations as arrays, for tables, pictures and models."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from bilevo.core.arrays import BoolArray, FloatArray
from bilevo.core.extras import need


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """The evaluations of a run, in the order in which the method asked for them.

    Each row is one evaluation of one level. A row of the upper level has F and G, a row of the
    lower level f and g; the other entries are NaN. An evaluation that failed has NaN only. A step
    of the problem's own solver is a row of the lower level: it has the solver's best answer and f.

    x (k, m), y (k, n)
        The points.
    F (k,), f (k,), G (k, c), g (k, d)
        The values.
    level (k,)
        "upper" or "lower".
    time (k,)
        Seconds from the beginning of the run to the end of the evaluation.
    failed (k,)
        Whether the evaluation failed.
    left_out
        How many earlier evaluations are not in the archive, because of a limit on memory.
    """

    x: FloatArray
    y: FloatArray
    F: FloatArray
    f: FloatArray
    G: FloatArray
    g: FloatArray
    level: Any
    time: FloatArray
    failed: BoolArray
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        upper = int((self.level == "upper").sum())
        lacks = f", without {self.left_out} others" if self.left_out else ""
        return f"<Archive of {upper} upper and {len(self) - upper} lower evaluations{lacks}>"

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists. Vectors have a column for each entry: x0, x1, ..., y0."""
        columns: dict[str, list[Any]] = {}
        for name in (field.name for field in fields(self) if field.name != "left_out"):
            values = getattr(self, name)
            if values.ndim == 1:
                columns[name] = values.tolist()
            else:
                columns |= {f"{name}{i}": one.tolist() for i, one in enumerate(values.T)}
        return columns

    def to_dataframe(self) -> Any:
        """Return a polars DataFrame, with the columns of `to_dict`."""
        return need("tables", "polars", "bench").DataFrame(self.to_dict())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, with the columns of `to_dict`."""
        return need("tables of pandas", "pandas", "pandas").DataFrame(self.to_dict())


class HasArchive:
    """A base of results: it knows where the evaluations of the run are.

    The archive, or the function that makes it, is no field of the result: it is neither stored nor
    compared.
    """

    __slots__ = ("_archive",)

    def keep_archive(self, archive: Any) -> None:
        """Keep an archive, a function that makes it, or None."""
        self._archive = archive
