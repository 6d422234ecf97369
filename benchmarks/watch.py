"""How fast `bilevo watch` is, and how much memory it takes, over many runs.

    python -m benchmarks.watch [--runs 200] [--stored 2000] [--evaluations 5000]

It makes run directories and a campaign in a temporary directory (nobody made these runs, but their
files are like real ones), starts the command over them, and prints

- the seconds until the command has printed its address, from there to the page with the list of all
  runs, and until all of them are read,
- the seconds from a new evaluation in a journal to the page's event about it: the largest of ten,
  while two other pages ask for the campaign's and the run's details as often as the page does,
- the largest memory that the process took (resident, from /proc),
- and the same seconds for one run of a million evaluations.

Beside each time stand the seconds of processor time that the command took meanwhile; on a machine
that has other work to do, only these say something. The load of the machine is printed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bilevo import problems, registry
from bilevo.core.budget import FullBudget
from bilevo.core.problem import Spec
from bilevo.core.request import Incumbent
from bilevo.core.result import Generation
from bilevo.lab import store
from bilevo.run import encoding, journal
from bilevo.run.header import identity
from bilevo.run.journal import JournalFile, JournalWriter, Record, RecordKind
from bilevo.run.lock import DirectoryLock
from bilevo.run.record import RunRecord
from bilevo.run.stored import JOURNAL

SIZE, TASKS = 5, 20  # the variables of each level, and the tasks of a generation
GENERATIONS = 100  # of each run
METHODS = ("drc-cma-es", "bl-cma-es", "drc-plus", "nested-cma-es")
NEW = 10  # how many new evaluations are timed


def write_run(folder: Path, seed: int, evaluations: int) -> None:
    """Write the journal of a run, with a record for each evaluation."""
    folder.mkdir(parents=True)
    problem = problems.get("smd1", SIZE, SIZE)
    algorithm = registry.get_method("drc-cma-es")
    budget = FullBudget.for_size(SIZE, SIZE)
    spec = Spec(SIZE, SIZE, seed, budget, np.full(2 * SIZE, 0.3))
    DirectoryLock(folder).release()
    writer = JournalWriter.create(folder / JOURNAL, identity(problem, algorithm, spec))
    rng, run, each = np.random.default_rng(seed), RunRecord(), evaluations // GENERATIONS
    for i in range(GENERATIONS):
        for k in range(each):
            number = i * each + k
            values = rng.random(1).tobytes()
            writer.append(Record(RecordKind.VALUES, int(k > 9), 1, number, 0, number / 50, values))
        F = 10.0 / (i + 1)
        run.best = Incumbent(rng.random(SIZE), rng.random(SIZE), F, F, 0.0)
        made = Generation(10 * i, each * i, F, F, 0.0, tuple(range(TASKS)), (True,) * TASKS)
        run.history.add(made)
        writer.append(encoding.best(run, i * each, i * each / 50))
        writer.append(encoding.generation(run, i * each, i * each / 50))
    writer.close()


def stored_row(number: int) -> dict[str, Any]:
    """Return the row of a stored run, with its history."""
    rng = np.random.default_rng(number)
    method, problem = METHODS[number % len(METHODS)], f"smd{number // len(METHODS) % 12 + 1}"
    F = np.minimum.accumulate(10.0 ** -rng.uniform(0, 8, GENERATIONS))
    upper, lower = (k * np.arange(1, GENERATIONS + 1) for k in (10, 200))
    history = {
        "generation": list(range(1, GENERATIONS + 1)),
        **{"nfev_upper": upper.tolist(), "nfev_lower": lower.tolist()},
        **{"F": F.tolist(), "f": F.tolist(), "violation": [0.0] * GENERATIONS},
        "executions": rng.integers(1, 9, (GENERATIONS, TASKS)).tolist(),
        "survived": (rng.random((GENERATIONS, TASKS)) < 0.5).tolist(),
    }
    numbers = dict.fromkeys(("F", "f", "Acc_u", "Acc_l", "F_verified", "verified"), float(F[-1]))
    return {
        **{"problem": problem, "m": 2, "n": 3, "method": method, "budget": 0, "target": True},
        **{"number": number // (12 * len(METHODS)), "seed": number, **numbers, "violation": 0.0},
        **{"violation_verified": 0.0, "follower_gap": 0.0, "F_star": 0.0, "f_star": 0.0},
        **{"nfev_upper": int(upper[-1]), "nfev_lower": int(lower[-1]), "nit": GENERATIONS},
        **{"near": 100, "time": 1.0, "status": "target", "error": "", "form": method},
        **{"made": f"2026-01-01T00:00:{number % 60:02d}+00:00", "x": [0.0] * 2, "y": [0.0] * 3},
        "history": history,
    }


def write_campaign(folder: Path, runs: int) -> None:
    """Store runs as a campaign does: most in merged files, the latest in one file each."""
    single = min(runs, 200)
    with store.Store(folder) as kept:
        for start in range(0, runs - single, 256):
            rows = map(stored_row, range(start, min(start + 256, runs - single)))
            kept.add(store.frame(rows))
        for number in range(runs - single, runs):
            kept.add(store.frame([stored_row(number)]))
    methods, suite = list(METHODS), [f"smd{i}" for i in range(1, 13)]
    part = {"methods": methods, "problems": suite, "sizes": [[2, 3]], "runs": runs // 48 + 9}
    plan = {"experiments": [{**part, "max_evals": [0], "target": True}], "forms": {}}
    (folder / "settings.json").write_text(json.dumps(plan))


@contextmanager
def served(*paths: Path) -> Iterator[tuple[str, int, float]]:
    """Start the command; yield its address, the id of its process, and the seconds it took."""
    began = perf_counter()
    words = [sys.executable, "-m", "bilevo", "watch", *map(str, paths), "--no-browser"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        yield address, process.pid, perf_counter() - began
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def get(address: str, path: str = "") -> bytes:
    parts = urlsplit(address)
    link = HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    link.request("GET", parts.path + path)
    content = link.getresponse().read()
    link.close()
    return content


def events(address: str) -> Iterator[dict[str, Any]]:
    """Yield the server's events as they come."""
    parts = urlsplit(address)
    link = HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    link.request("GET", f"{parts.path}events")
    answer = link.getresponse()
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def first_view(address: str, count: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows when all are listed, and again when all are read to their ends."""
    get(address)
    rows: dict[str, dict[str, Any]] = {}
    listed = False
    for event in events(address):
        rows |= {row["id"]: row for row in event["rows"]}
        if len(rows) == count and not listed:
            listed = True
            yield list(rows.values())
        if listed and event["settled"]:
            yield list(rows.values())
            return


def updates(address: str, folder: Path, id: str, campaign: str | None) -> float:
    """Return the longest time from a new evaluation to its event, while others look, too."""
    done = Event()

    def look() -> None:
        while not done.wait(1.0):
            get(address, f"detail/{campaign}")
            get(address, f"detail/{id}")

    looking = Thread(target=look, daemon=True)
    if campaign is not None:
        looking.start()
    *_, (_, end) = JournalFile(folder / JOURNAL).records()
    writer, longest = JournalWriter(folder / JOURNAL, end), 0.0
    told = events(address)
    seen = sum(_evaluations(row) for row in next(told)["rows"] if row["id"] == id)
    for i in range(NEW):
        sleep(0.3 + 0.07 * i)
        began, seen = perf_counter(), seen + 1
        values = np.zeros(1).tobytes()
        writer.append(Record(RecordKind.VALUES, 1, 1, 10**6 + i, 0, 10**4 + i, values))
        while all(_evaluations(row) != seen for row in next(told)["rows"] if row["id"] == id):
            pass
        longest = max(longest, perf_counter() - began)
    writer.close()
    done.set()
    if campaign is not None:
        looking.join()
    return longest


def _evaluations(row: dict[str, Any]) -> int:
    return int(row.get("nfev_upper", 0)) + int(row.get("nfev_lower", 0))


def most_memory(process: int) -> float:
    """Return the largest resident memory of a process so far, in megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--stored", type=int, default=2000)
    parser.add_argument("--evaluations", type=int, default=5000)
    given = parser.parse_args()
    journal.SYNC_EVERY = 1e9  # files are made faster so
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for i in range(given.runs):
            write_run(folder / f"many/run-{i:03d}", i, given.evaluations)
        write_campaign(folder / "many/campaign", given.stored)
        write_run(folder / "long/run", 1, 10**6)
        measure(folder / "many", given.runs + 1, f"{given.runs} runs, {given.stored} stored runs")
        measure(folder / "long", 1, "one run of 1,000,000 evaluations")


def measure(folder: Path, count: int, what: str) -> None:
    """Watch a folder, and print how long everything takes."""
    print(f"{what} (load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors):")
    with served(folder) as (address, process, started):
        say(started, cpu_time(process), "from the command to its address")
        stamp = perf_counter(), cpu_time(process)
        views = first_view(address, count)
        rows = next(views)
        say(*since(stamp, process), f"from the request to the page with all {count} lines")
        rows = next(views)
        say(*since(stamp, process), "until all are read to their ends")
        run = next(row for row in rows if row["kind"] == "run")
        campaign = next((row["id"] for row in rows if row["kind"] == "campaign"), None)
        if campaign is not None:
            stamp = perf_counter(), cpu_time(process)
            get(address, f"detail/{campaign}")
            say(*since(stamp, process), "the campaign's tables and curves, the first time")
        before = cpu_time(process)
        latest = updates(address, Path(run["path"]), run["id"], campaign)
        spent = cpu_time(process) - before
        say(latest, spent, f"from a new evaluation to its event, the longest of {NEW}")
        points = len(json.loads(get(address, f"detail/{run['id']}"))["pairs"]["nfev"])
        print(f"  {most_memory(process):6.0f} MB             the most memory")
        print(f"  {points:6d}                points in the charts of a run", flush=True)


def say(seconds: float, spent: float, what: str) -> None:
    print(f"  {seconds:6.2f} s ({spent:5.2f} s cpu)  {what}", flush=True)


def since(stamp: tuple[float, float], process: int) -> tuple[float, float]:
    """Return the seconds since a stamp, and the processor time that a process took since then."""
    return perf_counter() - stamp[0], cpu_time(process) - stamp[1]


def cpu_time(process: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
