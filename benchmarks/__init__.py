"""Timings: `scripts/bench` runs them, checks targets and writes docs/performance.md.

`truth` and `refuted` time nothing: they count wrong answers.
"""
