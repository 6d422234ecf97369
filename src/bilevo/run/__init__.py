"""The driver's side: evaluation, counting, limits, time, progress. All I/O is here."""
