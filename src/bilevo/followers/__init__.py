"""Followers that are solvers: the lower level of `Problem(..., follower=...)`.

`Follower` is what such a solver has to be able to do; `LinProg` and `Milp` are exact, `Minimize` is
scipy's local search, `Population` any of our optimisers. They are loaded with their first use.
"""

from typing import TYPE_CHECKING

from bilevo.core.follower import Follower
from bilevo.core.lazy import lazy_names

if TYPE_CHECKING:
    from bilevo.followers.linear import LinProg, Milp
    from bilevo.followers.minimise import Minimize
    from bilevo.followers.population import Population
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "LinProg": "bilevo.followers.linear",
            "Milp": "bilevo.followers.linear",
            "Minimize": "bilevo.followers.minimise",
            "Population": "bilevo.followers.population",
        },
    )

__all__ = ["Follower", "LinProg", "Milp", "Minimize", "Population"]
