"""One-level optimizers with ask and tell, searching the unit box.

A new optimizer joins in two places: a module of its own, and this file. With an entry in `NAMES`,
plans know it by that name, and `drc-<name>` is a registered method.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bilevo.core.extras import lazy_names

if TYPE_CHECKING:
    from bilevo.optimizers.cma_es import CMAES
    from bilevo.optimizers.de import DE
    from bilevo.optimizers.ga import GA
    from bilevo.optimizers.imode import IMODE
    from bilevo.optimizers.population import PopulationBased
    from bilevo.optimizers.protocol import PopulationOptimizer, Start
    from bilevo.optimizers.pso import PSO
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "CMAES": "bilevo.optimizers.cma_es",
            "DE": "bilevo.optimizers.de",
            "GA": "bilevo.optimizers.ga",
            "IMODE": "bilevo.optimizers.imode",
            "PSO": "bilevo.optimizers.pso",
            "PopulationBased": "bilevo.optimizers.population",
            "PopulationOptimizer": "bilevo.optimizers.protocol",
            "Start": "bilevo.optimizers.protocol",
        },
    )

NAMES = {"cma-es": "CMAES", "de": "DE", "pso": "PSO", "ga": "GA"}


def make(name: str) -> Any:
    """Return the optimizer of a name, with its usual settings."""
    if name not in NAMES:
        raise ValueError(f"unknown optimizer {name!r}; known are {', '.join(NAMES)}")
    return getattr(import_module(__name__), NAMES[name])()


__all__ = [
    "CMAES",
    "DE",
    "GA",
    "IMODE",
    "NAMES",
    "PSO",
    "PopulationBased",
    "PopulationOptimizer",
    "Start",
    "make",
]
