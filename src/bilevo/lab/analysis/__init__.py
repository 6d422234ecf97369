"""Samples, statistics, tables and curves of stored runs, as values and not as text."""
