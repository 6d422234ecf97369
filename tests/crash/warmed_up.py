"""Load what runs need, kernels included, so that processes forked from here begin at once.

A process of tests has one server from which others fork: campaigns use it too.
"""

import crashes
import solvers  # noqa: F401 (of tests that are started in such processes)

import bilevo.lab.preload
import bilevo.lab.workers  # noqa: F401

for method in crashes.METHODS:
    crashes.small(None, method)
