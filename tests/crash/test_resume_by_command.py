"""`bilevo solve --run-dir` of the user's own module, killed and given again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilevo import kernels

MODULE = """
import time
import bilevo

def F(x, y):
    return float(x @ x + y @ y)

def f(x, y):
    time.sleep(0.0002)
    return float((y - x) @ (y - x))

problem = bilevo.Problem(F, f, [(-5, 10)] * 2, [(-5, 10)] * 2, name="toll")
"""


@pytest.fixture(autouse=True)
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands start sooner."""
    monkeypatch.setenv(kernels.VARIABLE, "numpy")


def command(*options: str) -> list[str]:
    words = ["solve", "toll:problem", "--json", "--max-evals", "3000"]
    return [sys.executable, "-m", "bilevo", *words, *options]


def solve(folder: Path, *options: str) -> dict:
    """The command's JSON; its exit status says whether the run was a success."""
    done = subprocess.run(command(*options), cwd=folder, stdout=subprocess.PIPE, check=False)
    found: dict = json.loads(done.stdout)
    assert done.returncode == (0 if found["success"] else 1)
    del found["time"]
    return found


def kill(folder: Path, size: int, *options: str) -> None:
    """Start the command and kill it when its journal has grown to more than a size."""
    journal = folder / "runs" / "toll" / "journal.bin"
    process = subprocess.Popen(command(*options), cwd=folder, stdout=subprocess.DEVNULL)
    while not journal.exists() or journal.stat().st_size <= size:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_command_continues_to_the_identical_result(tmp_path: Path) -> None:
    (tmp_path / "toll.py").write_text(MODULE)
    kept = ("--run-dir", "runs/toll")
    for size, extra in ((10_000, ()), (20_000, ("--workers", "2")), (30_000, ())):
        kill(tmp_path, size, *kept, *extra)
    assert solve(tmp_path, *kept) == solve(tmp_path)


def test_a_damaged_run_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "toll.py").write_text(MODULE)
    solve(tmp_path, "--run-dir", "run", "--max-evals-lower", "50")
    journal = tmp_path / "run" / "journal.bin"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    again = [sys.executable, "-m", "bilevo", "solve", "toll:problem", "--run-dir", "run"]
    shown = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 2 and shown.stdout == ""
    assert shown.stderr.count("\n") == 1 and "use another run_dir" in shown.stderr
    assert journal.read_bytes() == content
