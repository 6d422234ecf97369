"""Everything that runs an algorithm: evaluation, counting, limits, time, progress, and all I/O."""
