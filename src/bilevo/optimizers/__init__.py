"""One-level optimisers with ask and tell, searching the unit box."""

from bilevo.optimizers.cma_es import CMAES
from bilevo.optimizers.protocol import PopulationOptimizer, Start

__all__ = ["CMAES", "PopulationOptimizer", "Start"]
