"""Evaluation by others: the same bits, and nothing lost when they hang, die or fail."""

import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import solvers
from crashes import METHODS, SMALL, course, f, left_after, problem, slow_f, small
from solvers import SlowSteady, Steady

import bilevo
from bilevo.core.request import Level
from bilevo.run.evaluator import Evaluator
from bilevo.run.jobs import Carrier
from bilevo.run.pool import WorkerPool
from bilevo.run.session import Batch

HERE = Path(__file__).parent
SLEEP = 98765.4321  # seconds that tell our sleepers from others
CELLS = {  # executors that share a process, and its number of BLAS threads
    "serial": (("serial",), 1),
    "local": (("vectorized", "processes-1", "processes-2", "processes-4", "threads"), 1),
    "clusters": (("dask", "ray"), 1),
    "local, two threads": (("serial", "processes-2"), 2),
    "clusters, two threads": (("dask", "ray"), 2),
}
pytestmark = pytest.mark.filterwarnings("ignore:workers slow this run down")


@cache
def courses(kinds: tuple[str, ...], threads: int) -> dict[str, dict[str, str]]:
    """Each method's course by each kind of executor, with that number of BLAS threads."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": "random"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    command = [sys.executable, HERE / "cell.py", *kinds]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    found: dict[str, dict[str, str]] = json.loads(shown.stdout.splitlines()[-1])
    return found


@pytest.mark.rest
@pytest.mark.parametrize(
    "cells",
    [pytest.param(c, marks=pytest.mark.cluster if "clusters" in c else ()) for c in CELLS],
)
def test_every_executor_gives_the_same_bits(cells: str, figure) -> None:
    expected = courses(*CELLS["serial"])["serial"]
    found = courses(*CELLS[cells])
    assert found == dict.fromkeys(CELLS[cells][0], expected)
    figure(11, len(METHODS) * len(found), "runs in 12 cells with one fingerprint per method")


class Killer(threading.Thread):
    """Kills workers now and then, until it has killed enough or is told to stop."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted, self.killed, self.over = wanted, 0, threading.Event()
        self.rng = np.random.default_rng(1)

    def run(self) -> None:
        while not (self.over.is_set() or self.done):
            running = [p for p in psutil.Process().children() if "popen_loky" in command(p)]
            if running:
                os.kill(int(self.rng.choice([p.pid for p in running])), signal.SIGKILL)
                self.killed += 1
            time.sleep(self.rng.uniform(0.0, 0.3))

    @property
    def done(self) -> bool:
        return self.killed >= self.wanted

    def __enter__(self) -> "Killer":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join()


@pytest.mark.rest
def test_killed_workers_are_replaced_and_their_points_repeated(trials, figure) -> None:
    options = {**SMALL, "budget": bilevo.Budget(lower_max=60, upper_max=4000), "max_evals": 20_000}

    def stop_when_done(result: bilevo.Result) -> None:
        if killer.done:
            raise StopIteration

    with Killer(trials(30, 300)) as killer:
        result = bilevo.minimize(
            problem(2, slow_f), workers=2, retries=10_000, callback=stop_when_done, **options
        )
    assert killer.done and result.failures == 0

    def stop_there(so_far: bilevo.Result) -> None:
        if so_far.nit == result.nit:
            raise StopIteration

    assert course(result) == course(bilevo.minimize(problem(2), callback=stop_there, **options))
    figure(6, killer.killed, "kills of workers")


@pytest.mark.rest
def test_killed_workers_of_a_solver_are_replaced_and_their_steps_repeated(trials, figure) -> None:
    options: dict[str, Any] = {"method": "trust-region", "max_evals": 400}
    runs = []
    with Killer(trials(10, 100)) as killer:
        while not killer.done:
            walk = solvers.problem(SlowSteady())
            seed = len(runs)
            runs.append(bilevo.minimize(walk, workers=2, retries=10_000, rng=seed, **options))
    for seed, result in enumerate(runs):
        calm = bilevo.minimize(solvers.problem(Steady()), rng=seed, **options)
        assert result.failures == 0 and course(result) == course(calm)
    figure(6, killer.killed, "kills of workers while trust-region drives a solver")


def test_a_worker_that_dies_while_it_starts_is_charged_to_nobody() -> None:
    killed = 0

    def kill_starting(pool: WorkerPool) -> None:
        nonlocal killed
        for worker in pool._workers:
            if killed < 3 and not worker.ready and not worker.dead:
                os.kill(worker.process.pid, signal.SIGKILL)
                worker.process.join()
                killed += 1

    class Harassed(WorkerPool):
        def _feed(self):
            super()._feed()
            kill_starting(self)

    pool = Harassed(2, Carrier(problem()))
    evaluate = Evaluator(problem(), workers=pool)
    objective = evaluate(Batch(Level.LOWER, np.zeros((4, 1)), np.ones((4, 1)))).objective
    pool.close()
    assert killed == 3 and objective.tolist() == [1.0] * 4


@pytest.mark.rest
def test_a_point_that_kills_its_workers_fails_after_its_retries(tmp_path: Path) -> None:
    def deadly(x, y):
        if y[0] > 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return f(x, y)

    options = {**SMALL, "max_evals": 40, "workers": 2}
    with pytest.raises(RuntimeError, match="signal 9"):
        bilevo.minimize(problem(lower=deadly), **options)
    result = bilevo.minimize(
        problem(lower=deadly), on_failure="worst", retries=1, run_dir=tmp_path, **options
    )
    assert result.failures == len(result.failed_points) > 0
    assert all(point.y[0] > 8 and "WorkerDied" in point.error for point in result.failed_points)
    assert course(bilevo.load(tmp_path)) == course(result)


def sleep_long(x, y):
    time.sleep(1000)


def busy_loop(x, y):
    while True:
        pass


def deaf(x, y):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.run(["sleep", f"{SLEEP}"], check=True)


@pytest.mark.rest
@pytest.mark.parametrize("hang", [sleep_long, busy_loop, deaf])
def test_a_hanging_evaluation_is_ended_and_leaves_nothing_behind(
    hang, tmp_path, trials, figure
) -> None:
    worst = trials(9, 8)

    def lower(x, y):
        return hang(x, y) if y[0] > worst else f(x, y)

    options = {**SMALL, "workers": 2, "timeout": 0.2}
    result = bilevo.minimize(problem(lower=lower), on_failure="worst", run_dir=tmp_path, **options)
    assert 0 < result.failures == sum(point.y[0] > worst for point in result.failed_points)
    assert all(point.error.startswith("TimeoutError") for point in result.failed_points)
    mine = psutil.Process().children(recursive=True)
    asleep = [p for p in psutil.process_iter() if command(p) == f"sleep {SLEEP}"]
    assert left_after(2, [*asleep, *(p for p in mine if "popen_loky" in command(p))]) == []
    ranked_last = problem(lower=lambda x, y: float("nan") if y[0] > worst else f(x, y))
    calm = bilevo.minimize(ranked_last, **SMALL)
    assert (result.F, result.nfev, result.x) == (calm.F, calm.nfev, calm.x)
    assert course(bilevo.load(tmp_path)) == course(result)
    figure(10, result.failures, "hanging evaluations ended")


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_a_timeout_raises_by_default() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
        bilevo.minimize(problem(lower=sleep_long), workers=2, timeout=0.2)


def test_a_timeout_needs_processes_of_ours() -> None:
    with ThreadPoolExecutor(1) as threads:
        for workers in (None, threads):
            with pytest.raises(ValueError, match=r"timeout=1 needs processes.*workers=1"):
                small(None, workers=workers, timeout=1)


@pytest.mark.parametrize("workers", [0, -2, 1.5, True, "many", object()])
def test_wrong_workers_are_refused(workers) -> None:
    with pytest.raises(ValueError, match="workers must be"):
        small(None, workers=workers)


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"retries": 0.5}, {"timeout": 0, "workers": 1}])
def test_wrong_retries_and_timeouts_are_refused(wrong, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be"):
        small(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


class PeculiarError(Exception):
    """An exception that cannot be unpickled: it wants two arguments."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def test_an_exception_in_a_worker_comes_out_with_its_traceback() -> None:
    def peculiar(x, y):
        raise PeculiarError("smoke", "the simulator")

    with pytest.raises(ZeroDivisionError) as caught:
        bilevo.minimize(problem(lower=lambda x, y: 1 // 0), workers=2)
    assert "1 // 0" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match="PeculiarError: smoke in the simulator") as caught:
        bilevo.minimize(problem(lower=peculiar), workers=2)
    assert "in peculiar" in "".join(caught.value.__notes__)


def test_wrong_returns_raise_bad_value_from_workers_too() -> None:
    for lower in (lambda x, y: "text", lambda x, y: np.zeros(3)):
        with pytest.raises(bilevo.BadValue, match="lower"):
            bilevo.minimize(problem(lower=lower), workers=2, on_failure="worst", retries=3)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("error", [StopIteration, UnspeakableError, MemoryError, RecursionError])
def test_any_exception_is_raised_or_forgiven(error) -> None:
    def failing(x, y):
        if y[0] > 5:
            raise error
        return f(x, y)

    with pytest.raises(error):
        bilevo.minimize(problem(lower=failing), **SMALL)
    result = bilevo.minimize(problem(lower=failing), on_failure="worst", **SMALL)
    assert result.failures > 0 and result.failed_points[0].error.startswith(error.__name__)


def test_functions_in_workers_may_start_processes(tmp_path: Path) -> None:
    def lower(x, y):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.001,))
        child.start()
        child.join()
        return f(x, y)

    result = bilevo.minimize(problem(lower=lower), workers=2, **SMALL)
    assert course(result) == course(small(None))


def test_a_worker_that_dies_with_a_child_alive_is_noticed() -> None:
    def lower(x, y):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="signal 9"):
        bilevo.minimize(problem(lower=lower), workers=1)


def test_points_are_read_only_in_workers_too() -> None:
    def writing(x, y):
        y[0] = 0.0
        return 0.0

    with pytest.raises(ValueError, match="read-only"):
        bilevo.minimize(problem(lower=writing), workers=2)


def test_functions_that_cannot_be_unpacked_get_a_clear_error(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "only_here.py").write_text("def f(x, y):\n    return 0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    only_here = importlib.import_module("only_here")
    monkeypatch.undo()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        for workers in (2, executor):
            with pytest.raises(ValueError, match=r"a worker cannot load the problem.*only_here"):
                bilevo.minimize(problem(lower=only_here.f), workers=workers, on_failure="worst")


def test_leaving_the_process_from_a_worker_is_a_failure_like_others() -> None:
    def leaving(x, y):
        sys.exit("enough")

    with pytest.raises(RuntimeError, match="SystemExit: enough"):
        bilevo.minimize(problem(lower=leaving), workers=2)


def test_functions_that_cannot_travel_get_a_clear_error() -> None:
    lock = threading.Lock()

    def locked(x, y):
        with lock:
            return 0.0

    with pytest.raises(ValueError, match=r"cannot be sent to workers.*make those inside"):
        bilevo.minimize(problem(lower=locked), workers=2)


def test_a_script_without_a_main_guard_works(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import bilevo\n"
        "scale = 2.0\n"
        "result = bilevo.minimize(lambda x, y: scale * float(x @ x), lambda x, y: float(y @ y),\n"
        "                         [(-5, 10)], [(-5, 10)], max_evals=60, workers=2)\n"
        "print('started'); print(result.nfev)\n"
    )
    shown = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["started", str(int(shown.stdout.split()[1]))]


def test_what_workers_print_does_not_reach_standard_output(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import bilevo\n"
        "def f(x, y):\n    print('noise')\n    return float(y @ y)\n"
        "problem = bilevo.Problem(lambda x, y: float(x @ x), f, [(-5, 10)], [(-5, 10)])\n"
    )
    command = [sys.executable, "-m", "bilevo", "solve", "noisy:problem", "--json", "--max-evals"]
    command += ["60", "--workers", "2"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 1  # the limit ended it
    assert json.loads(shown.stdout)["nfev"] <= 60 and "noise" in shown.stderr


def test_retries_repeat_what_failed_and_count_it_once(tmp_path: Path) -> None:
    attempts: dict[bytes, int] = {}

    def moody(x, y):
        key = x.tobytes() + y.tobytes()
        attempts[key] = attempts.get(key, 0) + 1
        if attempts[key] < 3:
            raise ConnectionError("try again")
        return f(x, y)

    with ThreadPoolExecutor(2) as threads:
        for workers in (None, threads):
            attempts.clear()
            result = small(None, workers=workers)
            moody_one = bilevo.minimize(problem(lower=moody), retries=2, workers=workers, **SMALL)
            assert course(moody_one) == course(result)
            assert sum(attempts.values()) == result.nfev_lower + 2 * len(attempts)
    attempts.clear()
    with pytest.raises(ConnectionError, match="try again"):
        bilevo.minimize(problem(lower=moody), retries=1, **SMALL)


def test_an_executors_own_failure_is_reported_as_it_is() -> None:
    def deadly(x, y):
        os._exit(1)

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor, pytest.raises(BrokenProcessPool):
        bilevo.minimize(problem(lower=deadly), workers=executor, on_failure="worst", retries=5)


def test_a_users_executor_stays_open_and_loses_what_is_not_needed() -> None:
    class Slow(ThreadPoolExecutor):
        futures: list[Future]

        def submit(self, *args, **kwargs):
            self.futures.append(super().submit(*args, **kwargs))
            return self.futures[-1]

    def failing(x, y):
        time.sleep(0.01)
        raise ArithmeticError

    with Slow(1) as executor:
        executor.futures = []
        with pytest.raises(ArithmeticError):
            bilevo.minimize(problem(lower=failing), method="drc-cma-es", workers=executor)
        assert executor.futures[-1].cancelled()
        assert executor.submit(int, "3").result() == 3


@pytest.mark.filterwarnings("error")
def test_cheap_objectives_get_a_warning_and_dear_ones_do_not() -> None:
    with ThreadPoolExecutor(4) as threads:
        with pytest.warns(UserWarning, match=r"workers slow this run down: an evaluation") as told:
            small(None, max_evals=150, workers=threads)
        assert told[0].filename.endswith("crashes.py")  # the line that calls minimize
        bilevo.minimize(problem(lower=slow_f), workers=threads, **{**SMALL, "max_evals": 200})


def test_time_runs_out_while_workers_work() -> None:
    def forever(x, y):
        time.sleep(1000)

    result = bilevo.minimize(problem(lower=forever), workers=2, max_time=1.0)
    assert (result.status, result.nfev) == ("max_time", 0)


def test_vectorized_pieces_are_the_same_with_any_executor() -> None:
    def spy(sizes):
        def lower(x, y):
            sizes.append(len(x))
            return ((y - x) ** 2).sum(axis=1)

        return lower

    def upper(x, y):
        return (x**2).sum(axis=1)

    runs = []
    with ThreadPoolExecutor(3) as threads:
        for workers in (None, threads):
            sizes: list[int] = []
            runs.append(sizes)
            bilevo.minimize(
                upper, spy(sizes), [(-5, 10)] * 5, [(-5, 10)] * 5, vectorized=True, max_evals=500,
                workers=workers, method="bl-cma-es",
            )  # fmt: skip
    assert sorted(runs[0]) == sorted(runs[1]) and max(runs[0]) == 64
