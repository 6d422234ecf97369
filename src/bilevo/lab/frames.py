"""polars, the library of data frames, or an error: `from bilevo.lab.frames import pl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilevo.core.extras import need

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("stored runs", "polars", "bench")

__all__ = ["pl"]
