"""Load what runs need; imported once by the server that the runs of a campaign are forked from.

Each run would otherwise spend more time on loading scipy and compiled kernels than on optimizing.
"""

import signal
from contextlib import suppress

import scipy.optimize  # noqa: F401

from bilevo import algorithms, kernels

signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the campaign ends its processes
for name in algorithms.__all__:
    getattr(algorithms, name)  # loaded with its first use, and its kernels declared then
with suppress(Exception):  # such as an unknown name in the environment: runs will say so
    kernels.prepare(kernels.default())
