"""Campaigns: runs and their rows, whoever makes them, and what a kill leaves."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import islice
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest

from bilevo import Problem, problems
from bilevo.lab import campaign, store, workers
from bilevo.lab.campaign import Task, carry_out, complete
from bilevo.lab.checks import checked, verified
from bilevo.lab.plans import Experiment, Form, Plan, Run
from bilevo.lab.progress import duration, expected_cost, longest_first, with_progress

PLAN = Plan((Experiment(("bl-cma-es",), ("smd10", "smd9"), runs=4),))
TASKS = campaign.tasks_of(PLAN)


def task(problem: str, method: str, number: int = 0, **values) -> Task:
    return Task(Run(problem, 2, 3, method, number, **values), Form(method))


def made_up(task: Task, **values) -> store.Row:
    """A row as its run might have given it: the same whenever it is made."""
    number = task.run.seed % 1000
    given = {"F": number / 7, "nfev_upper": number, "status": "target", "error": ""}
    return {**campaign.failed(task, ""), **given, **values}


def troubled(task: Task) -> store.Row:
    """One of four runs dies, one hangs, one raises."""
    if task.run.number == 1:
        os._exit(3)
    if task.run.number == 2:
        time.sleep(60)
    if task.run.number == 3:
        return carry_out(replace(task, run=replace(task.run, problem="smd99")))
    return made_up(task)


def telling_what_is_loaded(task: Task) -> store.Row:
    costly = ("scipy.optimize", "sklearn.cluster", "sklearn.neighbors")
    return made_up(task, error=" ".join(name for name in costly if name in sys.modules))


def slow(task: Task) -> store.Row:
    time.sleep(0.2)
    return made_up(task)


def run_slowly(folder: str) -> None:
    for _ in complete(Path(folder), PLAN, lambda tasks: workers.by_processes(tasks, 1, slow)):
        pass


def finish(folder: Path, make=made_up, plan=PLAN, **options) -> list[Task]:
    """Complete a campaign; the tasks that were made for it."""
    made: list[Task] = []
    list(
        complete(folder, plan, lambda tasks: (made.append(t) or make(t) for t in tasks), **options)
    )
    return made


def rows(folder: Path) -> pl.DataFrame:
    return store.runs(folder).drop("time", "processor_time", "machine", "made")


def same(one: pl.DataFrame, two: pl.DataFrame) -> bool:
    return one.equals(two, null_equal=True)


def test_a_row_says_what_a_run_gave_and_what_is_true() -> None:
    row = carry_out(task("smd4", "drc-cma-es", 1))
    assert row["status"] == "target" and row["error"] == ""
    assert row["Acc_u"] == abs(row["F"]) < 1e-6 and row["Acc_l"] == abs(row["f"])
    assert row["verified"] == abs(row["F_verified"]) != row["Acc_u"]
    assert row["time"] > 0 and row["processor_time"] > 0
    assert row["follower_gap"] >= 0 and row["version"] and row["machine"]
    assert 0 < row["near"] < row["nfev_upper"] + row["nfev_lower"]
    assert row["nit"] == len(row["history"]["generation"]) == len(row["history"]["executions"])
    assert len(row["x"]) == 2 and len(row["y"]) == 3 and row["kernel"] in ("numpy", "numba")


def test_a_row_names_the_kernels_of_openblas_if_they_were_chosen(monkeypatch) -> None:
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert "OPENBLAS" not in carry_out(task("smd1", "bl-cma-es", budget=100))["machine"]
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    row = carry_out(task("smd1", "bl-cma-es", budget=100))
    assert row["machine"].endswith(", OPENBLAS_CORETYPE Haswell")


def test_a_budget_ends_a_run_and_a_target_need_not() -> None:
    short = carry_out(task("smd1", "bl-cma-es", budget=500))
    assert short["status"] == "max_evals" and short["nfev_upper"] + short["nfev_lower"] <= 500
    to_target = carry_out(task("smd1", "bl-cma-es"))
    beyond = carry_out(task("smd1", "bl-cma-es", target=False))
    assert to_target["status"] == "target" and beyond["status"] == "stagnation"
    assert beyond["nfev_lower"] > to_target["nfev_lower"] and beyond["Acc_u"] < 1e-6


def pair(problem: Problem, x: list[float], y: list[float]) -> tuple:
    """What `checked` takes, and F."""
    F, _, f, _ = problem.evaluate(x, y)
    return (problem, np.array(x), np.array(y), float(f[0])), float(F[0])


@pytest.mark.parametrize(("name", "known"), [("smd1", True), ("smd10", False)])
def test_the_follower_is_checked_by_its_known_answer_or_by_another_solver(name, known) -> None:
    problem = problems.get(name)
    assert (problem.response is not None) == known
    claimed, F = pair(problem, [0.5, 0.5], [0.1, 0.2, 0.3])
    found = checked(*claimed)
    assert 0 < found.follower_gap < math.inf and found.F_verified != F
    assert found.violation_verified == 0


def test_a_leader_who_breaks_its_constraints_where_the_follower_answers_is_told() -> None:
    problem = Problem(
        lambda x, y: float(x[0]),
        lambda x, y: float((y[0] - x[0]) ** 2),
        [(0, 1)],
        [(0, 1)],
        G=lambda x, y: [y[0] - 0.5],
    )
    claimed, _ = pair(problem, [0.75], [0.25])  # the follower would answer 0.75
    assert checked(*claimed).violation_verified == pytest.approx(0.25, abs=1e-6)


def test_a_follower_that_breaks_its_constraints_has_an_endless_gap() -> None:
    problem = problems.get("smd9")
    claimed, _ = pair(problem, [0.0, 0.0], [0.6, 0.5, 0.0])
    assert (problem.evaluate(*claimed[1:3])[3] > 0).any() and problem.response is not None
    assert checked(*claimed).follower_gap == math.inf


def test_a_row_from_elsewhere_is_verified_by_its_x_and_y() -> None:
    ours = carry_out(task("smd1", "bl-cma-es", budget=2000))
    theirs = {**ours, "F_verified": math.nan, "verified": math.nan, "follower_gap": math.nan}
    assert verified(theirs) == ours
    assert verified({**theirs, "x": []})["x"] == []
    with pytest.raises(ValueError, match=r"x = .* of smd1 is outside its bounds"):
        verified({**theirs, "x": [99.0, 0.0]})


def test_what_raises_is_a_row_with_its_error_on_one_line() -> None:
    row = carry_out(task("smd99", "bl-cma-es"))
    assert row["status"] == "failed" and math.isnan(row["F"]) and row["nfev_lower"] == 0
    assert row["error"].startswith("ValueError: unknown problem 'smd99'")
    assert row["error"].endswith(")") and "(__init__.py:" in row["error"]
    late = carry_out(replace(task("smd1", "nblea"), max_time=0.01))
    assert late["status"] == "failed" and late["error"] == "more than 0.01 s"
    assert len(campaign.failed(TASKS[0], "a\nb " * 500)["error"]) <= 300


@pytest.mark.rest
def test_a_campaign_that_was_killed_goes_on_to_the_same_rows(tmp_path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole)
    code = f"import test_campaign as t; t.run_slowly({str(killed)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(campaign.stored_runs(killed)) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = set(campaign.stored_runs(killed))
    assert 2 <= len(done) < len(TASKS)
    assert {made.run for made in finish(killed)} == {t.run for t in TASKS} - done
    assert same(rows(killed), rows(whole))


def test_runs_are_made_again_only_when_asked_for(tmp_path) -> None:
    finish(tmp_path, lambda t: made_up(t) if t.run.number else campaign.failed(t, "x"))
    assert finish(tmp_path) == []
    assert [t.run.number for t in finish(tmp_path, again="failed")] == [0, 0]
    assert len(finish(tmp_path, again="all")) == len(TASKS)
    assert len(store.runs(tmp_path)) == len(TASKS)


def test_a_form_that_changed_under_its_name_is_refused(tmp_path) -> None:
    fast = Form("drc-de", (("cooperation", False),))
    plan = Plan((Experiment(("fast",), ("smd1",), runs=1),), forms={"fast": fast})
    finish(tmp_path, plan=plan)
    assert finish(tmp_path, plan=plan) == []
    slow = replace(plan, forms={"fast": Form("drc-de")})
    elsewhere = replace(slow, experiments=(Experiment(("fast",), ("smd2",), runs=1),))
    for other in (slow, elsewhere):
        with pytest.raises(ValueError, match="stored runs of fast are of drc-de: cooperation=Fal"):
            finish(tmp_path, plan=other)
    assert len(finish(tmp_path, plan=slow, again="all")) == 1
    assert finish(tmp_path, plan=slow) == []


def test_another_revision_of_a_method_is_refused(tmp_path) -> None:
    revision = Form("bl-cma-es").algorithm().revision
    finish(tmp_path, lambda t: made_up(t, revision=revision))
    assert finish(tmp_path) == []
    finish(tmp_path, lambda t: made_up(t, revision=revision - 1), again="all")
    with pytest.raises(ValueError, match=f"revision {revision - 1}, and not of bl-cma-es, revis"):
        finish(tmp_path)


def test_making_all_again_loses_nothing_and_goes_on_where_it_was_killed(tmp_path) -> None:
    finish(tmp_path)

    def new(task: Task) -> store.Row:
        return made_up(task, F=-1.0)

    begun = complete(tmp_path, PLAN, lambda tasks: map(new, tasks), "all")
    assert len(list(islice(begun, 3))) == 3
    begun.close()  # killed
    assert sorted(store.runs(tmp_path)["F"] == -1.0) == [False] * 5 + [True] * 3
    assert len(finish(tmp_path, new, again="all")) == len(TASKS) - 3
    assert (store.runs(tmp_path)["F"] == -1.0).all()
    assert len(finish(tmp_path, new, again="all")) == len(TASKS)  # that was done: once more, all


def test_settings_that_are_none_are_named(tmp_path) -> None:
    for content in ("[]", "{", '{"forms": 3}'):
        (tmp_path / "settings.json").write_text(content)
        with pytest.raises(ValueError, match=r"settings\.json"):
            finish(tmp_path)


def test_another_plan_adds_to_the_folder(tmp_path) -> None:
    finish(tmp_path)
    more = Plan((Experiment(("nblea",), ("smd9",), runs=1),))
    assert [t.run.method for t in finish(tmp_path, plan=more)] == ["nblea"]
    assert len(store.runs(tmp_path)) == len(TASKS) + 1


def test_rows_can_be_read_while_a_campaign_runs(tmp_path) -> None:
    seen = []
    for _ in complete(tmp_path, PLAN, lambda tasks: map(made_up, tasks)):
        seen.append(len(store.runs(tmp_path)))
    assert seen == list(range(1, len(TASKS) + 1))


def test_runs_do_not_load_costly_libraries_one_by_one() -> None:
    (row,) = workers.by_processes(TASKS[:1], 1, telling_what_is_loaded)
    assert row["error"] == "scipy.optimize sklearn.cluster sklearn.neighbors"


def test_runs_that_raise_die_or_hang_are_rows_and_end_nothing() -> None:
    tasks = [replace(task("smd1", "bl-cma-es", number), max_time=1) for number in range(5)]
    found = {row["number"]: row for row in workers.by_processes(tasks, 2, troubled)}
    assert [found[i]["status"] == "failed" for i in range(5)] == [False, True, True, True, False]
    assert found[1]["error"] == "process ended: 3"
    assert found[2]["error"] == "more than 1 s"
    assert found[3]["error"].startswith("ValueError: unknown problem 'smd99'")


def test_a_script_that_makes_a_campaign_is_not_run_again_by_its_runs(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from bilevo.lab import campaign, plans, workers\n"
        "from pathlib import Path\n"
        "print('here')\n"
        "plan = plans.Plan((plans.Experiment(('nblea',), ('smd1',), runs=2, max_evals=(100,)),))\n"
        "make = workers.executor('processes', 2)\n"
        "print(*(row['status'] for row in campaign.complete(Path('out'), plan, make)))\n"
    )
    words = [sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "here\nmax_evals max_evals\n"


def die_while_answering(task: Task) -> store.Row:
    """Send a part of a row that is longer than a pipe holds, and die."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    threading.Timer(0.2, lambda: os._exit(9)).start()
    return {**made_up(task), "error": "x" * 10_000_000}


def test_a_run_that_dies_while_it_answers_is_a_row(monkeypatch) -> None:
    recv = workers.Connection.recv

    def slowly(self):
        deadline = time.monotonic() + 10
        while active_children() and time.monotonic() < deadline:
            time.sleep(0.01)  # the child has begun to send, and dies
        return recv(self)

    monkeypatch.setattr(workers.Connection, "recv", slowly)
    (row,) = workers.by_processes([task("smd1", "bl-cma-es")], 1, die_while_answering)
    assert row["status"] == "failed" and row["error"] == "process ended: 9"


def linger(task: Task) -> store.Row:
    Path(os.environ["LINGER"]).write_text(str(os.getpid()))
    time.sleep(600)
    return made_up(task)


@pytest.mark.rest
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_runs_end_with_the_campaign_that_made_them(sign, tmp_path) -> None:
    told = tmp_path / "pid"
    code = "import test_campaign as t; list(t.workers.by_processes(t.TASKS[:1], 1, t.linger))"
    words = [sys.executable, "-c", code]
    environment = {**os.environ, "LINGER": str(told)}
    process = subprocess.Popen(words, cwd=Path(__file__).parent, env=environment)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (told.exists() and told.read_text()):
        time.sleep(0.05)
    child = int(told.read_text())
    assert psutil.pid_exists(child)
    process.send_signal(sign)
    process.wait()
    psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=30)
    assert not psutil.pid_exists(child)


SMALL = Plan((Experiment(("drc-cma-es", "nblea"), ("smd1", "tp1"), runs=2, max_evals=(300,)),))


@pytest.fixture(scope="module")
def by_processes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    list(complete(folder, SMALL, workers.executor("processes", 2)))
    return folder


@pytest.mark.cluster
def test_a_dask_cluster_gives_the_same_rows(tmp_path, by_processes) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        address = client.scheduler.address.removeprefix("tcp://")
        list(complete(tmp_path, SMALL, workers.executor(f"dask://{address}")))
    assert same(rows(tmp_path), rows(by_processes)) and len(rows(tmp_path)) == 8


@pytest.mark.cluster
def test_a_worker_that_dies_with_its_run_is_a_failed_row_on_dask_too(tmp_path, monkeypatch) -> None:
    """A problem whose objective ends the process: Dask gives the run up after some workers."""
    (tmp_path / "deadly.py").write_text(
        "import os, bilevo\n"
        "def problem():\n"
        "    end = lambda x, y: os._exit(3)\n"
        "    return bilevo.Problem(end, end, [(0, 1)], [(0, 1)])\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    tasks = [
        task("smd1", "bl-cma-es", budget=100),
        Task(Run("deadly:problem", 1, 1, "nblea", 0), Form("nblea")),
    ]
    found = {row["problem"]: row for row in workers.executor("dask", 1)(tasks)}
    assert found["smd1"]["status"] == "max_evals"
    assert found["deadly:problem"]["error"].startswith("KilledWorker")


@pytest.mark.cluster
def test_ray_gives_the_same_rows(tmp_path, by_processes) -> None:
    list(complete(tmp_path, SMALL, workers.executor("ray", 2)))
    assert same(rows(tmp_path), rows(by_processes))


@pytest.mark.cluster
def test_a_ray_cluster_that_runs_already_is_used(monkeypatch, tmp_path, by_processes) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        list(complete(tmp_path, SMALL, workers.executor("ray")))
        assert not ray.is_initialized()
    finally:
        cluster.shutdown()
    assert same(rows(tmp_path), rows(by_processes))


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown executor 'slurm'; known are processes, dask"):
        workers.executor("slurm")


def test_the_longest_runs_come_first() -> None:
    short, long = task("smd9", "nblea"), task("smd6", "bleaq2")
    long = replace(long, run=replace(long.run, m=10, n=10))
    assert longest_first([short, long]) == [long, short]
    assert expected_cost(long.run) == 100_000
    assert expected_cost(replace(long.run, budget=1000)) == 1000
    assert expected_cost(Run("mine:own", 2, 1, "mine", 0)) == 15_000


def test_progress_tells_the_time_left_and_failures_at_once(capsys, monkeypatch) -> None:
    monkeypatch.setattr("bilevo.lab.progress.EVERY", 0.0)
    made = [made_up(t) for t in TASKS[:-1]] + [campaign.failed(TASKS[-1], "no luck")]
    assert list(with_progress(made, TASKS)) == made
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("1 of 8 runs, about ") and told[0].endswith(" left")
    assert told[-1] == "failed: smd9 (2,3) bl-cma-es run 3: no luck"
    list(with_progress(made[:-1], TASKS, show=False))
    assert capsys.readouterr().err == ""
    assert [duration(s) for s in (40, 720, 11160)] == ["40 s", "12 min", "3.1 h"]
