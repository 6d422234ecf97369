"""The page over runs and campaigns that are being made: `bilevo watch`."""
