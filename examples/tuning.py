"""Tune hyper-parameters as a bilevel problem: the follower is the training of a network.

The leader chooses four hyper-parameters of a small network, all on a log scale: learning rate,
weight decay, batch size and width. The follower is the training itself. One `advance` is an epoch
of Adam. Training is done when the validation loss has not improved for eight epochs, or after fifty
epochs. The leader sees the validation loss of the best epoch so far, because in practice one would
keep the network of that epoch. All networks together get a limited number of epochs. `drc-race`
gives few epochs to most networks, and many to those that may become the best.

    python examples/tuning.py                           the digits, 1000 epochs, some seconds
    python examples/tuning.py friedman --epochs 300 --out pictures

**When bilevo is the wrong tool**: if only the regularization of a convex loss is tuned. Then the
validation loss can be differentiated, and a search with gradients needs far fewer trainings.

docs/tuning.md compares drc-race with Optuna. The example needs scikit-learn, for its data.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bilevo

Array = NDArray[np.float64]

NAMES = ("learning rate", "weight decay", "batch size", "width")
# Bounds of log10 of the learning rate and weight decay, and log2 of the batch size and width.
X_BOUNDS = [(-4.0, 0.0), (-5.0, 0.5), (4.0, 8.0), (2.0, 6.0)]
WORST = 10.0  # larger losses count as this, because training may diverge
MAX_EPOCHS = 50  # a training ends after this number of epochs ...
PATIENCE = 8  # ... or after this number of epochs without improvement


@dataclass(frozen=True)
class Data:
    """Inputs and targets, (k, inputs) and (k, outputs), for training and for validation."""

    inputs: Array
    targets: Array
    validation_inputs: Array
    validation_targets: Array
    classes: bool  # the loss is the cross entropy of classes if True, else the squared error

    @classmethod
    def split(cls, X: Array, T: Array, classes: bool, training: int, seed: int) -> Data:
        """Split rows at random by a seed, and scale inputs by the training rows only."""
        order = np.random.default_rng([seed, 8]).permutation(len(X))
        seen, held = order[:training], order[training:]
        mean, deviation = X[seen].mean(axis=0), X[seen].std(axis=0) + 1e-9
        scaled = np.clip((X - mean) / deviation, -5, 5)
        return cls(scaled[seen], T[seen], scaled[held], T[held], classes)

    def loss(self, outputs: Array, targets: Array) -> float:
        """Return the loss of a network's outputs, per row."""
        if self.classes:
            return float(-(targets * log_softmax(outputs)).sum() / len(outputs))
        return float(((outputs - targets) ** 2).sum() / len(outputs))

    def slope(self, outputs: Array, targets: Array) -> Array:
        """Return the derivative of the loss by the outputs."""
        if self.classes:
            return np.asarray((np.exp(log_softmax(outputs)) - targets) / len(outputs))
        return np.asarray(2 * (outputs - targets) / len(outputs))


def log_softmax(outputs: Array) -> Array:
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def digits(seed: int) -> Data:
    """Load 8x8 pictures of digits: the first 800 of 1797, 300 of them for training."""
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    return Data.split(X[:800], np.eye(10)[labels[:800]], True, 300, seed)


def breast_cancer(seed: int) -> Data:
    """Load thirty measurements of cells, benign or malignant, 300 of 569 for training."""
    from sklearn.datasets import load_breast_cancer

    X, labels = load_breast_cancer(return_X_y=True)
    return Data.split(X, np.eye(2)[labels], True, 300, seed)


def friedman(seed: int) -> Data:
    """Make Friedman-1: a smooth function of five of ten inputs, with noise; 300 of 700 train."""
    from sklearn.datasets import make_friedman1

    X, t = make_friedman1(700, noise=1.0, random_state=seed)
    return Data.split(X, (t[:, None] - 14.4) / 4.9, False, 300, seed)


DATA: dict[str, Callable[[int], Data]] = {
    "digits": digits,
    "breast-cancer": breast_cancer,
    "friedman": friedman,
}


@dataclass(slots=True)
class Network:
    """The state of a training: all weights in one vector, Adam's moments, and the losses so far."""

    width: int
    batch: int
    rate: float
    decay: float
    weights: Array
    first: Array
    second: Array
    rng: np.random.Generator
    steps: int = 0
    epoch: int = 0
    training: float = WORST  # training loss of the last epoch
    validation: float = WORST  # validation loss of the best epoch
    best_epoch: int = 0
    number: int = 0


class Training:
    """The solver: trains a network with hyper-parameters x (4,), an epoch at a time."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.inputs, self.outputs = data.inputs.shape[1], data.targets.shape[1]

    def start(self, x: Array, rng: np.random.Generator) -> Network:
        width, batch = round(2 ** float(x[3])), round(2 ** float(x[2]))
        count = (self.inputs + 1 + self.outputs) * width + self.outputs
        weights = np.zeros(count)
        W1, _, W2, _ = self.layers(weights, width)
        W1[:] = rng.standard_normal(W1.shape) * math.sqrt(2 / self.inputs)
        W2[:] = rng.standard_normal(W2.shape) * math.sqrt(1 / width)
        rate, decay = 10.0 ** float(x[0]), 10.0 ** float(x[1])
        return Network(width, batch, rate, decay, weights, np.zeros(count), np.zeros(count), rng)

    def layers(self, vector: Array, width: int) -> tuple[Array, Array, Array, Array]:
        """Return views of a vector of weights or derivatives: two layers and their biases."""
        ends = np.cumsum([self.inputs * width, width, width * self.outputs])
        W1, b1, W2, b2 = np.split(vector, ends)
        return W1.reshape(self.inputs, width), b1, W2.reshape(width, self.outputs), b2

    def advance(self, state: Network) -> Network:
        """Train for one epoch, then compute the validation loss."""
        data, total = self.data, 0.0
        order = state.rng.permutation(len(data.inputs))
        slopes = np.empty_like(state.weights)
        here, there = self.layers(state.weights, state.width), self.layers(slopes, state.width)
        with np.errstate(over="ignore", invalid="ignore"):
            for at in range(0, len(order), state.batch):
                rows = order[at : at + state.batch]
                X, T = data.inputs[rows], data.targets[rows]
                total += self.backward(here, there, X, T) * len(rows)
                adam(state, slopes)
            outputs = self.forward(here, data.validation_inputs)[1]
            validation = data.loss(outputs, data.validation_targets)
        state.epoch += 1
        state.training = bounded(total / len(order))
        if bounded(validation) < state.validation:
            state.validation, state.best_epoch = bounded(validation), state.epoch
        return state

    def forward(self, layers: tuple[Array, ...], X: Array) -> tuple[Array, Array]:
        """Return the hidden layer and the outputs."""
        W1, b1, W2, b2 = layers
        hidden = np.maximum(X @ W1 + b1, 0.0)
        return hidden, hidden @ W2 + b2

    def backward(
        self, layers: tuple[Array, ...], slopes: tuple[Array, ...], X: Array, T: Array
    ) -> float:
        """Return the loss of a batch, and write its derivatives by all weights into `slopes`."""
        hidden, outputs = self.forward(layers, X)
        by_output = self.data.slope(outputs, T)
        by_hidden = (by_output @ layers[2].T) * (hidden > 0)
        slopes[0][:], slopes[1][:] = X.T @ by_hidden, by_hidden.sum(axis=0)
        slopes[2][:], slopes[3][:] = hidden.T @ by_output, by_output.sum(axis=0)
        return self.data.loss(outputs, T)

    def best(self, state: Network) -> tuple[Array, float, float]:
        return np.array([state.validation]), state.training, 0.0

    def done(self, state: Network) -> bool:
        return state.epoch >= MAX_EPOCHS or state.epoch - state.best_epoch >= PATIENCE


def adam(state: Network, slopes: Array, b1: float = 0.9, b2: float = 0.99) -> None:
    """Make one step of Adam with decoupled weight decay, in place."""
    state.steps += 1
    state.first *= b1
    state.first += (1 - b1) * slopes
    state.second *= b2
    state.second += (1 - b2) * slopes * slopes
    size = state.rate * math.sqrt(1 - b2**state.steps) / (1 - b1**state.steps)
    state.weights *= 1 - min(1.0, state.rate * state.decay)
    state.weights -= size * state.first / (np.sqrt(state.second) + 1e-8)


def bounded(loss: float) -> float:
    return min(loss, WORST) if math.isfinite(loss) else WORST


def problem(training: Training) -> bilevo.Problem:
    """Make the bilevel problem of a training: F is the validation loss that the solver gives."""
    return bilevo.Problem(
        validation_loss,
        None,
        X_BOUNDS,
        [(0.0, WORST)],
        name="tuning",
        follower=training,
    )


def validation_loss(x: Array, y: Array) -> float:
    return float(y[0])


def meaning(x: Array) -> dict[str, float]:
    """Return hyper-parameters as people write them."""
    values = (10.0 ** x[0], 10.0 ** x[1], round(2 ** x[2]), round(2 ** x[3]))
    return {name: float(f"{value:.3g}") for name, value in zip(NAMES, values, strict=True)}


class Watched(Training):
    """Training that keeps the validation losses of all networks, for the picture."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.curves: dict[int, list[float]] = {}

    def start(self, x: Array, rng: np.random.Generator) -> Network:
        state = super().start(x, rng)
        state.number = len(self.curves)
        self.curves[state.number] = []
        return state

    def advance(self, state: Network) -> Network:
        state = super().advance(state)
        self.curves[state.number].append(state.validation)
        return state


def again(training: Training, x: Array, times: int) -> Array:
    """Train new networks with the same hyper-parameters, and return their validation losses."""
    losses = []
    for seed in range(times):
        state = training.start(x, np.random.default_rng([seed, 4]))
        while not training.done(state):
            state = training.advance(state)
        losses.append(state.validation)
    return np.array(losses)


def picture(path: Path, curves: list[list[float]], answer: float, title: str) -> None:
    """Draw each network's best loss over its epochs; the answer is red."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for curve in curves:
        style = {"color": "C3"} if curve[-1] == answer else {"color": "C0", "alpha": 0.4}
        panel.semilogy(range(1, len(curve) + 1), curve, **style)
        panel.semilogy(len(curve), curve[-1], ".", **style)
    panel.set_xlabel("epochs of a network")
    panel.set_ylabel("validation loss")
    panel.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Tune a small network by bilevel optimization.")
    parser.add_argument("data", nargs="?", choices=DATA, default="digits")
    parser.add_argument("--epochs", type=int, default=1000, help="epochs of all networks together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="200 epochs")
    parser.add_argument("--out", type=Path, default=Path(), help="directory for the picture")
    options = parser.parse_args(arguments)

    training = Watched(DATA[options.data](options.seed))
    epochs = 200 if options.small else options.epochs
    result = bilevo.minimize(
        problem(training), method="drc-race", max_evals_lower=epochs, rng=options.seed
    )
    curves = [curve for curve in training.curves.values() if curve]
    short = sum(len(curve) <= 3 for curve in curves)
    print(f"{options.data}: validation loss {result.F:.4f}, training loss {result.f:.4f}")
    for name, value in meaning(result.x).items():
        print(f"  {name:14} {value:g}")
    losses = again(Training(training.data), result.x, 3 if options.small else 10)
    print(f"Trained again: {np.median(losses):.4f}, from {losses.min():.4f} to {losses.max():.4f}")
    print(
        f"{result.nfev_lower} epochs went to {len(curves)} networks: {short} of them got three or\n"
        f"fewer, and the longest training took {max(map(len, curves))}. The best network found\n"
        "was partly lucky: a network that is trained again with the same settings is likely to be\n"
        "a little worse."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    title = f"{options.data}: who got {result.nfev_lower} epochs"
    picture(options.out / "tuning.png", curves, result.F, title)


if __name__ == "__main__":
    main()
