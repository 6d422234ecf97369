"""The suite `roads`: known values, any network, runs that repeat and resume, and bad input."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bilevo
from bilevo.followers import Equilibrium
from bilevo.lab.plans import SUITES
from bilevo.problems import get, roads

VALUES = [  # problem, x, F: of few published digits, or computed by other programs
    ("roads-16-i", {}, 336.571),
    ("roads-16-i", {6: 5.1946, 16: 7.5962}, 199.6253),
    ("roads-16-ii", {}, 5756.59),
    ("roads-16-ii", {2: 4.6144, 3: 9.9104, 6: 7.3738, 8: 0.5922, 14: 1.3153, 16: 20}, 522.6439),
    ("roads-sf", 0.0, 101.0614),
    ("roads-sf", 2.0, 85.9806),
    ("roads-sf", 12.5, 121.7928),
    (
        "roads-sf",
        [5.2455, 2.0966, 5.2812, 2.0442, 2.4822, 2.4978, 3.0483, 4.951, 3.1735, 4.9055],
        80.74026,
    ),
    ("roads-sf-0.8", 0.0, 53.330),
    ("roads-sf-0.9", 0.0, 73.400),
    ("roads-sf-1.1", 0.0, 140.056),
    ("roads-sf-1.2", 0.0, 194.896),
]


def phi(problem: bilevo.Problem, x: Any) -> float:
    assert isinstance(problem.follower, Equilibrium)
    x = np.asarray(x, float)
    return float(problem.F(x[None], problem.follower.settle(x).flow[None])[0])


def decision(problem: bilevo.Problem, x: Any) -> Any:
    if not isinstance(x, dict):
        return np.full(problem.m, x) if isinstance(x, float) else np.array(x)
    found = np.zeros(problem.m)
    for link, value in x.items():
        found[link - 1] = value
    return found


@pytest.mark.parametrize(("name", "x", "F"), VALUES)
def test_known_values_are_reproduced(name: str, x: Any, F: float) -> None:
    problem = get(name)
    digits = 5e-4 if F < 1000 else 5e-3
    assert phi(problem, decision(problem, x)) == pytest.approx(F, abs=digits)


def test_best_values_are_attained_and_not_above_the_known_decisions() -> None:
    for name, (F, x) in roads.BEST.items():
        assert phi(roads.make(name, gap=1e-12), x) == pytest.approx(F, abs=2e-6)
    for name, x, F in VALUES:
        assert phi(get(name), decision(get(name), x)) + 1e-6 >= roads.BEST[name].F, (name, F)


def test_the_suite_is_known_to_the_laboratory() -> None:
    assert SUITES["roads"] == tuple(roads.BEST)
    assert get("roads-sf").optimum is None  # the best known F is no proven optimum


def square(**changes: Any) -> dict[str, Any]:
    """Make a small network with two ways from 1 to 4."""
    links = [[1, 2, 1.0, 0.15, 3.0], [2, 4, 1.0, 0.15, 3.0], [1, 3, 2.0, 0.15, 5.0]]
    network: dict[str, Any] = {
        "links": [*links, [3, 4, 2.0, 0.15, 5.0]],
        "demand": [[1, 4, 6.0]],
        "candidates": {"list": [[1, 10.0], [2, 10.0]]},
    }
    return {**network, **changes}


def test_anybody_s_network_makes_a_problem_and_a_run_solves_it() -> None:
    problem = roads.capacities(square(name="square"), demand_factor=1.5)
    assert (problem.name, problem.m, problem.n) == ("square-1.5", 2, 4)
    assert problem.x_bounds.upper.tolist() == [25.0, 25.0]
    result = bilevo.minimize(problem, max_evals=300)
    grid = [phi(problem, (x, x)) for x in np.linspace(0, 12, 61)]
    assert 1.01 * min(grid) >= result.F
    assert pytest.approx(phi(problem, result.x), abs=1e-6) == result.F
    assert bilevo.verify(problem, result).confirmed


def test_costs_and_bounds_are_as_the_network_says() -> None:
    chosen = {"list": [[3, 2.0]], "factor": 5.0, "power": 1, "most": 7}
    problem = roads.capacities(square(candidates=chosen))
    assert problem.x_bounds.upper.tolist() == [7.0]
    x, y = np.array([[0.0], [4.0]]), np.zeros((2, 4))
    assert problem.F(x, y).tolist() == [0.0, 40.0]


def test_a_network_read_from_a_file_gives_the_problem_of_the_suite(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps(roads.network("roads-sf")))
    made = roads.capacities(json.loads(path.read_text()), 1.1, gap=1e-8)
    assert made.name == "roads-sf-1.1" and made.follower.gap == 1e-8
    assert phi(made, np.zeros(10)) == pytest.approx(140.056, abs=1e-3)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"links": 3}, r"network\['links'\] must be a list of rows \(tail, head, T, b, K\), got 3"),
    ({"links": []}, r"network\['links'\] must be a list of rows"),
    ({"links": [[1, 4, 1.0, 0.15]]}, r"network\['links'\]\[0\] must be a row"),
    ({"links": [[1, 4, 1.0, 0.15, 0.0]]}, r"the capacity of network\['links'\]\[0\] must be a nu"),
    ({"links": [[1, 4, 1.0, 0.15, "3"]]}, r"capacity of .* must be a number above 0, got '3'"),
    ({"links": [[1, 4, -1.0, 0.15, 3.0]]}, r"free-flow time of .* must be a number above 0"),
    ({"links": [[1, 4, 1.0, -0.15, 3.0]]}, r"the b of .* must be a number of at least 0"),
    ({"links": [[1, 4, 1.0, float("nan"), 3.0]]}, r"the b of .* got nan"),
    ({"demand": [[1, 9, 1.0]]}, r"demand\[0\] = .* names the node 9, which no link touches"),
    ({"demand": [[4, 1, 1.0]]}, "there is no route for the trips from 4 to 1"),
    ({"demand": [[1, 4, "many"]]}, r"demand\[0\] must have trips of 0 or more"),
    ({"demand": "1 4 6"}, r"network\['demand'\] must be a list of rows"),
    ({"candidates": [[1, 10.0]]}, r"network\['candidates'\] must be a dictionary with the key 'l"),
    ({"candidates": {"list": [[0, 1.0]]}}, r"\['list'\]\[0\] must name a link from 1 to 4, got 0"),
    ({"candidates": {"list": [[5, 1.0]]}}, r"must name a link from 1 to 4, got 5"),
    ({"candidates": {"list": [[1.5, 1.0]]}}, r"must name a link from 1 to 4, got 1.5"),
    ({"candidates": {"list": [[1, 1.0], [1, 2.0]]}}, r"must be links that differ .*, got \[1\]"),
    ({"candidates": {"list": [[1, -1.0]]}}, r"d of network\['candidates'\]\['list'\]\[0\] must be"),
    ({"candidates": {"list": [[1, 1.0]], "most": 0}}, r"\['most'\] must be a number above 0"),
    ({"candidates": {"list": [[1, 1.0]], "power": "2"}}, r"\['power'\] must be a number above 0"),
    ({"name": 7}, r"network\['name'\] must be a text, got 7"),
]


@pytest.mark.parametrize(("changes", "says"), MISTAKES)
def test_networks_with_mistakes_are_refused_before_any_step(changes: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        roads.capacities(square(**changes))


@pytest.mark.parametrize("key", ["links", "demand", "candidates"])
def test_a_missing_key_is_named(key: str) -> None:
    network = square()
    del network[key]
    with pytest.raises(ValueError, match=f"network must be a dictionary with the key '{key}'"):
        roads.capacities(network)


@pytest.mark.parametrize("factor", [0, -1, float("inf"), "2", None])
def test_a_demand_factor_is_a_number_above_0(factor: Any) -> None:
    with pytest.raises(ValueError, match="demand_factor must be a number above 0"):
        roads.capacities(square(), factor)


def test_the_network_that_was_given_is_not_changed() -> None:
    network = square()
    before = copy.deepcopy(network)
    roads.capacities(network, 2.0)
    assert network == before


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:workers slow this run down")
@pytest.mark.parametrize("method", ["drc-race", "trust-region"])  # the second starts near others
def test_runs_are_the_same_with_workers_and_after_a_kill(method: str, tmp_path: Path) -> None:
    def run(**options: Any) -> tuple[bytes, bytes, float, int]:
        result = bilevo.minimize(get("roads-16-i"), method=method, rng=4, **options)
        return result.x.tobytes(), result.y.tobytes(), result.F, result.nfev_lower

    alone = run(max_evals=300)
    assert run(max_evals=300, workers=2) == alone

    def kill(result: bilevo.Result) -> None:
        if result.nfev > 120:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(max_evals=300, run_dir=tmp_path, callback=kill)
    assert run(max_evals=300, run_dir=tmp_path) == alone


def test_states_are_stored_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All states are written, as if their steps took long, and a resumed run reads them."""
    from bilevo.run import stepper

    monkeypatch.setattr(stepper, "STORED_AFTER", 0.0)
    written: list[int] = []
    write = stepper.StateFiles.write

    def noted(self: Any, task: int, *rest: Any) -> None:
        write(self, task, *rest)
        assert self._usable
        written.append(task)

    monkeypatch.setattr(stepper.StateFiles, "write", noted)
    first = bilevo.minimize(get("roads-16-ii"), rng=2, max_evals=150, run_dir=tmp_path)
    assert len(set(written)) > 5
    again = bilevo.minimize(get("roads-16-ii"), rng=2, max_evals=250, run_dir=tmp_path)
    whole = bilevo.minimize(get("roads-16-ii"), rng=2, max_evals=250)
    assert first.nfev <= 150 and again.x.tobytes() == whole.x.tobytes() and again.F == whole.F
