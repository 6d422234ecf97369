"""examples/tuning.py at a small size: training learns, and tuning finds what trains well."""

import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def tuning(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "tuning", raising=False)
    import tuning

    return tuning


def trained(tuning, x, data="friedman"):
    training = tuning.Training(tuning.DATA[data](7))
    state = training.start(np.array(x), np.random.default_rng(1))
    while not training.done(state):
        state = training.advance(state)
    return state


@pytest.mark.parametrize(
    ("data", "good"), [("digits", 0.4), ("breast-cancer", 0.2), ("friedman", 0.2)]
)
def test_training_learns_and_ends_by_patience_or_length(tuning, data, good) -> None:
    state = trained(tuning, [-2.0, -2.0, 5.0, 5.0], data)
    assert state.validation < good
    assert state.epoch == 50 or state.epoch - state.best_epoch == 8


def test_slopes_are_those_of_the_loss(tuning) -> None:
    training = tuning.Training(tuning.DATA["digits"](7))
    state = training.start(np.array([-2.0, -2.0, 5.0, 2.0]), np.random.default_rng(1))
    X, T = training.data.inputs[:9], training.data.targets[:9]
    slopes = np.empty_like(state.weights)
    views = training.layers(state.weights, state.width), training.layers(slopes, state.width)
    training.backward(*views, X, T)
    for i in (0, 17, len(slopes) - 1):
        losses = []
        for step in (1e-5, -1e-5):
            state.weights[i] += step
            losses.append(training.data.loss(training.forward(views[0], X)[1], T))
            state.weights[i] -= step
        assert slopes[i] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-8)


def test_a_training_that_diverges_has_the_worst_loss(tuning) -> None:
    state = trained(tuning, [0.0, -5.0, 4.0, 6.0])
    assert 0.5 < state.validation <= tuning.WORST


def test_the_example_tells_what_it_found_and_draws_it(tuning, tmp_path, capsys) -> None:
    tuning.main(["friedman", "--small", "--seed", "7", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "learning rate" in shown and "of them got three or" in shown
    found, again = (float(shown.split(word)[1].split(",")[0]) for word in ("loss ", "again: "))
    assert found < 0.2 and again < 0.3
    assert (tmp_path / "tuning.png").stat().st_size > 1000
