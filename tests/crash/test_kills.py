"""Real processes, really killed."""

import math
import os
import time
from pathlib import Path
from typing import Any

import crashes
import numpy as np
import psutil
import pytest
from crashes import (
    METHODS,
    course,
    left_after,
    medium,
    own_solver,
    small,
    start,
    two_followers,
)

import bilevo
from bilevo.run.lock import DirectoryLock

RUNS = 2  # pieces of the work, for several cores
PATIENCE = 10  # seconds: two are promised, but a process that is just starting must start first


def killed_runs(
    folder: Path,
    kills: int,
    seed: int,
    longest: float,
    workers: int | None = None,
    make: Any = medium,
    kinds: tuple[str, ...] = METHODS,
) -> None:
    """Make runs with up to six kills each until there were enough; each must end as if unharmed."""
    rng = np.random.default_rng(seed)
    made = run = 0
    while made < kills:
        kind, run = kinds[run % len(kinds)], run + 1
        here = folder / f"run{run}"
        limit = 4000 if workers is None else 1000
        arguments = (here, folder / f"{run}.json", kind, seed * 1000 + run, workers, limit)
        begun = arguments[1].with_suffix(".begun")
        for _ in range(min(6, kills - made)):
            begun.unlink(missing_ok=True)
            process = start(make, *arguments)
            while not begun.exists():
                time.sleep(0.001)
            process.join(rng.uniform(0.0, longest))
            if process.exitcode is not None:
                break
            helpers = children(process.pid)
            process.kill()
            process.join()
            made += 1
            assert left_after(PATIENCE, helpers) == [], "orphans"
        process = start(make, *arguments)
        process.join()
        assert process.exitcode == 0
        unharmed = folder / f"{run}-unharmed.json"
        make(None, unharmed, *arguments[2:4], limit=arguments[-1])
        assert arguments[1].read_text() == unharmed.read_text()


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:  # it has just ended by itself
        return []


@pytest.mark.parametrize("part", range(RUNS))
def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    part: int, tmp_path: Path, trials, figure
) -> None:
    kills = math.ceil(trials(24, 2000) / RUNS)
    killed_runs(tmp_path, kills, part, longest=0.12)  # about what such a run takes
    figure(1, kills, "kills")


@pytest.mark.rest
@pytest.mark.parametrize("play", ["nash", "independent"])
def test_a_killed_run_with_two_followers_ends_with_the_same_bits(
    play: str, tmp_path: Path, trials
) -> None:
    killed_runs(tmp_path, trials(4, 100), 7, longest=0.3, make=two_followers, kinds=(play,))


@pytest.mark.rest
@pytest.mark.parametrize("play", ["nash", "independent"])
def test_a_killed_run_with_two_followers_and_workers_ends_with_the_same_bits(
    play: str, tmp_path: Path, trials
) -> None:
    kills = trials(2, 20)
    killed_runs(tmp_path, kills, 8, longest=1.0, workers=2, make=two_followers, kinds=(play,))


@pytest.mark.rest
@pytest.mark.parametrize("part", range(2))
def test_killing_the_parent_of_workers_leaves_no_orphans_and_changes_nothing(
    part: int, tmp_path: Path, trials, figure
) -> None:
    kills = trials(8, 100) // 2
    killed_runs(tmp_path, kills, 100 + part, longest=1.5, workers=2)
    figure(21, kills, "kills")


@pytest.mark.rest
def test_killing_the_parent_of_a_solvers_workers_leaves_no_orphans_and_changes_nothing(
    tmp_path: Path, trials, figure
) -> None:
    kills, kinds = trials(4, 50), ("trust-region",)
    killed_runs(tmp_path, kills, 102, longest=1.5, workers=2, make=own_solver, kinds=kinds)
    figure(21, kills, "kills while trust-region drives a solver")


def await_lock(run_dir: Path, pid: int) -> None:
    while (
        not (run_dir / "lock").exists() or f"process {pid} " not in (run_dir / "lock").read_text()
    ):
        time.sleep(0.01)


def test_a_second_writer_is_refused_and_told_the_first_ones_pid(tmp_path: Path, figure) -> None:
    holder = start(crashes.hold, tmp_path)
    try:
        await_lock(tmp_path, holder.pid)
        while not (tmp_path / "journal.bin").exists():
            time.sleep(0.01)
        before = (tmp_path / "journal.bin").read_bytes()
        for _ in range(100):
            with pytest.raises(bilevo.RunLocked, match=f"process {holder.pid} "):
                small(tmp_path)
        assert (tmp_path / "journal.bin").read_bytes() == before
        assert bilevo.load(tmp_path).status == "running"  # looking is allowed
    finally:
        holder.kill()
        holder.join()
    figure(18, 100, "refusals")


def test_the_lock_of_a_killed_writer_is_free_at_once(tmp_path: Path, figure) -> None:
    for _ in range(20):
        holder = start(crashes.hold, tmp_path)
        await_lock(tmp_path, holder.pid)
        holder.kill()
        holder.join()
        DirectoryLock(tmp_path).release()
    assert course(small(tmp_path)) == course(small(None))
    figure(18, 20, "locks of the dead taken over")


def test_two_runs_of_one_process_are_kept_apart(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(bilevo.RunLocked, match=f"process {os.getpid()} "):
        small(tmp_path)
    lock.release()
    assert small(tmp_path).nfev > 0
