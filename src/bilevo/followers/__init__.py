"""Solvers for the lower level: `Problem(..., follower=...)`.

`Solver` is the protocol of such a solver. `LinProg` and `Milp` are exact, `Minimize` runs scipy's
local searches, and `Population` runs any of our optimizers. They are loaded when first used.
"""

from typing import TYPE_CHECKING

from bilevo.core.extras import lazy_names
from bilevo.core.solver import Solver

if TYPE_CHECKING:
    from bilevo.followers.linear import LinProg, Milp
    from bilevo.followers.minimize import Minimize
    from bilevo.followers.population import Population
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "LinProg": "bilevo.followers.linear",
            "Milp": "bilevo.followers.linear",
            "Minimize": "bilevo.followers.minimize",
            "Population": "bilevo.followers.population",
        },
    )

__all__ = ["LinProg", "Milp", "Minimize", "Population", "Solver"]
