"""One-level optimizers with ask and tell, searching the unit box."""

from typing import TYPE_CHECKING

from bilevo.core.lazy import lazy_names

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

__all__ = ["CMAES", "DE", "GA", "IMODE", "PSO", "PopulationBased", "PopulationOptimizer", "Start"]
