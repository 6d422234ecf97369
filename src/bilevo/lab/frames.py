"""The library polars as `pl`, or an error that says how to install it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilevo.core.extras import need

if TYPE_CHECKING:
    import polars as pl
else:
    pl = need("stored runs", "polars", "bench")

__all__ = ["pl"]
