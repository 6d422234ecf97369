"""`Optimizer`: ask and tell."""

import numpy as np
import pytest
from conftest import fingerprint

import bilevo
from bilevo import BadValue, Optimizer
from bilevo.problems import get


def evaluate(problem, batch):
    F, G, f, g = problem.evaluate(batch.x, batch.y)
    return (F, G) if batch.level == "upper" else (f, g)


@pytest.mark.parametrize("name", ["smd1", "smd12", "tp3"])
@pytest.mark.parametrize("method", ["drc-cma-es", "bl-cma-es"])
def test_ask_and_tell_gives_the_bits_of_minimize(name: str, method: str) -> None:
    problem = get(name)
    opt = Optimizer(problem, method=method, rng=3, max_evals=3000)
    while not opt.done:
        batch = opt.ask()
        assert opt.ask() is batch
        assert not batch.x.flags.writeable
        opt.tell(batch, *evaluate(problem, batch))
    expected = bilevo.minimize(problem, method=method, rng=3, max_evals=3000)
    assert fingerprint(opt.result) == fingerprint(expected)


def test_works_without_functions_and_shows_results_on_the_way() -> None:
    opt = Optimizer(x_bounds=[(-5, 10)] * 2, y_bounds=[(-5, 10)] * 2, n_g=1, max_evals=5000)
    while not opt.done:
        batch = opt.ask()
        if batch.level == "upper":
            opt.tell(batch, np.vecdot(batch.x, batch.x))
        else:
            difference = batch.y - batch.x
            opt.tell(batch, np.vecdot(difference, difference), batch.y[:, :1] - 9)
        assert opt.result.nfev <= 5000
    assert opt.result.feasible and opt.result.F < 5
    assert opt.result.time == opt.result.time  # stands still once done


def test_misuse_is_refused_and_nothing_is_lost() -> None:
    opt = Optimizer(get("smd9"), method="drc-cma-es", max_evals=100)
    batch = opt.ask()
    with pytest.raises(BadValue, match="lower-level objective"):
        opt.tell(batch, [1.0], np.zeros((len(batch.x), 1)))
    with pytest.raises(BadValue, match="lower level needs its constraints"):
        opt.tell(batch, np.zeros(len(batch.x)))
    with pytest.raises(BadValue, match="lower-level constraints"):
        opt.tell(batch, np.zeros(len(batch.x)), np.zeros((3, 1)))
    opt.tell(batch, *evaluate(get("smd9"), batch))
    with pytest.raises(ValueError, match="the batch that ask gave last"):
        opt.tell(batch, *evaluate(get("smd9"), batch))
    while not opt.done:
        opt.tell(opt.ask(), *evaluate(get("smd9"), opt.ask()))
    with pytest.raises(ValueError, match="the run has ended"):
        opt.ask()


def test_declared_constraints_must_be_told() -> None:
    opt = Optimizer(x_bounds=[(0, 1)], y_bounds=[(0, 1)], n_g=2)
    with pytest.raises(BadValue, match="lower level needs its 2 constraints"):
        opt.tell(opt.ask(), np.zeros(len(opt.ask().x)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "either a Problem or both"),
        ({"x_bounds": [(0, 1)]}, "either a Problem or both"),
        (
            {"x_bounds": [(0, 1)], "y_bounds": [(0, 1)], "n_G": -1},
            "n_G must be a number of constraints",
        ),
        ({"problem": get("smd1"), "n_g": 1}, "without a Problem only"),
        ({"problem": get("smd1"), "x_bounds": [(0, 1)]}, "either a Problem or both"),
        ({"problem": "smd1"}, "either a Problem or both"),
    ],
)
def test_wrong_input_is_refused(options, says) -> None:
    with pytest.raises(ValueError, match=says):
        Optimizer(**options)
