"""The core: problems, requests, order, budgets, random streams and results.

No I/O and no clock, but for `Result.save` and `Result.load`, which only people call.
"""
