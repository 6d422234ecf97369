"""The core: problems, requests, order, budgets, random streams and results.

There is no I/O and no clock here, except `Result.save` and `Result.load` for users.
"""
