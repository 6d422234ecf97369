"""The page over runs and campaigns that are being made: `bilevo watch`."""

from bilevo.core.extras import need

need("live pages", "polars", "watch")  # before modules of stored runs ask for a smaller extra
