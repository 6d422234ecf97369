"""Drivers as followers: equilibria that are right, warm starts, kernels, and bad networks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevo
from bilevo import kernels
from bilevo.core.arrays import FloatArray
from bilevo.followers import Equilibrium, LinkTimes, Network
from bilevo.followers.equilibrium import Traffic
from bilevo.problems import get, roads


class Near:
    """A finished search, as a run gives it to `start`."""

    def __init__(self, drivers: Equilibrium, x: Any) -> None:
        state = drivers.settle(x)
        self.x, self.y, self.hint = np.array(x, float), state.flow, drivers.hint(state)


def drivers_of(name: str) -> Equilibrium:
    follower = get(name).follower
    assert isinstance(follower, Equilibrium)
    return follower


def route_times(drivers: Equilibrium, state: Traffic) -> list[tuple[FloatArray, FloatArray]]:
    """Return the times of the routes in use and their flows, pair by pair."""
    routes, time = state.routes, state.times.at(state.flow)
    ends = zip(routes.link_first, routes.link_first[1:], strict=False)
    taken = np.array([time[routes.links[start:stop]].sum() for start, stop in ends])
    pairs = zip(routes.route_first, routes.route_first[1:], strict=False)
    parts = [(taken[start:stop], routes.flow[start:stop]) for start, stop in pairs]
    return [(times[flow > 0], flow[flow > 0]) for times, flow in parts]


def test_two_parallel_roads_share_drivers_so_that_both_take_the_same_time() -> None:
    net = Network([("a", "b"), ("a", "b")], [("a", "b", 8.0)])
    drivers = Equilibrium(
        net, lambda x: LinkTimes(np.array([10.0, 20.0]), np.array([2.0, x[0]]), 1)
    )
    state = drivers.settle([1.0])  # 10 + 2 v = 20 + (8 - v)
    assert state.flow == pytest.approx([6.0, 2.0], abs=1e-9) and state.sweeps >= 1
    y, f, violation = drivers.best(state)
    assert y is state.flow and violation == 0
    assert f == pytest.approx(10 * 6 + 36 + 20 * 2 + 2, abs=1e-9)  # integrals of both times


def test_the_paradox_of_braess_makes_a_new_road_bad_for_all() -> None:
    links = [(1, 2), (1, 3), (2, 4), (3, 4), (2, 3)]
    net = Network(links, [(1, 4, 6.0)])

    def times(x: FloatArray) -> LinkTimes:
        fixed = np.array([0.0, 50.0, 50.0, 0.0, 10.0 + x[0]])
        return LinkTimes(fixed, np.array([10.0, 1.0, 1.0, 10.0, 1.0]), 1.0)

    drivers = Equilibrium(net, times)
    without, with_road = drivers.settle([1e6]), drivers.settle([0.0])
    assert without.flow == pytest.approx([3, 3, 3, 3, 0])
    assert with_road.flow == pytest.approx([4, 2, 2, 4, 2])
    total = [float(state.flow @ state.times.at(state.flow)) for state in (without, with_road)]
    assert total == pytest.approx([83 * 6, 92 * 6])


@pytest.mark.parametrize("name", ["roads-16-i", "roads-16-ii", "roads-sf"])
def test_routes_in_use_take_equal_times_and_no_route_is_quicker(name: str) -> None:
    drivers, x = drivers_of(name), np.full(get(name).m, 1.5)
    state = drivers.settle(x)
    assert state.gap <= 1e-10
    assert drivers.relative_gap(x, state.flow) == pytest.approx(state.gap, rel=1e-3)
    for times, _ in route_times(drivers, state):
        assert np.ptp(times) <= 1e-4 * times.min()
    longest = max(np.ptp(times) for times, _ in route_times(drivers, state))
    finer = Equilibrium(drivers.network, drivers.times, 1e-13).settle(x)
    assert max(np.ptp(times) for times, _ in route_times(drivers, finer)) <= longest / 5


@pytest.mark.parametrize("name", ["roads-16-ii", "roads-sf-1.2"])
def test_flow_is_conserved_at_every_node_after_every_step(name: str) -> None:
    drivers = drivers_of(name)
    net, state = drivers.network, drivers.start(np.zeros(get(name).m), np.random.default_rng(0))
    balance = np.zeros(len(net.nodes))
    np.add.at(balance, net.origin, net.trips)
    np.subtract.at(balance, net.destination, net.trips)
    while True:
        out = np.bincount(net.tail, state.flow, len(net.nodes))
        into = np.bincount(net.head, state.flow, len(net.nodes))
        assert out - into == pytest.approx(balance, abs=1e-11)
        for (_, flow), trips in zip(route_times(drivers, state), net.trips, strict=True):
            assert flow.sum() == pytest.approx(trips, rel=1e-13)
        if drivers.done(state):
            return
        state = drivers.advance(state)


def test_beckmann_s_function_falls_from_sweep_to_sweep_and_the_gap_is_reached() -> None:
    drivers = Equilibrium(drivers_of("roads-sf").network, drivers_of("roads-sf").times, 1e-13)
    state = drivers.start(np.full(10, 2.0), np.random.default_rng(0))
    values = [drivers.best(state)[1]]
    while not drivers.done(state):
        state = drivers.advance(state)
        values.append(drivers.best(state)[1])
    assert np.all(np.diff(values) <= 1e-13 * values[0])
    assert state.gap <= 1e-13 and state.sweeps == len(values) - 1 < 40


@pytest.mark.parametrize("name", ["roads-16-i", "roads-sf"])
def test_a_search_that_starts_near_another_one_needs_fewer_sweeps(name: str) -> None:
    drivers, m = drivers_of(name), get(name).m
    rng = np.random.default_rng(5)
    cold = warm = 0
    for _ in range(5):
        x = rng.uniform(1, 5, m)
        near, here = Near(drivers, x), x + rng.uniform(-0.05, 0.05, m)
        states = drivers.settle(here), drivers.settle(here, near)
        assert states[1].flow == pytest.approx(states[0].flow, abs=1e-3)
        cold, warm = cold + states[0].sweeps, warm + states[1].sweeps
    assert warm < 0.8 * cold


def test_a_start_at_the_same_x_has_the_flows_of_the_finished_search() -> None:
    drivers = drivers_of("roads-sf")
    near = Near(drivers, np.full(10, 3.0))
    begun = drivers.start(near.x, np.random.default_rng(0), near)
    assert begun.flow == pytest.approx(near.y, abs=1e-12)
    assert begun.gap == pytest.approx(drivers.settle(near.x).gap, rel=1e-3)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_hint_gives_a_start_with_all_trips_or_is_ignored(data: st.DataObject) -> None:
    drivers = drivers_of("roads-16-i")
    near = Near(drivers, np.linspace(0, 2, 16))
    hint = near.hint.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(hint) - 1))
        number = st.integers(-3, 20) | st.floats() | st.sampled_from([1e18, -1e18])
        hint[place] = data.draw(number)
    near.hint = hint[: data.draw(st.integers(0, len(hint)))] if data.draw(st.booleans()) else hint
    state = drivers.start(near.x, np.random.default_rng(0), near)
    assert all(flow.sum() > 0 for _, flow in route_times(drivers, state))
    assert drivers.settle(near.x, near).flow == pytest.approx(near.y, abs=1e-3)


@pytest.mark.parametrize("name", ["roads-16-ii", "roads-sf"])
def test_compiled_and_plain_kernels_give_the_same_bits(name: str) -> None:
    drivers, x = drivers_of(name), np.linspace(0, 3, get(name).m)
    found = []
    for kernel in kernels.NAMES:
        with kernels.using(kernel):
            near = Near(drivers, x)
            state = drivers.settle(x + 0.1, near)
        found.append((near.y.tobytes(), near.hint.tobytes(), state.flow.tobytes(), state.sweeps))
    assert found[0] == found[1]


@pytest.mark.parametrize("kernel", kernels.NAMES)
def test_other_powers_than_four_are_taken_too(kernel: kernels.Name) -> None:
    net = Network([(1, 2), (1, 2), (1, 2)], [(1, 2, 9.0)])
    law = LinkTimes(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 0.0]), np.array([1.0, 2.5, 4.0]))
    with kernels.using(kernel):
        state = Equilibrium(net, lambda x: law).settle([])
    assert law.at(state.flow) == pytest.approx([2.0, 2.0, 2.0], abs=1e-8)
    assert state.flow[0] == pytest.approx(1.0, abs=1e-8) and state.flow.sum() == pytest.approx(9)


def wrong_times(told: Any, x: float = 1.0) -> None:
    Equilibrium(Network([(1, 2), (1, 2)], [(1, 2, 1.0)]), lambda x: told).settle([x])


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (LinkTimes([1.0], [1.0, 2.0, 3.0]), r"times\(x\).rise must be 2 numbers"),
        (LinkTimes(1.0, [1.0, -2.0]), r"rise\[1\] must be at least 0 and finite, got -2.0 at x = "),
        (LinkTimes(np.nan, 1.0), r"fixed\[0\] must be at least 0 and finite, got nan"),
        (LinkTimes(1.0, 1.0, 0.5), r"power\[0\] must be at least 1 and finite, got 0.5"),
        (LinkTimes("slow", 1.0), r"times\(x\).fixed must be 2 numbers"),
        ([1.0, 1.0], r"times\(x\) must be a LinkTimes, got \[1.0, 1.0\]"),
    ],
)
def test_times_that_are_none_are_refused(told: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong_times(told)


@pytest.mark.parametrize(
    ("links", "demand", "says"),
    [
        ([], [(1, 2, 1)], r"links must be a list of rows \(tail, head\), got \[\]"),
        ([(1, 2, 3)], [(1, 2, 1)], r"links\[0\] must be \(tail, head\), got \(1, 2, 3\)"),
        ([(1, 1)], [(1, 2, 1)], r"links\[0\] must be a link between two nodes, got \(1, 1\)"),
        ([(1, 2.5)], [(1, 2, 1)], "a node must be a number or text, got 2.5"),
        ([(1, 2)], [(1, 3, 1)], r"demand\[0\] = \(1, 3, 1\) names the node 3, which no link"),
        ([(1, 2)], [(1, 2, -1)], r"demand\[0\] must have trips of 0 or more, got \(1, 2, -1\)"),
        ([(1, 2)], [(1, 1, 1)], r"demand\[0\] must be trips between two different nodes"),
        ([(1, 2)], [(1, 2, 0)], "demand must be trips between at least two nodes"),
        ([(1, 2)], [(1, 2, 1), (1, 2, 2)], "two rows for the trips from 1 to 2: give their sum"),
        ([(1, 2), (3, 2)], [(1, 2, 1), (1, 3, 2)], "no route for the trips from 1 to 3"),
    ],
)
def test_networks_with_mistakes_are_refused(links: Any, demand: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Network(links, demand)


def test_settings_with_mistakes_are_refused() -> None:
    net = Network([(1, 2)], [(1, 2, 1.0)])
    with pytest.raises(ValueError, match=r"gap must be a number from 1e-13 to 1, got 0"):
        Equilibrium(net, lambda x: LinkTimes(1.0, 1.0), gap=0)
    with pytest.raises(ValueError, match="times must be a function of x, got 3"):
        Equilibrium(net, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"network must be a bilevo.followers.Network, got \[\]"):
        Equilibrium([], lambda x: LinkTimes(1.0, 1.0))  # type: ignore[arg-type]


def test_names_of_the_suite_are_those_with_a_best_value() -> None:
    assert [name for name in bilevo.problems.names() if "roads" in name] == list(roads.BEST)
