"""Black-box bilevel optimization: a leader chooses x, a follower answers with y = argmin f(x, y).

>>> import bilevo
>>> result = bilevo.minimize(
...     lambda x, y: float(x @ x + y @ y),  # the leader's objective F
...     lambda x, y: float((y - x) @ (y - x)),  # the follower's objective f
...     x_bounds=[(-5, 10)],
...     y_bounds=[(-5, 10)],
... )
>>> result.success
True
"""

from typing import TYPE_CHECKING

from bilevo import algorithms, followers, plot, problems
from bilevo.api import Optimizer, load, minimize, verify
from bilevo.core.bounds import Bounds, Choice
from bilevo.core.budget import Budget, StopReason
from bilevo.core.extras import lazy_names
from bilevo.core.optimum import Optimum
from bilevo.core.problem import Problem
from bilevo.core.result import Certificate, Result
from bilevo.core.several import Follower
from bilevo.core.values import BadValue
from bilevo.run.errors import JournalCorrupt, RunLocked, RunMismatch
from bilevo.run.executors import RayExecutor
from bilevo.version import __version__

if TYPE_CHECKING:
    from bilevo.optimizers import CMAES, DE, GA, PSO
else:
    __getattr__, __dir__ = lazy_names(
        __name__, dict.fromkeys(("CMAES", "DE", "GA", "PSO"), "bilevo.optimizers")
    )

__all__ = [
    "CMAES",
    "DE",
    "GA",
    "PSO",
    "BadValue",
    "Bounds",
    "Budget",
    "Certificate",
    "Choice",
    "Follower",
    "JournalCorrupt",
    "Optimizer",
    "Optimum",
    "Problem",
    "RayExecutor",
    "Result",
    "RunLocked",
    "RunMismatch",
    "StopReason",
    "__version__",
    "algorithms",
    "followers",
    "load",
    "minimize",
    "plot",
    "problems",
    "verify",
]
