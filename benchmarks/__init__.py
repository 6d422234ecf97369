"""Timings: `scripts/bench` runs them, checks targets and writes docs/performance.md."""
