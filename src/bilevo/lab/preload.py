"""Load the modules that runs need, once, in the server that the runs are forked from.

Each run would otherwise spend more time on loading scipy, scikit-learn and compiled kernels than on
optimizing.
"""

import signal
from contextlib import suppress

import scipy.optimize  # noqa: F401

with suppress(ImportError):  # BLEAQ-II and SA-BL-IMODE say what to install
    import sklearn.cluster
    import sklearn.neighbors  # noqa: F401

from bilevo import algorithms, kernels

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is left to the campaign: it ends its runs
for name in algorithms.__all__:
    getattr(algorithms, name)  # the first use loads it and declares its kernels
with suppress(Exception):  # such as an unknown kernel's name, which the runs will report
    kernels.prepare(kernels.default())
