"""Compare methods of hyper-parameter tuning at equal numbers of epochs.

    python examples/compare_tuning.py           make missing runs, then write docs/tuning.md
    python examples/compare_tuning.py --page    write docs/tuning.md and its picture only

The methods are trust-region (the default), drc-race, drc-cma-es, Optuna, nested-cma-es and random
search. All use the code of examples/tuning.py, so they have the same data, box, patience and
longest training. They are compared after equal numbers of epochs, counted over all networks that a
method trains. Each is rated by the smallest validation loss of any of its networks until then,
whether the training of this network was finished or pruned. A seed splits the data in the same way
for all methods, and is also the seed of each method. Runs are stored in docs/data/tuning.csv. The
script needs optuna and scikit-learn, and takes about 15 minutes.
"""

from __future__ import annotations

import csv
import math
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import tuning
from tuning import Array, Data, Network, Training

import bilevo
from bilevo.lab.analysis.statistics import signed_rank
from bilevo.lab.show.documents import filled, marked

EPOCHS = (300, 1000, 3000)
# Numbers of epochs after which losses are noted.
SHOWN = (50, 75, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000)
SEEDS = range(1, 11)
OURS = "trust-region"  # the default for solvers
DOCS = Path(__file__).resolve().parents[1] / "docs"
STORE, PAGE, PICTURE = DOCS / "data/tuning.csv", DOCS / "tuning.md", DOCS / "pictures/tuning.svg"
LOWER, UPPER = np.array(tuning.X_BOUNDS).T
Key = tuple[str, str, int]  # data, method, seed


class SpentError(Exception):
    """Raised when a method has used all of its epochs."""


class Metered(Training):
    """Training that counts the epochs of a run, and notes the best loss after each epoch."""

    def __init__(self, data: Data, epochs: int) -> None:
        super().__init__(data)
        self.left, self.seen = epochs, [math.inf]

    def advance(self, state: Network) -> Network:
        if not self.left:
            raise SpentError
        state = super().advance(state)
        self.left -= 1
        self.seen.append(min(self.seen[-1], state.validation))
        return state

    def trained(self, x: Array, rng: np.random.Generator) -> float:
        """Return the loss at the end of a training."""
        state = self.start(x, rng)
        while not self.done(state):
            state = self.advance(state)
        return state.validation


def chance(training: Metered, seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    while True:
        training.trained(rng.uniform(LOWER, UPPER), rng)


def optuna(training: Metered, seed: int, pruned: bool) -> None:
    """Run TPE with its default settings, alone or with the Hyperband pruner."""
    from optuna import Trial, TrialPruned, create_study, logging, pruners, samplers

    def objective(trial: Trial) -> float:
        x = np.array([trial.suggest_float(name, *ends) for name, ends in BOX.items()])
        state = training.start(x, np.random.default_rng([seed, trial.number]))
        while not training.done(state):
            state = training.advance(state)
            trial.report(state.validation, state.epoch)
            if trial.should_prune():
                raise TrialPruned
        return state.validation

    logging.set_verbosity(logging.ERROR)
    hyperband = pruners.HyperbandPruner(max_resource=tuning.MAX_EPOCHS)
    pruner = hyperband if pruned else pruners.NopPruner()
    create_study(sampler=samplers.TPESampler(seed=seed), pruner=pruner).optimize(objective)


def by_bilevo(training: Metered, seed: int, method: str) -> None:
    problem = tuning.problem(training)
    bilevo.minimize(problem, method=method, rng=seed, max_evals_lower=training.left)


BOX = dict(zip(tuning.NAMES, tuning.X_BOUNDS, strict=True))
METHODS: dict[str, Callable[[Metered, int], None]] = {
    OURS: lambda training, seed: by_bilevo(training, seed, OURS),
    "drc-race": lambda training, seed: by_bilevo(training, seed, "drc-race"),
    "drc-cma-es": lambda training, seed: by_bilevo(training, seed, "drc-cma-es"),
    "TPE + Hyperband": lambda training, seed: optuna(training, seed, pruned=True),
    "TPE": lambda training, seed: optuna(training, seed, pruned=False),
    "nested-cma-es": lambda training, seed: by_bilevo(training, seed, "nested-cma-es"),
    "random": chance,
}


def run(key: Key) -> list[float]:
    """Make a run, and return its best loss after each number of epochs in SHOWN."""
    data, method, seed = key
    training = Metered(tuning.DATA[data](seed), max(SHOWN))
    with suppress(SpentError):
        METHODS[method](training, seed)
    return [training.seen[min(epochs, len(training.seen) - 1)] for epochs in SHOWN]


def stored() -> dict[Key, list[float]]:
    if not STORE.exists():
        return {}
    with STORE.open() as file:
        rows = list(csv.reader(file))[1:]
    return {(row[0], row[1], int(row[2])): [float(loss) for loss in row[3:]] for row in rows}


def run_missing() -> None:
    """Make the runs that are not stored yet, and store each at once."""
    known = stored()
    wanted = [(d, method, seed) for seed in SEEDS for d in tuning.DATA for method in METHODS]
    with STORE.open("a", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        if not known:
            write(["data", "method", "seed", *SHOWN])
        for key in wanted:
            if key not in known:
                losses = run(key)
                write([*key, *(f"{loss:.6g}" for loss in losses)])
                file.flush()
                print(f"{' '.join(map(str, key))}: {losses[-1]:.4f}", flush=True)


def at(runs: dict[Key, list[float]], data: str, method: str, epochs: int) -> Array:
    """Return the losses of a method on some data after some epochs, in the order of seeds."""
    column = SHOWN.index(epochs)
    return np.array([runs[data, method, seed][column] for seed in SEEDS])


def medians(runs: dict[Key, list[float]]) -> str:
    """Return the table of the median losses of all methods."""
    lines = ["| data | epochs | " + " | ".join(METHODS) + " |", "|---|---|" + "---|" * len(METHODS)]
    for data in tuning.DATA:
        for epochs in EPOCHS:
            values = [float(np.median(at(runs, data, method, epochs))) for method in METHODS]
            least = f"{min(values):.4f}"
            cells = [f"**{v:.4f}**" if f"{v:.4f}" == least else f"{v:.4f}" for v in values]
            lines.append(f"| {data} | {epochs} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pairs(runs: dict[Key, list[float]]) -> str:
    """Return the table that compares the default with each other method, in pairs of one seed."""
    lines = [
        f"| {OURS} against | epochs | median ratio | " + " | ".join(tuning.DATA) + " | all | p |",
        "|---|---|---|" + "---|" * (len(tuning.DATA) + 2),
    ]
    for rival in list(METHODS)[1:]:
        for epochs in EPOCHS:
            ours, theirs = (
                {data: at(runs, data, method, epochs) for data in tuning.DATA}
                for method in (OURS, rival)
            )
            counts = [outcome(ours[data], theirs[data]) for data in tuning.DATA]
            a, b = np.concatenate(list(ours.values())), np.concatenate(list(theirs.values()))
            p = signed_rank(np.log(b), np.log(a)).p
            cells = [f"{np.median(a / b):.3f}", *counts, outcome(a, b), f"{p:.2g}"]
            lines.append(f"| {rival} | {epochs} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def outcome(ours: Array, theirs: Array) -> str:
    """Return wins/ties/losses; values that differ by a thousandth or less are a tie."""
    apart = ours / theirs - 1
    win, lose = int((apart < -1e-3).sum()), int((apart > 1e-3).sum())
    return f"{win}/{len(ours) - win - lose}/{lose}"


def draw(runs: dict[Key, list[float]]) -> None:
    """Draw median losses over epochs, one panel for each set of data."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tuning"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(tuning.DATA), figsize=(10, 3.4), layout="constrained")
    for panel, data in zip(panels, tuning.DATA, strict=True):
        for method in METHODS:
            losses = np.median([runs[data, method, seed] for seed in SEEDS], axis=0)
            thick = 2.2 if method == OURS else 1.1
            panel.loglog(SHOWN, losses, label=method, linewidth=thick)
        panel.set_title(data)
        panel.set_xlabel("epochs in all")
    panels[0].set_ylabel("validation loss, median of ten")
    panels[-1].legend(fontsize="x-small")
    figure.savefig(PICTURE, metadata={"Date": None})


def write_page() -> None:
    runs = stored()
    draw(runs)
    made: dict[str, Callable[[dict[Key, list[float]]], str]] = {"medians": medians, "pairs": pairs}
    text = filled(PAGE.read_text(), marked("(medians|pairs)"), lambda n: made[n](runs), "pairs")
    PAGE.write_text(text)


def main(arguments: list[str]) -> None:
    parser = ArgumentParser(description="Hyper-parameter tuning at equal numbers of epochs.")
    parser.add_argument("--page", action="store_true", help="make no runs, only write the page")
    if not parser.parse_args(arguments).page:
        run_missing()
    write_page()


if __name__ == "__main__":
    main(sys.argv[1:])
