"""The core: problems, requests, order, budgets, random streams and results. No I/O, no clock."""
