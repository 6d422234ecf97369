"""Bilevel problems with known answers, and a judge of results."""
