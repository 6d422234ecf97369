"""Timings: `scripts/bench` runs them, checks targets and writes docs/performance.md.

Some modules time nothing. `truth` and `refuted` count wrong answers, `basins` and `limited` measure
how good answers are, `rounds` compares two modes of DRC, and `again` makes stored runs again.
"""
