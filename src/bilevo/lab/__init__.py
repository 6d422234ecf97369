"""The laboratory: many runs of many methods, and their comparison."""
