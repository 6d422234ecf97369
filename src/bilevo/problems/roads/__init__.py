"""The suite `roads`: where to add capacity, if drivers choose their own routes.

The continuous network design problem. The leader adds capacity x to some links, and pays for it and
for the time of all drivers. The follower is the user equilibrium of the drivers, found by
`bilevo.followers.Equilibrium`; y has the flow on each link. `roads-16-i` and `roads-16-ii` have 16
links, `roads-sf` has ten candidates in Sioux Falls, and `roads-sf-0.8` to `roads-sf-1.2` have
other demands there. `capacities` makes such a problem of any network. docs/roads.md has published
results, and ours. `design` makes the discrete problem: which new roads to build within a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bilevo.core.problem import Problem

__all__ = ["BEST", "capacities", "design", "make", "network"]


class Best(NamedTuple):
    """The least F that is known of a problem, and its x. No proof says that there is none below."""

    F: float
    x: tuple[float, ...]


# F and x, as `python -m benchmarks.roads --best` finds them; docs/roads.md says how.
_BEST = """
roads-16-i 199.625264
    0 0 0 0 0 5.1946 0 0 0 0 0 0 0 0 0 7.5962
roads-16-ii 522.643905
    0 4.6144 9.9104 0 0 7.3738 0 0.5922 0 0 0 0 0 1.3153 0 20
roads-sf 80.740245
    5.2475117 2.0891802 5.2789456 2.0390312 2.4826376 2.5031945 3.0474958 4.9503255 3.1716726
    4.8948683
roads-sf-0.8 48.640415
    3.5724438 0.7040585 3.5237004 0.8521633 1.4713383 1.5058066 2.97973 1.71352 2.9721966 1.7517344
roads-sf-0.9 63.100147
    4.5342581 1.1217637 4.8614549 1.0483922 2.360116 2.4287008 3.4625718 3.4448841 3.4425034
    3.3481156
roads-sf-1.1 104.599539
    6.314329 3.0478312 6.3581716 2.9903817 3.1715563 3.2729277 4.4531934 4.7845227 4.5083027
    4.7889776
roads-sf-1.2 135.596727
    7.3217588 3.8269143 7.3598126 3.7834377 4.0654038 4.1613128 6.6742399 5.4108532 6.7550553
    5.3976225
"""
BEST = {
    name: Best(float(F), tuple(map(float, x)))
    for name, F, *x in (f"roads-{words}".split() for words in _BEST.split("roads-")[1:])
}


def network(name: str) -> dict[str, Any]:
    """Return a network of the suite, as `capacities` takes it."""
    import json  # late: few users need it
    from importlib.resources import files

    file = "sioux_falls.json" if name.startswith("roads-sf") else "sixteen_links.json"
    content: dict[str, Any] = json.loads(files(__name__).joinpath(file).read_text("utf-8"))
    if name == "roads-16-ii":
        content |= {"name": name, "demand": [[1, 6, 10.0], [6, 1, 20.0]]}
        content["candidates"]["most"] = 20
    return content


def make(name: str, gap: float = 1e-10) -> Problem:
    """Make a problem of the suite; `gap` is as in `capacities`."""
    base, _, factor = name.partition("roads-sf-")
    return capacities(network(name), float(factor) if not base else 1.0, gap)


def capacities(
    network: Mapping[str, Any], demand_factor: float = 1.0, gap: float = 1e-10
) -> Problem:
    """Make the problem of a network's capacities, with all demand times `demand_factor`.

    `network` has these keys; others, such as "about", are for people:

    - "links": rows (tail, head, free-flow time T, b, capacity K). A link that carries v takes
      T (1 + b (v / (K + x))^4), where x is the capacity that the leader adds.
    - "demand": rows (origin, destination, trips). Every trip needs a route.
    - "candidates": a dictionary with "list", which has rows (number of a link, d); the first link
      has the number 1. To add x there costs factor * d * x**power, with x at most "most". The keys
      "factor", "power" and "most" are 0.001, 2 and 25 if they are missing.
    - "name": the problem's name, "roads" if it is missing.

    The drivers' search is done at a relative gap of `gap` (see `bilevo.followers.Equilibrium`).
    """
    from bilevo.problems.roads.capacity import Roads  # late: it loads kernels

    return Roads.read(network, demand_factor).problem(gap)


def design(network: Mapping[str, Any], instance: str, budget: float, gap: float = 1e-8) -> Problem:
    """Make the problem of which new roads to build; x has 1 for each road that is built.

    `network` has "links" and "demand" as in `capacities`, and "instances": a dictionary of
    dictionaries by name. The one that `instance` names has "candidates": rows (tail, head,
    free-flow time T, b, capacity K, cost). Roads that are not built are closed. The cost of those
    that are built is at most `budget` (0.25, 0.5, ...) times the cost of all. F is the total time
    of all drivers, divided by 1,000.
    """
    from bilevo.problems.roads.building import Building  # late: it loads kernels

    return Building.read(network, instance, budget).problem(gap)
