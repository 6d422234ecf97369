"""`bilevo solve --run-dir` of the user's own module, killed and given again."""

import json
import signal
import subprocess
import sys
from pathlib import Path

MODULE = """
import time
import bilevo

def F(x, y):
    return float(x @ x + y @ y)

def f(x, y):
    time.sleep(0.0005)
    return float((y - x) @ (y - x))

problem = bilevo.Problem(F, f, [(-5, 10)] * 2, [(-5, 10)] * 2, name="toll")
"""


def solve(folder: Path, *options: str, seconds: float | None = None) -> dict | None:
    """The command's JSON; None when it was killed after that time."""
    command = [sys.executable, "-m", "bilevo", "solve", "toll:problem", "--json"]
    process = subprocess.Popen(
        [*command, "--max-evals", "3000", *options], cwd=folder, stdout=subprocess.PIPE
    )
    try:
        shown, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    found: dict = json.loads(shown)
    del found["time"]
    return found


def test_a_killed_command_continues_to_the_identical_result(tmp_path: Path) -> None:
    (tmp_path / "toll.py").write_text(MODULE)
    whole = solve(tmp_path)
    kept = ("--run-dir", "runs/toll")
    kills = sum(
        solve(tmp_path, *kept, *extra, seconds=seconds) is None
        for seconds, extra in ((1.0, ()), (1.2, ("--workers", "2")), (1.4, ()))
    )
    assert solve(tmp_path, *kept) == whole
    assert kills > 0


def test_a_damaged_run_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "toll.py").write_text(MODULE)
    assert solve(tmp_path, "--run-dir", "run", "--max-evals-lower", "50") is not None
    journal = tmp_path / "run" / "journal.bin"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    command = [sys.executable, "-m", "bilevo", "solve", "toll:problem", "--run-dir", "run"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 2 and shown.stdout == ""
    assert shown.stderr.count("\n") == 1 and "use another run_dir" in shown.stderr
    assert journal.read_bytes() == content
