"""Measure the time before the first evaluation: of `import bilevo`, and of the first call.

Every figure comes from a new interpreter. For an import, the figure is the processor time of the
whole process, including the start of the interpreter; byte code exists already. For calls, it is
the time of `minimize` on SMD1 at (2, 3) with 500 evaluations, and of the same call again. Numba
gets a new cache directory, which is empty for a cold start and filled for a warm start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.report import Target, at_most
from benchmarks.timing import Figures, interleaved, say
from bilevo import kernels
from bilevo.lab.show.formats import Lines

IMPORTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "scipy.optimize": "import scipy.optimize",
    "bilevo": "import bilevo",
}
IS_THERE = "import bilevo, sys; print('numba' in sys.modules)"  # Is numba imported with bilevo?
FIRST_CALL = """
import json, time, bilevo
problem, times = bilevo.problems.get("smd1"), []
for _ in range(2):
    started = time.perf_counter()
    bilevo.minimize(problem, max_evals=500)
    times.append(time.perf_counter() - started)
print(json.dumps(times))
"""
WANTED = 0.35  # The most seconds of processor time that `import bilevo` may take.
QUICK = {"repeats": 2}


def processor_time(code: str, environment: Mapping[str, str]) -> float:
    """Return the user and system seconds that an interpreter takes to run this code."""
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(environment))
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{code!r} failed")
    return used.ru_utime + used.ru_stime


def output(code: str, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """Run code in an interpreter; return its output, and its lines on standard error."""
    command = [sys.executable, "-c", code]
    shown = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise RuntimeError(shown.stderr)
    return shown.stdout, shown.stderr.splitlines()


def first_call(environment: Mapping[str, str], repeats: int) -> Figures:
    """Return the seconds of the first and the second call, best of several interpreters."""
    calls = []
    for _ in range(repeats):
        printed, notes = output(FIRST_CALL, environment)
        first, second = json.loads(printed)
        calls.append({"first": first, "second": second, "notes": len(notes)})
    return min(calls, key=lambda call: float(call["first"]))


def first_calls(
    names: tuple[kernels.Name, ...], environment: Mapping[str, str], repeats: int
) -> Figures:
    """Measure first calls with each kernel, and with numba also when its cache is empty."""
    lines = {}
    for kernel in names:
        say(f"  first call with {kernel}")
        own = {**environment, "BILEVO_KERNEL": kernel}
        if kernel == "numba":
            lines["numba, cold"] = first_call(own, 1)
        lines["numba, warm" if kernel == "numba" else kernel] = first_call(own, repeats)
    return lines


def measure(
    names: tuple[kernels.Name, ...] = kernels.NAMES,
    imports: tuple[str, ...] = tuple(IMPORTS),
    repeats: int = 10,
) -> Figures:
    with TemporaryDirectory() as name:
        folders = {"PYTHONPYCACHEPREFIX": f"{name}/python", "NUMBA_CACHE_DIR": f"{name}/numba"}
        environment = {**os.environ, **folders}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        say("  imports")
        measures = {what: partial(processor_time, IMPORTS[what], environment) for what in imports}
        interleaved(measures, 1)  # writes the byte code
        return {
            "imports": interleaved(measures, repeats),
            "calls": first_calls(names, environment, min(repeats, 3)),
            "numba_imported": output(IS_THERE, environment)[0].strip() == "True",
        }


def tables(figures: Figures) -> list[Lines]:
    imports = [["import", "processor time (s)"]]
    imports += [[what, f"{time:.3f}"] for what, time in figures["imports"].items()]
    calls = [["kernel", "first call (s)", "second call (s)", "lines on standard error"]]
    for kernel, line in figures["calls"].items():
        times = [f"{line[which]:.3f}" for which in ("first", "second")]
        calls.append([kernel, *times, str(line["notes"])])
    return [imports, calls]


def targets(figures: Figures) -> list[Target]:
    imported = figures["numba_imported"]
    made = [Target("import bilevo imports numba", "no", "yes" if imported else "no", not imported)]
    if "bilevo" in figures["imports"]:
        took = figures["imports"]["bilevo"]
        made.append(at_most("import bilevo: s of processor time", WANTED, took, digits=3))
    for kernel, line in figures["calls"].items():
        if kernel != "numpy":
            compiling = line["first"] - line["second"]
            wanted, notes = int(compiling > kernels.NOTICE_AFTER), line["notes"]
            what = f"lines that announce compiling, {kernel}"
            made.append(Target(what, str(wanted), str(notes), notes == wanted))
    return made
