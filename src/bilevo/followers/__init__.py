"""Solvers for the lower level: `Problem(..., follower=...)`.

`Solver` is the protocol of such a solver. `LinProg` and `Milp` are exact, `Minimize` runs scipy's
local searches, `Population` runs any of our optimizers, and `Equilibrium` finds the user
equilibrium of drivers in a `Network`, with `LinkTimes`. `Nash` finds the equilibrium of several
followers. They are loaded when first used.
"""

from typing import TYPE_CHECKING, Any

from bilevo.core.extras import lazy_names
from bilevo.core.several import game_solvers
from bilevo.core.solver import Neighbour, Solver

if TYPE_CHECKING:
    from bilevo.followers.equilibrium import Equilibrium
    from bilevo.followers.linear import LinProg, Milp
    from bilevo.followers.minimize import Minimize
    from bilevo.followers.nash import Nash
    from bilevo.followers.population import Population
    from bilevo.followers.road_network import LinkTimes, Network
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Equilibrium": "bilevo.followers.equilibrium",
            "LinProg": "bilevo.followers.linear",
            "LinkTimes": "bilevo.followers.road_network",
            "Milp": "bilevo.followers.linear",
            "Minimize": "bilevo.followers.minimize",
            "Nash": "bilevo.followers.nash",
            "Network": "bilevo.followers.road_network",
            "Population": "bilevo.followers.population",
        },
    )

__all__ = [
    "Equilibrium",
    "LinProg",
    "LinkTimes",
    "Milp",
    "Minimize",
    "Nash",
    "Neighbour",
    "Network",
    "Population",
    "Solver",
]


def _nash() -> Any:
    from bilevo.followers.nash import Nash  # late, as few problems need it

    return Nash()


game_solvers.append(_nash)
