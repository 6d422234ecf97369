"""The example of tolls: its follower, its network and its answer, against other ways to them."""

import sqlite3
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import bilevo

BEST = 2419.872  # of a grid of 41 x 41 tolls, and a descent from the best of them
UNTOLLED, LEAST = 2455.870, 2253.918
COLUMNS = "a_node, b_node, direction, capacity_ab, free_flow_time, b, power, geometry"


@pytest.fixture
def tolls(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    monkeypatch.delitem(sys.modules, "tolls", raising=False)
    import tolls

    return tolls


def braess(tolls) -> Any:
    """Braess (1968): six drivers from node 1 to 4, with a bridge from 2 to 3 that harms them."""
    tail, head = np.array([0, 0, 1, 1, 2]), np.array([1, 2, 2, 3, 3])
    free, rise = np.array([0.0, 50, 10, 50, 0]), np.array([10.0, 1, 1, 1, 10])
    trips = np.zeros((4, 4))
    trips[0, 3] = 6.0
    network = tolls.Network(tail, head, free, rise, np.ones(5), trips)
    return tolls.Case("Braess", network, (((2, 3),),), max_toll=20.0)


@pytest.mark.parametrize("toll", [0.0, 3.25, 6.5, 13.0, 20.0])
def test_drivers_of_braess_answer_as_the_formula_says(tolls, toll) -> None:
    flow = braess(tolls).equilibrium([toll], 1e-12).flow
    bridge = max(0.0, 2 - 2 * toll / 13)
    half = (6 - bridge) / 2
    assert flow == pytest.approx([half + bridge, half, bridge, half, half + bridge], abs=1e-5)


def routes(network: Any, node: int, end: int, seen: tuple[int, ...] = ()) -> list[list[int]]:
    """All routes without circles, as lists of links."""
    if node == end:
        return [[]]
    ways = [(i, int(network.head[i])) for i in np.flatnonzero(network.tail == node)]
    return [
        [int(i), *rest]
        for i, next_ in ways
        if next_ not in seen
        for rest in routes(network, next_, end, (*seen, node))
    ]


def by_routes(case: Any, x: Any) -> np.ndarray:
    """Flows of the equilibrium by another solver: SQP on the flows of all routes."""
    network, toll = case.network, case.share @ np.asarray(x, float)
    pairs = np.argwhere(network.trips > 0)
    found = [(k, way) for k, (a, b) in enumerate(pairs) for way in routes(network, a, b)]
    uses = np.zeros((len(network.tail), len(found)))
    belongs = np.zeros((len(pairs), len(found)))
    for column, (pair, way) in enumerate(found):
        uses[way, column] = belongs[pair, column] = 1.0
    trips = network.trips[tuple(pairs.T)]
    solution = scipy_minimize(
        lambda h: network.beckmann(uses @ h) + toll @ uses @ h,
        belongs.T @ (trips / belongs.sum(axis=1)),
        jac=lambda h: uses.T @ (network.time(uses @ h) + toll),
        bounds=[(0, None)] * len(found),
        constraints={"type": "eq", "fun": lambda h: belongs @ h - trips, "jac": lambda h: belongs},
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return np.asarray(uses @ solution.x.clip(0))


@pytest.mark.parametrize("x", [(0, 0), (4.38, 3.38), (9, 1)])
def test_a_solver_of_another_kind_finds_the_same_flows(tolls, x) -> None:
    case = tolls.nine_nodes()
    flow, other = case.equilibrium(x, 1e-8).flow, by_routes(case, x)
    assert flow == pytest.approx(other, abs=0.02)
    assert case.network.total_time(flow) == pytest.approx(case.network.total_time(other), rel=1e-5)


def test_the_nine_nodes_have_their_known_totals_and_marginal_costs_reach_the_best(tolls) -> None:
    case = tolls.nine_nodes()
    network, best = case.network, tolls.system_optimum(case.network, 1e-6)
    everywhere = tolls.Drivers(network, np.eye(len(network.tail)))
    priced = tolls.settled(everywhere, best * network.slope(best)).flow
    assert case.total_time((0, 0), 1e-6) == pytest.approx(UNTOLLED, abs=1e-2)
    assert network.total_time(best) == pytest.approx(LEAST, abs=1e-2)
    assert network.total_time(priced) == pytest.approx(LEAST, abs=1e-2)


@pytest.mark.parametrize("x", [(0.3, 0.2), (3.0, 3.0), (5.0, 2.0)])
def test_derivatives_are_those_of_differences(tolls, x) -> None:
    case, h = tolls.nine_nodes(), 1e-2 * np.eye(2)
    found = tolls.sensitivity(case, case.equilibrium(x, 1e-9))
    ahead, behind = ([case.total_time(x + s * e, 1e-9) for e in h] for s in (1, -1))
    assert found == pytest.approx((np.array(ahead) - behind) / 2e-2, rel=0.02, abs=0.05)


def test_a_descent_without_tolls_ends_far_from_the_best(tolls) -> None:
    case = tolls.nine_nodes()
    stuck, _ = tolls.descend(case, (0.0, 0.0), 1e-6)
    good, _ = tolls.descend(case, (5.0, 5.0), 1e-6)
    assert case.total_time(stuck, 1e-7) == pytest.approx(2453.885, abs=0.01)
    assert case.total_time(good, 1e-7) == pytest.approx(BEST, abs=0.01)


def test_either_toll_of_the_answer_alone_is_worse_than_none(tolls) -> None:
    case = tolls.nine_nodes()
    assert min(case.total_time(x, 1e-6) for x in ((4.38, 0), (0, 3.38))) > UNTOLLED + 20


def test_bilevo_finds_the_best_tolls(tolls) -> None:
    case = tolls.nine_nodes()
    result = bilevo.minimize(case.problem(), max_evals=6000, rng=3)
    assert case.total_time(result.x, 1e-8) == pytest.approx(BEST, rel=1e-4)
    assert abs(result.F / BEST - 1) < 1e-4
    assert result.nfev <= 6000


def test_a_run_that_was_stopped_goes_on_with_its_drivers(tolls, tmp_path) -> None:
    problem = tolls.nine_nodes().problem()
    whole = bilevo.minimize(problem, max_evals=900)
    part = bilevo.minimize(problem, max_evals=444, run_dir=tmp_path)
    again = bilevo.minimize(problem, max_evals=900, run_dir=tmp_path)
    assert part.nfev < again.nfev == whole.nfev
    assert again.F == whole.F and again.x.tolist() == whole.x.tolist()


def test_trips_without_a_route_are_refused(tolls) -> None:
    trips = np.array([[0.0, 0.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="no route"):
        tolls.Network.of([(0, 1, 1.0, 1.0, 0.15, 4.0)], trips)


def made_up_sample(path: Path) -> None:
    """A ring of 24 nodes and the tolled roads, in the files of aequilibrae's sample."""
    ring = [(i, i % 24 + 1) for i in range(1, 25)]
    roads = {(5, 6), (11, 12), (13, 24), (15, 22), (17, 19), *ring}
    links = [(*way, 1, 10.0, 2.0, 0.5, 4.0, b"") for a, b in roads for way in ((a, b), (b, a))]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE links (link_id INTEGER PRIMARY KEY, {COLUMNS})")
        database.executemany(
            f"INSERT INTO links ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", links
        )
        stored = database.serialize()
    trips = np.zeros((24, 24, 2))  # two matrices, of which the first counts
    trips[0, 11, 0], trips[11, 0, 0], trips[:, :, 1] = 30.0, np.nan, 7.0
    head = bytes([1, 0]) + np.uint64(576).tobytes() + np.uint32(24).tobytes() + bytes([2, 1, 1, 8])
    index = np.arange(1, 25, dtype="<u8").tobytes()
    matrix = head.ljust(182 + 2 * 50 + 20, b"\0") + index + trips.astype("<f8").tobytes()
    with zipfile.ZipFile(path, "w") as sample:
        sample.writestr("project_database.sqlite", stored)
        sample.writestr("matrices/demand.aem", matrix)


def test_sioux_falls_is_read_from_a_sample_of_aequilibrae(tolls, tmp_path) -> None:
    made_up_sample(tmp_path / "sample.zip")
    case = tolls.sioux_falls(tmp_path / "sample.zip")
    network = case.network
    assert network.trips.shape == (24, 24) and network.trips[0, 11] == network.trips.sum() == 30
    assert network.free.tolist() == [2.0] * len(network.tail)
    assert network.rise == pytest.approx(2.0 * 0.5 / 10.0**4)
    assert case.names == ["5-6", "11-12", "13-24", "15-22", "17-19"]
    assert case.share.sum(axis=0).tolist() == [2.0] * 5  # both directions
    assert 0 < case.total_time(np.zeros(5), 1e-6) < np.inf


def test_a_missing_sample_is_told_in_one_line(tolls, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tolls.importlib.util, "find_spec", lambda name: None)
    assert tolls.sample_of_aequilibrae() is None
    monkeypatch.setattr(tolls, "Study", lambda *a, **b: Silent())
    tolls.main(["--out", str(tmp_path)])
    assert "pip install --no-deps aequilibrae" in capsys.readouterr().out


class Silent:
    """A study that studies nothing."""

    case = type("Case", (), {"name": "nine nodes"})

    def bounds(self) -> tuple[float, float]:
        return 1.0, 0.0

    def search(self) -> None: ...

    def compare(self, *ignored: Any) -> None: ...

    def pictures(self, *ignored: Any) -> list[Path]:
        return []


@pytest.mark.rest
def test_the_example_runs_small_and_draws(tolls, tmp_path, capsys) -> None:
    tolls.main(["--small", "--out", str(tmp_path / "pictures")])
    told = capsys.readouterr().out
    assert "2,455.87" in told and "2,253.92" in told and "descent from no tolls" in told
    assert "aequilibrae" not in told
    drawn = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert drawn == ["tolls_nine_nodes_landscape.png", "tolls_nine_nodes_links.png"]
