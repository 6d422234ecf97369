"""Load what runs need, kernels included, so that processes forked from here begin at once."""

import crashes
import own_followers  # noqa: F401 (of tests that are started in such processes)

for method in crashes.METHODS:
    crashes.small(None, method)
