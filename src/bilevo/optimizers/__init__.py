"""One-level optimisers with ask and tell, searching the unit box."""

from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.de import DE
from bilevo.optimizers.ga import GA
from bilevo.optimizers.imode import IMODE
from bilevo.optimizers.population import PopulationBased
from bilevo.optimizers.protocol import PopulationOptimizer, Start
from bilevo.optimizers.pso import PSO

__all__ = ["CMAES", "DE", "GA", "IMODE", "PSO", "PopulationBased", "PopulationOptimizer", "Start"]
