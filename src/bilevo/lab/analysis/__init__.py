"""Samples, statistics, tables and curves of stored runs: values, not text."""
