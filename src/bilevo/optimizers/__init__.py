"""One-level optimizers with ask and tell, searching the unit box.

To add an optimizer, write its module and name it in this file. An entry in `NAMES` gives it a name
in plans, and registers the method `drc-<name>`.
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
    """Return the optimizer of this name, with its default settings."""
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
