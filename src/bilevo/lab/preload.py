"""Imported by the server that a campaign's runs are forked from: what runs need is loaded once.

Each run would otherwise spend more on loading scipy and compiled kernels than on optimizing.
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
