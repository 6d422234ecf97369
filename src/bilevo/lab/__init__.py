"""Experiments: running many problems, and comparing with published figures."""
