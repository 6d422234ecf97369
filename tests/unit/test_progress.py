"""What a run says about itself while it runs: on a terminal, and in a log."""

import os
import pty
import re
import subprocess
import sys
import threading

import pytest

import bilevo
from bilevo.core.budget import Limits
from bilevo.problems import get
from bilevo.run import progress as shown
from bilevo.run.progress import Progress, duration

SLOW_RUN = """
import time
import bilevo

def slow(function):
    def call(x, y):
        time.sleep(0.004)
        return function(x, y)
    return call

bilevo.minimize(
    slow(lambda x, y: (x[0] - 1) ** 2 + y[0] ** 2),
    slow(lambda x, y: (y[0] - x[0]) ** 2),
    [(-3, 3)], [(-3, 3)], max_evals=300, progress=True, target=False,
)
"""


@pytest.fixture
def said(monkeypatch):
    """Collect what `Progress` says in a run, each time that a function is called."""
    texts = []
    made = []
    original = Progress.follow

    def follow(self, session, source):
        original(self, session, source)
        made.append(self)

    monkeypatch.setattr(Progress, "follow", follow)

    def run(failing=False, **limits):
        problem = get("smd1")

        def lower(x, y):
            texts.append(made[-1].text() if made else "")
            if failing and len(texts) == 3:
                raise RuntimeError("diverged")
            return problem.evaluate(x, y)[2][0]

        def upper(x, y):
            return problem.evaluate(x, y)[0][0]

        bilevo.minimize(
            upper, lower, problem.x_bounds, problem.y_bounds, on_failure="worst", **limits
        )
        return [*texts, made[-1].text()]

    return run


def test_it_tells_the_share_of_the_limit_from_the_first_evaluation_on(said):
    texts = said(max_evals=150)
    assert "0 of 150 evaluations (0%)" in texts[0] and "no pair yet" in texts[0]
    counts = [int(re.match(r"(\d+) of 150", text).group(1)) for text in texts]
    assert counts == sorted(counts) and len(set(counts)) > 100  # also within batches
    assert re.search(r"F \S+ \((not )?certified\)", texts[-1])
    assert "/s" in texts[-1] and "left" in texts[-1]


def test_it_tells_failures_and_does_without_limits(said):
    texts = said(failing=True, max_evals_lower=60)
    assert "1 failed" in texts[-1]
    assert re.match(r"\d+ evaluations, ", texts[-1])


def test_it_tells_whether_the_best_pair_is_certified(said):
    assert "(certified)" in said()[-1]


def test_it_says_that_a_run_is_starting():
    assert Progress(Limits()).text() == "starting"


@pytest.mark.parametrize(("seconds", "words"), [(45, "45 s"), (600, "10 min"), (9000, "2.5 h")])
def test_times_are_in_words(seconds, words):
    assert duration(seconds) == words


def test_a_log_gets_lines_while_an_evaluation_runs(monkeypatch, capfd):
    monkeypatch.setattr(shown, "FIRST_LINE", 0.01)
    said = threading.Event()
    monkeypatch.setattr(shown, "LOG_EVERY", 0.01)
    original = shown._say

    def say(name, progress):
        original(name, progress)
        if "0 of 20" in progress.text():
            said.set()

    monkeypatch.setattr(shown, "_say", say)

    def f(x, y):
        assert said.wait(60)  # the first evaluation lasts until there is a line about it
        return float(y[0] ** 2)

    bilevo.minimize(lambda x, y: x[0] ** 2, f, [(0, 1)], [(0, 1)], max_evals=20, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert "problem: 0 of 20 evaluations (0%)" in "".join(lines)
    assert "of 20 evaluations" in lines[-1]


@pytest.mark.rest
def test_a_terminal_shows_something_new_all_the_time():
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    run = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN], stderr=child, stdout=child, env=environment
    )
    os.close(child)
    text = b""
    while True:
        try:
            block = os.read(parent, 4096)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        text += block
    run.wait()
    os.close(parent)
    counts = set(re.findall(rb"(\d+) of 300 evaluations", text))
    assert run.returncode == 0 and len(counts) >= 4
